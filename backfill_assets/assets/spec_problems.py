"""A `defs.yaml` as it is written: templates are filled in, and what is wrong is said in the words of the YAML."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

import dagster as dg
import yaml
from dagster.components.resolved.errors import ResolutionException
from pydantic import BaseModel, ValidationError

from backfill_assets.core.spec.columns import Column
from backfill_assets.core.spec.sources import source_kinds
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import TableSpecError
from backfill_assets.spark.redaction import is_secret


@dataclass(frozen=True)
class Problem:
    """What is wrong with one field of a spec."""

    field: tuple[str | int, ...]
    message: str


_ENV = re.compile(r"{{\s*env\.(\w+)\s*}}")


def fill_in(resolution: dg.ResolutionContext, value: Any, at: tuple[str | int, ...], problems: list[Problem]) -> Any:
    """Fill in `{{ ... }}` and leave all other text alone: Dagster's own resolver makes a number of the text '2023'."""
    if isinstance(value, Mapping):
        return {k: fill_in(resolution, v, (*at, k), problems) for k, v in value.items()}
    if isinstance(value, list):
        return [fill_in(resolution, v, (*at, i), problems) for i, v in enumerate(value)]
    if isinstance(value, str) and ("{{" in value or "{%" in value):
        if unset := [
            name for name in dict.fromkeys(_ENV.findall(value)) if name not in os.environ
        ]:  # Dagster would write `None` there
            problems += [
                Problem(at, f"{value}: {name} is not set; set it, or write `env('{name}', 'a default')`")
                for name in unset
            ]
            return value
        try:
            return resolution.resolve_value(value)
        except ResolutionException as error:
            problems.append(Problem(at, f"{value}: {str(error).strip().splitlines()[-1]}"))
    return value


def problems_in(error: ValidationError, raw: dict[str, Any]) -> Iterator[Problem]:
    """Say what pydantic found in the words of the YAML."""
    for found in error.errors(include_url=False):
        field = tuple(found["loc"])
        message = {"missing": "is required", "extra_forbidden": "there is no such field"}.get(
            found["type"], found["msg"]
        )
        message = message.removeprefix("Value error, ")
        if not field:
            yield located(message)
            continue
        if found["type"] == "extra_forbidden":
            known = _fields_at(field[:-1], raw)
            near = get_close_matches(str(field[-1]), known, n=1)
            if near:
                message += f"; did you mean `{near[0]}`?"
            elif known:
                message += f"; there are: {', '.join(f'`{name}`' for name in known)}"
        elif found["type"] not in ("missing", "value_error") and not isinstance(found["input"], Mapping):
            message += f", got `{found['input']}`"
        written = _at(raw, field)
        if isinstance(written, str) and "{{" in written:
            if is_secret(written):
                message = message.replace(str(found["input"]), "(hidden)")
            message += f" from {written}"
        yield Problem(field, message)


def repeated(file: str, key: Any) -> Iterator[Problem]:
    """Name what stands twice in the YAML of a table: of two fields of one name a parser takes the last in silence.

    Args:
        file: It may hold several tables.
        key: The table's, as it is written there.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C, where the machine has it
    for document in yaml.compose_all(Path(file).read_text(encoding="utf-8"), Loader=loader):
        attributes = _fields_of(document).get("attributes")
        named = _fields_of(attributes).get("key")
        if attributes is not None and (named.value if named else None) == key:
            for problem in _repeated_in(document, ()):
                if len(problem.field) == 1:
                    yield problem
                elif problem.field[0] == "attributes":
                    yield replace(problem, field=problem.field[1:])


def _fields_of(node: Any) -> dict[str, Any]:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return {str(name.value): value for name, value in pairs}


def _repeated_in(node: Any, at: tuple[str | int, ...]) -> Iterator[Problem]:
    if isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from _repeated_in(value, (*at, number))
    lines: dict[str, int] = {}
    for name, value in node.value if isinstance(node, yaml.MappingNode) else ():
        line = name.start_mark.line + 1
        if name.value in lines and name.value != "<<":
            yield Problem((*at, str(name.value)), f"stands twice, in line {lines[name.value]} too: only one can count")
        lines[name.value] = line
        yield from _repeated_in(value, (*at, str(name.value)))


def wrong_specs(lines: Sequence[str]) -> TableSpecError:
    """Return the error that lists all that is wrong with the specs of a project."""
    return TableSpecError(
        "\n" + "\n".join(f"  {line}" for line in lines) + "\n",
        state="Nothing was loaded.",
        remedy="Correct these lines and run `dg check defs` again.",
        problems=list(lines),
    )


def located(message: str) -> Problem:
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
    """Return the fields that the model at a place knows; none if the place is not known."""
    model: type[BaseModel] = Column if path[:1] == ("columns",) else TableSpec
    for at, part in enumerate(path):
        if isinstance(part, int) or model is Column:
            continue  # one of a list, the name of a column
        if path[: at + 1] == ("source",):
            kind = source_kinds().get(_at(raw, ("source", "kind")))
            found = [kind.spec_class] if kind else []
        else:
            field = model.model_fields.get(part)
            found = list(_models_in(field.annotation)) if field else []
        if len(found) != 1:
            return []
        model = found[0]
    return [field.alias or name for name, field in model.model_fields.items()]


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
