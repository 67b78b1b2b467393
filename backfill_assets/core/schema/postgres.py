"""PostgreSQL's types and the lakehouse's: which column can be read into which, without a doubt. Pure.

| PostgreSQL | lakehouse |
|---|---|
| boolean | boolean |
| smallint, integer, bigint | smallint, int, bigint: as wide, or wider |
| numeric, with or without digits | decimal, of which every value must be one exactly; or string |
| real, double precision | float, double: as wide, or wider |
| text, varchar, char, uuid, json, jsonb, xml, an enum, time, inet and the like | string |
| bytea | binary |
| date | date |
| timestamp with time zone | timestamp |
| timestamp without time zone | timestamp, if the spec says in which zone |
| arrays, composites, ranges, intervals and everything else | refused |
| a domain, also over a domain | as its base type |
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from backfill_assets.core.postgres_names import as_typed
from backfill_assets.core.spec.columns import Column

_WIDER = {"int2": ("smallint", "int", "bigint"), "int4": ("int", "bigint"), "int8": ("bigint",)}
_FITS: Mapping[str, tuple[str, ...]] = {
    "bool": ("boolean",),
    **_WIDER,
    "numeric": ("decimal", "string"),
    "float4": ("float", "double"),
    "float8": ("double",),
    "bytea": ("binary",),
    "date": ("date",),
    "timestamptz": ("timestamp",),
    "timestamp": ("timestamp",),
}
_TEXTS = frozenset(
    {
        "text", "varchar", "bpchar", "uuid", "json", "jsonb", "xml", "citext", "name", "time", "timetz", "inet", "cidr",
        "macaddr", "macaddr8",
    }
)  # fmt: skip
UNLIMITED = "decimal(38,18)"
"""What is proposed for a `numeric` that has no digits declared."""


@dataclass(frozen=True, slots=True)
class DatabaseColumn:
    """One column as the catalog names it.

    Args:
        base: Name of its base type in the catalog, for example `int8`: a domain has that of what lies below it.
        declared: The base type as people write it, for example `numeric(12,2)`.
        category: Of the base type, as PostgreSQL's `typcategory` says it: `E` is an enum, `A` an array.
        number: Another column has another one, whatever names they are given.
    """

    name: str
    base: str
    declared: str
    category: str = ""
    number: int = 0

    @property
    def fits(self) -> tuple[str, ...]:
        """The types of the lakehouse that it can be read into; none if it is refused."""
        return ("string",) if self.category == "E" or self.base in _TEXTS else _FITS.get(self.base, ())

    @property
    def proposed(self) -> str | None:
        """The type that a spec would best give it; None if there is none."""
        if self.base == "numeric":
            digits = re.fullmatch(r"numeric\((\d+),(\d+)\)", self.declared)
            return f"decimal({digits[1]},{digits[2]})" if digits and int(digits[1]) <= 38 else UNLIMITED
        return self.fits[0] if self.fits else None

    @property
    def as_read(self) -> str:
        """Its value as an expression of PostgreSQL's whose type is read."""
        name = as_typed(self.name)
        match self.category:
            case "A" | "C" | "R":
                return f"to_jsonb({name})"
            case "T":
                return f"extract(epoch FROM {name})"
            case "N":
                return f"{name}::{'numeric' if self.base == 'money' else 'bigint'}"
            case _:
                return f"{name}::text"

    @property
    def has_no_zone(self) -> bool:
        """Whether its values are days or times of no zone."""
        return self.base in ("date", "time", "timestamp")

    @property
    def is_number_of_any_size(self) -> bool:
        """Whether its values are numbers as texts, of which some are none: `NaN`, `Infinity`, `-Infinity`."""
        return self.base == "numeric"

    @property
    def is_another_with_debezium(self) -> bool:
        """Whether Debezium writes NULL for its values, or what they are in UTC."""
        return self.base in ("name", "timetz")

    def can_be(self, kind: str) -> bool:
        """Say whether it can be read into a type of the lakehouse."""
        return kind.partition("(")[0] in self.fits


def misfits(
    columns: Mapping[str, Column],
    have: Mapping[str, DatabaseColumn],
    *,
    zone_is_known: bool,
    required: Collection[str] = (),
) -> Iterator[str]:
    """Say which columns of a spec the database's table cannot fill.

    Args:
        columns: The spec's, by name.
        have: The database's, by name.
        zone_is_known: Whether the spec says in which zone timestamps without one are.
        required: Columns in which NULL is refused.
    """
    for name, column in columns.items():
        found = have.get(name)
        if found is None:
            if not column.optional:
                way = "" if name in required else "; `optional: true` would read it as NULL"
                yield f"it has no column `{name}`{way}"
        elif not found.fits:
            yield (
                f"`{name}` is `{found.declared}`, which is not read; leave it out, or give the table a column that "
                f"has `{found.as_read}`"
            )
        elif not found.can_be(column.type):
            fits = " or ".join(f"`{kind}`" for kind in dict.fromkeys([str(found.proposed), *found.fits[1:]]))
            yield f"`{name}` is `{found.declared}` there, which can be {fits} here and is `{column.type}`"
        elif found.base == "timestamp" and not zone_is_known:
            yield f"`{name}` is `{found.declared}`; say in `source.timestamps_without_zone` which zone it is in"


def observed(columns: Mapping[str, Column], have: Sequence[DatabaseColumn]) -> dict[str, str]:
    """Return the type of each column as the lakehouse would read it: the spec's, wherever that is one it can be."""
    types: dict[str, str] = {}
    for column in have:
        named = columns.get(column.name)
        types[column.name] = named.type if named and column.can_be(named.type) else column.proposed or column.declared
    return types


def shared_keys(
    key_columns: Sequence[str], table: str, unique: Sequence[Sequence[str | None]]
) -> tuple[str, str] | None:
    """Say why rows of a table may have one key, and what to do; None if some index sees to it that they do not.

    Args:
        table: As a person types it.
        unique: The columns of each index by which no two rows of it are the same; None stands for an expression, and
            for a column that may be NULL: of rows with that there may be many.
    """
    if any({*columns} <= {*key_columns} for columns in unique):
        return None
    named, typed = ", ".join(key_columns), [as_typed(name) for name in key_columns]
    others = ", ".join(f"({', '.join(filter(None, columns))})" for columns in unique if None not in columns)
    known = f" Or name in `key_columns` the columns of one that there is: {others}." if others else ""
    not_null = ", ".join(f"ALTER {name} SET NOT NULL" for name in typed)
    return (
        f"no unique index of it has all of its columns among `key_columns` ({named}) and none that may be NULL: of two "
        "rows with one key only the newer would be kept",
        f"`CREATE UNIQUE INDEX ON {table} ({', '.join(typed)});`, unless there is one, and "
        f"`ALTER TABLE {table} {not_null};`.{known}",
    )
