"""The columns of files, held against a spec's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from backfill_assets.core.schema.types import decimal_size, plain_type, reads_as, reads_by_value
from backfill_assets.core.spec.columns import PRIMITIVE_TYPES
from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import column_list


class FileColumn(NamedTuple):
    """A column of a file.

    Args:
        kind: Its type in Spark's words, or in Parquet's if Spark has none.
    """

    name: str
    kind: str


def ddl(spec: TableSpec) -> str:
    """Return the spec's columns as a schema in DDL."""
    return column_list({name: column.type for name, column in spec.columns.items()})


def matched(spec: TableSpec, found: Sequence[FileColumn]) -> tuple[dict[str, str], list[str]]:
    """Return the types of those columns of files that are the spec's; and what is wrong with their names.

    As in Spark, it plays no part which letters of a name are capitals.
    """
    by_name: dict[str, list[FileColumn]] = {}
    for column in found:
        by_name.setdefault(own_name(spec, column.name), []).append(column)
    ours = {name: alike for name, alike in by_name.items() if name in spec.columns}
    problems = [
        f"`{name}` is there {len(alike)} times, as {', '.join(f'`{column.name}`' for column in alike)}; "
        "nothing says which one is meant, so keep one and rename the other"
        for name, alike in ours.items()
        if len(alike) > 1
    ]
    return {name: alike[0].kind for name, alike in ours.items()}, problems


def own_name(spec: TableSpec, found: str) -> str:
    """Return the spec's name of a column that files have; the files' where the spec has none."""
    return next((name for name in spec.columns if name.lower() == found.lower()), found)


_ONLY_IN_PATHS = (
    " (only the paths say it, as `{}=`, and no column is read from a path: write it into the files too, or register a "
    "kind of source of your own)"
)


def missing_columns(spec: TableSpec, have: set[str]) -> list[str]:
    """Say which columns files lack that may not lack them."""
    layout = spec.source.layout if isinstance(spec.source, FilesSpec) else ""
    return [
        f"`{name}` is missing" + (_ONLY_IN_PATHS.format(name) if f"{name}=" in layout else "")
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


def type_problems(spec: TableSpec, kinds: Mapping[str, str], zone: str | None) -> list[str]:
    """Say which columns of files cannot be read as the spec's types without losing anything.

    Args:
        kinds: Types of those columns of the spec that files have.
        zone: Of timestamps without one.
    """
    pairs = [(name, kind, spec.columns[name].type) for name, kind in kinds.items()]
    problems = [
        f"`{name}` is `{kind}`, not `{wanted}` ({_way_on(kind, wanted)})"
        for name, kind, wanted in pairs
        if not reads_as(kind, wanted) and not reads_by_value(kind, wanted)
    ]
    if zone is None:
        problems += [
            f"`{name}` has timestamps without a zone, and `source.timestamps_without_zone` does not say which"
            for name, kind in kinds.items()
            if kind.startswith("timestamp_ntz") and spec.columns[name].type == "timestamp"
        ]
    return problems


def leave_doubt(spec: TableSpec, kinds: Mapping[str, str]) -> bool:
    """Say whether Spark's names of types are not enough to tell that columns can be read.

    Spark calls a column without any value `int`, and unsigned integers by the signed type or the decimal that holds
    them: as decimals of other sizes it reads none of these.
    """
    return any(
        not reads_as(kind, wanted) or (wanted.startswith("decimal") and kind != wanted and kind in _ALSO_UNSIGNED)
        for kind, wanted in ((kind, spec.columns[name].type) for name, kind in kinds.items())
    )


_ALSO_UNSIGNED = ("smallint", "int", "bigint", "decimal(20,0)")

_WAYS_ON = {
    "time": "write the time of day as text",
    "interval": "write it as a number of its unit",
    "float16": "write it as a `float` or a `double`",
    "struct": "write a column for each of its fields, or its JSON as text",
    "array": "write its JSON as text",
    "map": "write its JSON as text",
}
"""What could be done about a type that no column can have."""


def _way_on(kind: str, wanted: str) -> str:
    """Return what could be done about a column whose type is not the spec's."""
    own = plain_type(kind).removesuffix("_ntz")
    other = f", or make the column `{own}`" if is_plain(own) else ""
    return _WAYS_ON.get(kind, f"write it as `{wanted}`{other}")


def is_plain(kind: str) -> bool:
    """Say whether a table's column may have a type."""
    return kind in PRIMITIVE_TYPES or (decimal_size(kind) or (39, 0))[0] <= 38
