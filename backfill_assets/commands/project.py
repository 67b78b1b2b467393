"""The project that a command is about: its definitions, a table of them, and their own lakehouse.

A command never makes a lakehouse from the environment: it acts on the one that the definitions name, as their runs do.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from backfill_assets.errors import BackfillAssetsError, ConfigurationError
from backfill_assets.runs.waiting import say_what_takes_long

if TYPE_CHECKING:
    import dagster as dg

    from backfill_assets.core.spec.table import TableSpec
    from backfill_assets.live.changes.source import ChangedSource
    from backfill_assets.runs.resources import Lakehouse
    from backfill_assets.runs.table import Table

NOTHING_READ = "Nothing was read."
LAKEHOUSE = "lakehouse"
"""Key of the resource that the tables' assets ask for."""


@dataclass
class Project:
    """Definitions and the lakehouse that they name. A context manager: the lakehouse is closed at its end.

    Args:
        module: Where the definitions were found; for messages.
        looks: Whether the command usually reads no rows. Then Spark starts only when it is needed.
    """

    module: str
    definitions: dg.Definitions
    looks: bool = False
    _opened: ExitStack = field(default_factory=ExitStack, repr=False)

    @classmethod
    def load(cls, module: str, *, looks: bool = False) -> Self:
        """Return the project that a module of Dagster definitions holds.

        What takes long is said on standard error before it begins, unless the answer is JSON.

        Args:
            looks: As of the class.

        Raises:
            ConfigurationError: There is no such module, it cannot be loaded, or it holds no definitions.
        """
        say_what_takes_long(f"Loading {module}: usually 2 to 4 s.")
        return cls(module, _definitions_in(module), looks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: tuple[type[BaseException] | None, BaseException | None, TracebackType | None]) -> None:
        self._opened.close()

    def table(self, key: str) -> ProjectTable:
        """Return a table of the project.

        Raises:
            ConfigurationError: There is no such table.
        """
        from backfill_assets.assets.factory import tables_of

        tables, specs = tables_of(self.definitions)
        if key not in tables:
            raise ConfigurationError(
                f"There is no table `{key}` in `{self.module}`.",
                state=NOTHING_READ,
                remedy=f"There are: {', '.join(sorted(tables))}. Other definitions are named by --definitions.",
            )
        return ProjectTable(self, tables[key], specs)

    @cached_property
    def lakehouse(self) -> Lakehouse:
        """The lakehouse of the definitions, made as Dagster makes it for a run; Spark is not started by this.

        Raises:
            ConfigurationError: The definitions have none, or it cannot be made.
        """
        import dagster as dg

        resource = (self.definitions.resources or {}).get(LAKEHOUSE)
        if resource is None:
            raise ConfigurationError(
                f"The definitions of `{self.module}` have no resource `{LAKEHOUSE}`.",
                state=NOTHING_READ,
                remedy="Join your tables with `lakehouse_definitions`, or name a `Lakehouse` among the resources.",
            )
        try:
            # Dagster notes its instance in the context while this is open. In one of its own, because an instance that
            # the command opens and closes meanwhile would be noted again when this is closed.
            built, apart = dg.build_resources({LAKEHOUSE: resource}), copy_context()
            made: Any = apart.run(built.__enter__)
            self._opened.callback(apart.run, built.__exit__, None, None, None)
        except dg.DagsterError as error:
            raise ConfigurationError(
                f"The resource `{LAKEHOUSE}` of `{self.module}` cannot be made: {_first_cause(error)}",
                state=NOTHING_READ,
                remedy="Correct its configuration, or set the variable that it reads.",
            ) from error
        lakehouse: Lakehouse = getattr(made, LAKEHOUSE)
        if self.looks:
            lakehouse.start_spark_when_asked()
        return lakehouse


@dataclass(frozen=True)
class ProjectTable:
    """A table of a project, with the specs of all tables that it may be made of."""

    project: Project
    table: Table
    specs: Mapping[str, TableSpec]

    @property
    def spec(self) -> TableSpec:
        return self.table.spec

    @property
    def lakehouse(self) -> Lakehouse:
        """The lakehouse of the definitions."""
        return self.project.lakehouse

    def changed_source(self, log: Callable[[str], None]) -> ChangedSource | None:
        """Return the database that the table follows, with its feed, as a refresh has them; None if it follows none."""
        from backfill_assets.live.changes.source import ChangedSource

        source = self.lakehouse.source(self.spec, self.specs, None, log) if self.spec.changes else None
        if not isinstance(source, ChangedSource):
            return None
        source.code_version = self.table.code_version
        return source


def _definitions_in(module: str) -> dg.Definitions:
    try:
        found = next(_definitions_among(vars(importlib.import_module(module))), None)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"There is no module `{module}` ({error}).",
            state=NOTHING_READ,
            remedy="Name the module of your Dagster definitions with --definitions.",
        ) from error
    except BackfillAssetsError:
        raise
    except Exception as error:  # it may be of any kind: of YAML, of Dagster, or of a transform's module
        raise ConfigurationError(
            f"The definitions of `{module}` cannot be loaded: {type(error).__name__}: {_first_cause(error)}",
            state=NOTHING_READ,
            remedy="Correct that; `dg check defs` says where it is.",
        ) from error
    if found is None:
        raise ConfigurationError(
            f"The module `{module}` holds no Dagster definitions.",
            state=NOTHING_READ,
            remedy="Name another module with --definitions.",
        )
    return found


def _definitions_among(names: Mapping[str, Any]) -> Iterator[dg.Definitions]:
    import dagster as dg

    for value in names.values():
        if isinstance(value, dg.Definitions):
            yield value
        elif type(value).__name__ == "LazyDefinitions":  # what `@dg.definitions` makes
            yield value(None)


def _first_cause(error: BaseException) -> str:
    """Return what the innermost of chained errors says, on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())
