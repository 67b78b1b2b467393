"""`type: backfill_assets.LakehouseTable` in a `defs.yaml`: one `TableSpec`, turned into Dagster definitions."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import dagster as dg
from dagster_shared.yaml_utils.source_position import SourcePositionTree
from pydantic import BaseModel, GetJsonSchemaHandler, RootModel, ValidationError

from backfill_assets.assets.catch_up import wrong_crons
from backfill_assets.assets.factory import definitions_of
from backfill_assets.assets.spec_problems import Problem, fill_in, located, problems_in, repeated, wrong_specs
from backfill_assets.core.spec.lakehouse import check_together
from backfill_assets.core.spec.source_spec import SourceSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.runs.table import Table
from backfill_assets.runs.transform_code import code_of_module, file_of, imported_and_not_listed


class TableAttributes(RootModel[dict[str, Any]]):
    """What Dagster parses: anything. Templates are filled in before `TableSpec` validates; its schema is shown."""

    @classmethod
    def __get_pydantic_json_schema__(cls, _core: Any, _handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return cls.model_json_schema()

    @classmethod
    def model_json_schema(cls, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
        """Return the schema that editors and `dg check yaml` use: without `$ref`, as Dagster puts it into another."""
        schema = TableSpec.model_json_schema()
        return _or_template(_inlined(schema, schema.pop("$defs", {})))


@dataclass
class LakehouseTable(dg.Component):
    """A Delta table as a time-partitioned asset, whose partitions are overwritten idempotently and reconciled."""

    spec: TableSpec | None
    problems: tuple[Problem, ...] = ()
    written_at: SourcePositionTree | None = None
    module: str = ""

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """Return what Dagster parses the attributes into."""
        return TableAttributes

    @classmethod
    def load(cls, attributes: Any, context: dg.ComponentLoadContext) -> Self:
        """Read one `defs.yaml`. A wrong spec raises later, in `build_defs`: with the problems of all tables at once."""
        resolution = context.resolution_context
        written_at = resolution.source_position_tree
        module = context.defs_relative_module_name(context.path)
        raw = attributes.root if attributes else {}
        problems = list(repeated(written_at.position.filename, raw.get("key")) if written_at else ())
        filled = fill_in(resolution.at_path("attributes"), raw, (), problems)
        if not problems:
            try:
                return cls(TableSpec.model_validate(filled), (), written_at, module)
            except ValidationError as error:
                problems += problems_in(error, raw)
        return cls(None, tuple(problems), written_at, module)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the asset and the checks of the table.

        Raises:
            TableSpecError: Any table of the project is wrong; names all that is wrong with all of them.
        """
        tables = _tables_of(context)
        assert self.spec is not None  # noqa: S101 (`_tables_of` raises otherwise)
        specs = {key: table.spec for key, table in tables.items() if table.spec}
        return definitions_of(self._table(self.spec), specs)

    def _table(self, spec: TableSpec) -> Table:
        name = spec.source.transform_path
        if name is None:
            return Table(spec, file=self._file)
        module, function = _dotted(self.module, name)
        source = spec.source
        text = "" if source.sets_code_version else code_of_module(module, source.modules_of_code)
        return Table(spec, lambda: getattr(import_module(module), function), text, self._file)

    @property
    def _file(self) -> str:
        return self.written_at.position.filename if self.written_at else ""

    def describe(self, problem: Problem) -> str:
        """Return a problem with its file, line and field in front."""
        path = ".".join(map(str, problem.field)) or "attributes"
        if not self.written_at:
            return f"{self.spec.key if self.spec else '?'}: {path}: {problem.message}"
        position, _ = self.written_at.lookup_closest_and_path(["attributes", *problem.field], None)
        file = Path(position.filename)
        shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
        return f"{shown}:{position.start.line}: {path}: {problem.message}"


def _tables_of(context: dg.ComponentLoadContext) -> dict[str, LakehouseTable]:
    """Return every table of the project by its key, or raise one error that lists what is wrong with any of them."""
    tree: Any = context.component_tree
    found = getattr(tree, "_lakehouse_tables", None)
    if found is None:
        found = _checked(list(tree.get_all_components(LakehouseTable)))
        tree.__dict__["_lakehouse_tables"] = found
    return found


def _checked(tables: Sequence[LakehouseTable]) -> dict[str, LakehouseTable]:
    wrong = [table.describe(problem) for table in tables for problem in table.problems]
    by_key: dict[str, LakehouseTable] = {}
    for table in tables:
        if table.spec and (other := by_key.setdefault(table.spec.key, table)) is not table:
            taken = other.describe(Problem(("key",), "the other one"))
            wrong.append(
                table.describe(Problem(("key",), f"`{table.spec.key}` is two tables in one path; see {taken}"))
            )
    specs = {key: table.spec for key, table in by_key.items() if table.spec}
    if all(table.spec for table in tables):  # else a table may only seem to be missing
        check_together(specs, lambda key, what: wrong.append(by_key[key].describe(located(what))))
    for table in by_key.values():
        for field, what in wrong_crons(table.spec) if table.spec else ():
            wrong.append(table.describe(Problem(field, what)))
        transform = table.spec.source.transform_path if table.spec else None
        if table.spec is None or transform is None:
            continue
        if missing := _missing_function(table.module, transform):
            wrong.append(table.describe(Problem(("source", "transform"), missing)))
        elif not table.spec.source.sets_code_version:
            wrong += map(table.describe, _problems_of_code(table.module, table.spec.source))
    if wrong:
        raise wrong_specs(wrong)
    return by_key


# -- the schema of a `defs.yaml` ---------------------------------------------------------------------------------------


def _or_template(schema: Any) -> Any:
    """Let every value that is not a text also be a template in the schema that `dg check yaml` applies."""
    if isinstance(schema, dict):
        walked: dict[str, Any] = {key: _or_template(value) for key, value in schema.items()}
        if walked.get("type") in ("integer", "number", "boolean") or "enum" in walked:
            shown = {name: walked.pop(name) for name in ("title", "description", "default") if name in walked}
            return {**shown, "anyOf": [walked, {"type": "string", "pattern": r"\{\{"}]}
        return walked
    return [_or_template(value) for value in schema] if isinstance(schema, list) else schema


def _inlined(schema: Any, parts: Mapping[str, Any]) -> Any:
    """Replace each reference to a part by that part."""
    if isinstance(schema, dict):
        walked: dict[str, Any] = {key: _inlined(value, parts) for key, value in schema.items() if key != "$ref"}
        part = _inlined(parts[schema["$ref"].rpartition("/")[2]], parts) if "$ref" in schema else {}
        return {**part, **walked}
    return [_inlined(value, parts) for value in schema] if isinstance(schema, list) else schema


# -- transforms --------------------------------------------------------------------------------------------------------


def _dotted(module: str, name: str) -> tuple[str, str]:
    """Return module and function of `.transform.daily_sales` beside the YAML, or of a full dotted path."""
    where, _, function = (module + name if name.startswith(".") else name).rpartition(".")
    return where, function


def _problems_of_code(module: str, source: SourceSpec) -> Iterator[Problem]:
    """Yield each name in `source.code` that is no module; warn of imported modules that it does not list."""
    listed, where = source.modules_of_code, _dotted(module, source.transform_path or "")[0]
    for number, name in enumerate(listed):
        if file_of(name) is None:
            yield Problem(("source", "code", number), f"there is no module `{name}`")
    if unlisted := list(dict.fromkeys(imported_and_not_listed(where, listed))):
        warnings.warn(
            f"`{where}` imports {', '.join(f'`{name}`' for name in unlisted)}, which `source.code` does not list, so "
            "a change in it makes no partition stale.",
            stacklevel=2,
        )


def _missing_function(module: str, name: str) -> str | None:
    """Look for a function without running its module, which would import Spark."""
    where, function = _dotted(module, name)
    file = file_of(where)
    if file is None:
        return f"`{name}`: there is no module `{where}`"
    try:
        body = ast.parse(file.read_bytes(), str(file)).body
    except SyntaxError as error:
        return f"`{name}`: {error.filename}, line {error.lineno}, is no Python: {error.msg}"
    names = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    if function in names:
        return None
    return f"`{name}`: `{where}` defines no function `{function}`" + (f"; it has {', '.join(names)}" if names else "")
