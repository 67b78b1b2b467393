"""`type: backfill_assets.LakehouseTable` in a `defs.yaml`: one `TableSpec`, turned into Dagster definitions."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import dagster as dg
from dagster.components.resolved.errors import ResolutionException
from dagster_shared.yaml_utils.source_position import SourcePositionTree
from pydantic import BaseModel, GetJsonSchemaHandler, RootModel, ValidationError

from backfill_assets.assets.catch_up import wrong_cron
from backfill_assets.assets.factory import Table, definitions_of
from backfill_assets.core.spec.once import OnceFlows
from backfill_assets.core.spec.files import CsvForm, DeltaSource, FilesSource, LiveStream
from backfill_assets.core.spec.table import CatchUp, Checks, ChunkSize, Column, TableSpec, check_together
from backfill_assets.errors import TableSpecError


class TableAttributes(RootModel[dict[str, Any]]):
    """What Dagster parses: anything. Templates are filled in before `TableSpec` validates; the schema shown is its own."""

    @classmethod
    def __get_pydantic_json_schema__(cls, _core: Any, _handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return _or_template(TableSpec.model_json_schema())

    @classmethod
    def model_json_schema(cls, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
        """Return the schema that editors and `dg check yaml` use."""
        return _or_template(TableSpec.model_json_schema())


@dataclass(frozen=True)
class Problem:
    """What is wrong with one field of a spec."""

    field: tuple[str | int, ...]
    message: str


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
        """Read one `defs.yaml`. Never raises for a wrong spec: `build_defs` reports the problems of all tables at once."""
        resolution = context.resolution_context
        written_at = resolution.source_position_tree
        module = context.defs_relative_module_name(context.path)
        raw = attributes.root if attributes else {}
        problems: list[Problem] = []
        filled = _filled(resolution.at_path("attributes"), raw, (), problems)
        if not problems:
            try:
                return cls(TableSpec.model_validate(filled), (), written_at, module)
            except ValidationError as error:
                problems += _problems(error, raw)
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
        name = spec.source.transform if isinstance(spec.source, DeltaSource) else None
        if name is None:
            return Table(spec, file=self._file)
        module, function = _dotted(self.module, name)
        found = find_spec(module)
        text = Path(found.origin).read_text() if found and found.origin else ""
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
    """Return every table of the project by its key, or raise one error that lists all that is wrong with any of them."""
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
            wrong.append(table.describe(Problem(("key",), f"`{table.spec.key}` is two tables in one path; see {taken}")))
    specs = {key: table.spec for key, table in by_key.items() if table.spec}
    if all(table.spec for table in tables):  # else a table may only seem to be missing
        check_together(specs, lambda key, what: wrong.append(by_key[key].describe(_located(what))))
    for table in by_key.values():
        if table.spec and (wrong_schedule := wrong_cron(table.spec)):
            wrong.append(table.describe(Problem(("catch_up", "cron"), wrong_schedule)))
        source = table.spec.source if table.spec else None
        if isinstance(source, DeltaSource) and source.transform and (missing := _missing_function(table.module, source.transform)):
            wrong.append(table.describe(Problem(("source", "transform"), missing)))
    if wrong:
        raise TableSpecError(
            "\n" + "\n".join(f"  {line}" for line in wrong) + "\n",
            state="Nothing was loaded.",
            remedy="Correct these lines and run `dg check defs` again.",
            problems=wrong,
        )
    return by_key


# -- templates and messages --------------------------------------------------------------------------------------------

_ENV = re.compile(r"{{\s*env\.(\w+)\s*}}")


def _filled(resolution: dg.ResolutionContext, value: Any, at: tuple[str | int, ...], problems: list[Problem]) -> Any:
    """Fill in `{{ ... }}` and leave all other text alone: Dagster's own resolver makes a number of the text '2023'."""
    if isinstance(value, Mapping):
        return {k: _filled(resolution, v, (*at, k), problems) for k, v in value.items()}
    if isinstance(value, list):
        return [_filled(resolution, v, (*at, i), problems) for i, v in enumerate(value)]
    if isinstance(value, str) and ("{{" in value or "{%" in value):
        if unset := [name for name in dict.fromkeys(_ENV.findall(value)) if name not in os.environ]:  # Dagster would write `None` there
            problems += [Problem(at, f"{value}: {name} is not set; set it, or write `env('{name}', 'a default')`") for name in unset]
            return value
        try:
            return resolution.resolve_value(value)
        except ResolutionException as error:
            problems.append(Problem(at, f"{value}: {str(error).strip().splitlines()[-1]}"))
    return value


def _problems(error: ValidationError, raw: dict[str, Any]) -> Iterator[Problem]:
    """Say what pydantic found in the words of the YAML."""
    for found in error.errors(include_url=False):
        field = tuple(found["loc"])
        if field[:1] == ("source",) and len(field) > 1:  # pydantic puts a union's member into the path; the YAML has no such level
            field = (field[0], *field[2:])
        message = {"missing": "is required", "extra_forbidden": "there is no such field"}.get(found["type"], found["msg"])
        message = message.removeprefix("Value error, ")
        if not field:
            yield _located(message)
            continue
        if found["type"] == "extra_forbidden":
            known = _fields_at(field[:-1], raw)
            near = get_close_matches(str(field[-1]), known, n=1)
            message += f"; did you mean `{near[0]}`?" if near else f"; there are: {', '.join(f'`{name}`' for name in known)}"
        elif found["type"] not in ("missing", "value_error") and not isinstance(found["input"], Mapping):
            message += f", got `{found['input']}`"
        written = _at(raw, field)
        if isinstance(written, str) and "{{" in written:
            message += f" from {written}"
        yield Problem(field, message)


def _located(message: str) -> Problem:
    """Take a field's name in front of a message for the place of the problem."""
    match = re.match(r"([a-z_]+(?:\.[a-z_]+)*): ", message)
    return Problem(tuple(match[1].split(".")), message[match.end() :]) if match else Problem((), message)


def _at(raw: Any, path: Iterable[str | int]) -> Any:
    for part in path:
        try:
            raw = raw[part]
        except (KeyError, IndexError, TypeError):
            return None
    return raw


def _fields_at(path: Sequence[str | int], raw: dict[str, Any]) -> list[str]:
    """Return the fields that the model at a place knows."""
    models: dict[str, type[BaseModel]] = {
        "chunk": ChunkSize,
        "checks": Checks,
        "once": OnceFlows,
        "catch_up": CatchUp,
        "live": LiveStream,
    }
    if not path:
        return list(TableSpec.model_fields)
    if path[0] == "columns":
        return [field.alias or name for name, field in Column.model_fields.items()]
    if path == ("source", "csv"):
        return list(CsvForm.model_fields)
    if path[0] == "source":
        return list((DeltaSource if _at(raw, ("source", "kind")) == "delta" else FilesSource).model_fields)
    return list(models[str(path[0])].model_fields) if path[0] in models else []


def _or_template(schema: Any) -> Any:
    """Let every value that is not a text also be a template in the schema that `dg check yaml` applies."""
    if isinstance(schema, dict):
        walked: dict[str, Any] = {key: _or_template(value) for key, value in schema.items()}
        if walked.get("type") in ("integer", "number", "boolean") or "enum" in walked:
            shown = {name: walked.pop(name) for name in ("title", "description", "default") if name in walked}
            return {**shown, "anyOf": [walked, {"type": "string", "pattern": r"\{\{"}]}
        return walked
    return [_or_template(value) for value in schema] if isinstance(schema, list) else schema


def yaml_schema() -> dict[str, Any]:
    """Return the JSON schema of a whole `defs.yaml`, for editors."""
    attributes = TableAttributes.model_json_schema()
    shared = attributes.pop("$defs", {})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A table of the lakehouse (defs.yaml)",
        "type": "object",
        "required": ["type", "attributes"],
        "additionalProperties": False,
        "properties": {
            "type": {"const": "backfill_assets.LakehouseTable", "description": "Kind of Dagster component: always this one for a table."},
            "attributes": attributes,
            "template_vars_module": {"type": "string", "description": "Module beside the file with functions that `{{ ... }}` may call."},
            "requirements": {"type": "object", "description": "Environment variables that the file needs, for Dagster."},
            "post_processing": {"type": "object", "description": "Dagster's changes of what the file makes."},
        },
        "$defs": shared,
    }


# -- transforms --------------------------------------------------------------------------------------------------------


def _dotted(module: str, name: str) -> tuple[str, str]:
    """Return module and function of `.transform.daily_sales` beside the YAML, or of a full dotted path."""
    where, _, function = (module + name if name.startswith(".") else name).rpartition(".")
    return where, function


def _missing_function(module: str, name: str) -> str | None:
    """Look for a function without running its module, which would import Spark."""
    where, function = _dotted(module, name)
    try:
        found = find_spec(where)
    except ModuleNotFoundError:
        found = None
    if found is None or not found.origin:
        return f"`{name}`: there is no module `{where}`"
    names = [node.name for node in ast.parse(Path(found.origin).read_text()).body if isinstance(node, ast.FunctionDef)]
    if function in names:
        return None
    return f"`{name}`: `{where}` defines no function `{function}`" + (f"; it has {', '.join(names)}" if names else "")
