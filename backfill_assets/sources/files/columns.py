"""The columns of files, held against a spec's."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import StructType

from backfill_assets.core.schema.types import reads_as
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import quoted


def ddl(spec: TableSpec, without_zone: frozenset[str] = frozenset()) -> str:
    """Return the spec's columns as a schema in DDL."""
    return ", ".join(
        f"{quoted(name)} {'timestamp_ntz' if name in without_zone else column.type}"
        for name, column in spec.columns.items()
    )


def missing_columns(spec: TableSpec, have: set[str]) -> list[str]:
    """Say which columns files lack that may not lack them."""
    return [
        f"`{name}` is missing"
        for name, column in spec.columns.items()
        if spec.field_of(name) not in have and not column.optional
    ]


def extra_columns(spec: TableSpec, have: Sequence[str]) -> list[str]:
    """Return the columns of files, or the fields at the top of their lines, of which the spec takes nothing."""
    outer = {parent for name, column in spec.columns.items() for parent in parents(spec.field_of(name), column.path)}
    known = outer | {spec.field_of(name) for name in spec.columns}
    return [name for name in have if name not in known and not any(name.startswith(f"{parent}.") for parent in outer)]


def parents(field: str, path: str | None) -> list[str]:
    """Return the objects that a path goes through, the outermost first."""
    parts = field.split(".") if path else []
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def remark(spec: TableSpec, extra: Sequence[str]) -> str:
    """Say that columns of the source are left out, and what to do about it."""
    return (
        f"`{spec.key}`: the files also have {list(extra)}, which the spec does not name; left out. "
        f"`backfill-assets schema {spec.key}` proposes the lines that would take them."
    )


def type_problems(spec: TableSpec, schema: StructType, zone: str | None) -> list[str]:
    """Say which columns of files cannot be read as the spec's types without losing anything."""
    have = {f.name: f.dataType.simpleString() for f in schema.fields if f.name in spec.columns}
    problems = [
        f"`{name}` is `{kind}`, not `{spec.columns[name].type}`"
        for name, kind in have.items()
        if not reads_as(kind, spec.columns[name].type)
    ]
    if zone is None:
        problems += [
            f"`{name}` has timestamps without a zone, and `source.timestamps_without_zone` does not say which"
            for name, kind in have.items()
            if kind == "timestamp_ntz" and spec.columns[name].type == "timestamp"
        ]
    return problems
