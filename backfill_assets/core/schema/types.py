"""Types of columns: which are read as which without losing anything, and which hold both of two."""

from __future__ import annotations

import re

_INTEGERS = ("tinyint", "smallint", "int", "bigint")


TIMESTAMP_NANOS, TIMESTAMP_NTZ_NANOS = "timestamp(9)", "timestamp_ntz(9)"
"""Instants and local times in nanoseconds, for which Spark has no type."""

_UNSIGNED = {"uint8": "smallint", "uint16": "int", "uint32": "bigint", "uint64": "decimal(20,0)"}

_PLAIN = {TIMESTAMP_NANOS: "timestamp", TIMESTAMP_NTZ_NANOS: "timestamp_ntz", "uuid": "binary", **_UNSIGNED}

_LARGEST_WHOLE = {"float": 2**24, "double": 2**53}
"""Up to here these types have every whole number; a larger one may stand for another that was rounded to it."""

_DIGITS = {"tinyint": 10, "smallint": 10, "int": 10, "bigint": 20}
"""Digits before the point that a decimal needs to read such a Parquet column; the two smallest are stored as `int`."""


def reads_as(found: str, wanted: str) -> bool:
    """Say whether Spark reads a Parquet column of one type as another without losing anything, whatever its values.

    | found         | wanted         |     |
    |---------------|----------------|-----|
    | int           | bigint         | yes |
    | int           | double         | yes |
    | bigint        | double         | no  |
    | int           | decimal(12,2)  | yes |
    | int           | decimal(11,2)  | no  |
    | bigint        | decimal(22,2)  | yes |
    | bigint        | decimal(18,2)  | no  |
    | decimal(10,2) | decimal(12,4)  | yes |
    | decimal(10,2) | decimal(10,3)  | no  |
    | float         | double         | yes |
    | int           | string         | no  |
    | timestamp_ntz | timestamp      | yes |
    | timestamp(9)  | timestamp      | yes |
    | timestamp(9)  | bigint         | no  |
    | uint8         | smallint       | yes |
    | uint8         | int            | no  |
    | uint64        | decimal(20,0)  | yes |
    | uint64        | decimal(38,0)  | no  |
    | uuid          | binary         | yes |
    | uuid          | string         | no  |
    | time          | bigint         | no  |
    | void          | string         | yes |
    """
    if found in (wanted, "void"):
        return True
    if wanted == "timestamp":
        return found in ("timestamp_ntz", TIMESTAMP_NANOS, TIMESTAMP_NTZ_NANOS)
    if found in _UNSIGNED or found == "uuid":  # as anything else Spark refuses them, or takes them for signed
        return wanted == _PLAIN[found]
    if found in _INTEGERS and wanted in _INTEGERS:
        return _INTEGERS.index(found) < _INTEGERS.index(wanted)
    if (found, wanted) == ("float", "double") or (found in ("tinyint", "smallint", "int") and wanted == "double"):
        return True
    wide = decimal_size(wanted)
    if wide is None:
        return False
    if found in _DIGITS:
        return wide[0] - wide[1] >= _DIGITS[found]
    narrow = decimal_size(found)
    return narrow is not None and wide[1] >= narrow[1] and wide[0] - wide[1] >= narrow[0] - narrow[1]


def plain_type(found: str) -> str:
    """Return the type by which Spark reads all values of a Parquet column; the same if there is none.

    | found            | plain         |
    |------------------|---------------|
    | timestamp(9)     | timestamp     |
    | timestamp_ntz(9) | timestamp_ntz |
    | uint64           | decimal(20,0) |
    | time             | time          |
    """
    return _PLAIN.get(found, found)


def reads_by_value(found: str, wanted: str) -> bool:
    """Say whether those numbers of a Parquet column are read as another type that are also numbers of that type.

    | found         | wanted        |     |
    |---------------|---------------|-----|
    | double        | bigint        | yes |
    | bigint        | double        | yes |
    | bigint        | smallint      | yes |
    | uint64        | bigint        | yes |
    | uint32        | float         | yes |
    | bigint        | decimal(9,2)  | yes |
    | decimal(30,2) | decimal(18,1) | yes |
    | decimal(6,1)  | int           | yes |
    | double        | float         | no  |
    | double        | decimal(18,2) | no  |
    | decimal(18,2) | double        | no  |
    | decimal(45,2) | decimal(38,2) | no  |
    | bigint        | boolean       | no  |
    | string        | bigint        | no  |
    """
    families = {_family(found), _family(wanted)}
    return None not in families and families != {"decimal", "floating"} and (found, wanted) != ("double", "float")


def largest_whole(found: str, wanted: str) -> int | None:
    """Return up to which size two types have all whole numbers; None if neither is of floating point.

    | found  | wanted | largest          |
    |--------|--------|------------------|
    | double | bigint | 9007199254740992 |
    | bigint | float  | 16777216         |
    | bigint | int    | none             |
    """
    return min((_LARGEST_WHOLE[kind] for kind in (found, wanted) if kind in _LARGEST_WHOLE), default=None)


def _family(kind: str) -> str | None:
    """Return which kind of numbers a type has; None if it has none, or Spark does not read it."""
    if kind in _INTEGERS or kind in _UNSIGNED:
        return "whole"
    if kind in _LARGEST_WHOLE:
        return "floating"
    return "decimal" if (decimal_size(kind) or (39, 0))[0] <= 38 else None


def common_type(one: str, other: str) -> str | None:
    """Return the narrowest type that both are read as; None if they are of different kinds.

    Both lose nothing, except that whole numbers beyond 2^53 are not read as `double`.

    | one           | other         | both           |
    |---------------|---------------|----------------|
    | int           | bigint        | bigint         |
    | float         | int           | double         |
    | bigint        | double        | double         |
    | int           | decimal(6,3)  | decimal(13,3)  |
    | decimal(18,2) | decimal(6,4)  | decimal(20,4)  |
    | decimal(38,2) | decimal(38,4) | none           |
    | bigint        | string        | none           |
    | date          | timestamp     | none           |
    """
    for narrow, wide in ((one, other), (other, one)):
        if reads_as(narrow, wide):
            return wide
    if {one, other} <= {*_LARGEST_WHOLE, *_INTEGERS}:
        return "double"
    sizes = [(_DIGITS[kind], 0) if kind in _DIGITS else _split(decimal_size(kind)) for kind in (one, other)]
    if sizes[0] is None or sizes[1] is None:
        return None
    before, scale = max(sizes[0][0], sizes[1][0]), max(sizes[0][1], sizes[1][1])
    return f"decimal({before + scale},{scale})" if before + scale <= 38 else None


def decimal_size(kind: str) -> tuple[int, int] | None:
    """Return precision and scale of a decimal; None for any other type."""
    match = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
    return (int(match[1]), int(match[2])) if match else None


def _split(size: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return a decimal's digits before and behind the point."""
    return None if size is None else (size[0] - size[1], size[1])
