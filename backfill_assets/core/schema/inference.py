"""What a few rows say about a source that nobody has described yet: types, key, event time. Guesses. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from backfill_assets.core.calendar.layouts import Unit
from backfill_assets.core.calendar.windows import Window
from backfill_assets.core.spec.column_formats import ColumnFormat

_RANGES = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DATE = re.compile(r"\s*\d{4}-\d{2}-\d{2}\s*")
_INSTANT = re.compile(r"\s*\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?\s*(Z|UTC|[+-]\d{2}(:?\d{2})?)?\s*")
_HAS_ZONE = re.compile(r".*\d{2}:\d{2}.*(Z|UTC|[+-]\d{2}(:?\d{2})?)\s*")
_ENTITY_ID = re.compile(r"(^|_)(id|key|uuid|guid|number|no|nr)$")
_CHANGED = (
    "updated_at",
    "modified_at",
    "changed_at",
    "last_modified",
    "last_updated",
    "updated",
    "modified",
    "version",
    "ingested_at",
)

OBJECT = "object"
"""The kind of a JSON object or array: no type of a column."""


# -- types -------------------------------------------------------------------------------------------------------------


def kind_of_values(values: Iterable[Any]) -> str:
    """Return the narrowest type for all values of a JSON field, as Python reads them: numbers with a point as Decimal.

    | values                                  | type          |
    |-----------------------------------------|---------------|
    | 1, 2                                    | bigint        |
    | 1, 2.50                                 | decimal(18,2) |
    | 123456789012345678901                   | decimal(38,0) |
    | 1E-30                                   | double        |
    | True, None                              | boolean       |
    | True, 1                                 | string        |
    | '2024-01-01T00:00:00Z', '2024-01-02'    | string        |
    | '2024-01-01T00:00:00Z'                  | timestamp     |
    | '2024-01-01'                            | date          |
    | '31.12.2024'                            | string        |
    | 'x', 1                                  | string        |
    | None                                    | string        |
    """
    present = [value for value in values if value is not None]
    types: set[type] = set(map(type, present))
    if types & {dict, list}:
        return OBJECT
    if types == {bool}:
        return "boolean"
    if types and types <= {int, Decimal}:
        return _kind_of_numbers(present)
    if types == {str} and all(_DATE.fullmatch(value) for value in present):
        return "date"
    return "timestamp" if types == {str} and all(_INSTANT.fullmatch(value) for value in present) else "string"


def value_of_text(text: str) -> bool | int | Decimal | str | None:
    """Return the value of a CSV field, as a JSON field would have it.

    A number with more to it than its value is a code, and stays a text: a zip code with zeros in front, or a `+`.

    | text           | value           |
    |----------------|-----------------|
    | '-22'          | -22             |
    | '2.50'         | Decimal('2.50') |
    | '.5'           | Decimal('0.5')  |
    | '007'          | '007'           |
    | '15E4'         | '15E4'          |
    | '+491500000000'| '+491500000000' |
    | '-'            | '-'             |
    | 'FALSE'        | False           |
    | '2024-01-01'   | '2024-01-01'    |
    | ''             | None            |
    """
    plain = text.strip()
    if plain.lower() in ("true", "false"):
        return plain.lower() == "true"
    if re.fullmatch(r"-?(0|[1-9]\d*)?(\.\d+)?", plain) and plain.strip("-"):
        return Decimal(plain) if "." in plain else int(Decimal(plain))
    return text or None


def _kind_of_numbers(numbers: Sequence[int | Decimal]) -> str:
    if all(isinstance(number, int) and -(1 << 63) <= number < 1 << 63 for number in numbers):
        return "bigint"
    sizes = [_size(number) for number in numbers]
    before, scale = max(size[0] for size in sizes), max(size[1] for size in sizes)
    if scale:
        scale = max(scale, 2)  # 1.5 among amounts does not say that there is no 1.25
    if before + scale > 38 or scale > 18:
        return "double"
    return f"decimal({18 if before + scale <= 18 else 38},{scale})"


def fits(value: Any, kind: str, written: ColumnFormat | None = None) -> bool:
    """Say whether a value of a JSON line is read as a type without losing anything, as `sources.json_lines` reads it.

    | value        | type          |     |
    |--------------|---------------|-----|
    | 3000000000   | int           | no  |
    | '12'         | int           | yes |
    | 1.5          | int           | no  |
    | 1.250        | decimal(18,2) | yes |
    | 1.255        | decimal(18,2) | no  |
    | 'x'          | double        | no  |
    | 1            | string        | yes |
    | '2024-01-01' | timestamp     | yes |
    | 1            | timestamp     | no  |
    """
    if value is None or kind in ("string", "binary"):
        return True
    if isinstance(value, dict | list):
        return False
    if written is not None:
        return not isinstance(value, bool) and written.describes(str(value))
    if kind == "boolean":
        return isinstance(value, bool) or str(value).lower() in ("true", "false")
    if kind == "date":
        return isinstance(value, str) and bool(_DATE.fullmatch(value))
    if kind == "timestamp":
        return isinstance(value, str) and bool(_INSTANT.fullmatch(value) or _DATE.fullmatch(value))
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation:
        return False
    if isinstance(value, bool) or not number.is_finite():
        return False
    if kind in _RANGES:
        is_whole = isinstance(value, int) or (
            isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d+\s*", value) is not None
        )
        return is_whole and -(1 << _RANGES[kind] - 1) <= number < 1 << _RANGES[kind] - 1
    if kind.startswith("decimal"):
        precision, scale = map(int, re.findall(r"\d+", kind))
        have = _size(number)
        return have[0] <= precision - scale and have[1] <= scale
    return True


def _size(number: int | Decimal) -> tuple[int, int]:
    """Return how many digits a number has before and behind the point."""
    _, digits, exponent = Decimal(number).as_tuple()
    exponent = exponent if isinstance(exponent, int) else 0
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))  # `normalize` would round to 28 digits
    return max(len(digits) + exponent, 1), max(-exponent - zeros, 0)


# -- a table nobody has described yet ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guess:
    """One value of a spec, and why."""

    value: str
    why: str


def event_time_of(
    columns: Mapping[str, str], rows: Sequence[tuple[Window, Mapping[str, Any]]], unit: Unit
) -> Guess | None:
    """Return the timestamp (or the date) whose values lie inside the time of their file; None if there is none.

    Of several it is the first one that is no change by its name.

    Args:
        columns: Type by name.
        rows: Sampled rows, each with the time that its file's path names; instants without a zone are taken for UTC.
        unit: How much time a path names.
    """
    shares: list[tuple[float, bool, bool, int, str]] = []
    for position, (name, kind) in enumerate(columns.items()):
        found = [(window, instant_of(row.get(name))) for window, row in rows] if kind in ("timestamp", "date") else []
        if found and all(instant is not None for _, instant in found):
            inside = sum(instant is not None and window.contains(instant) for window, instant in found) / len(found)
            shares.append((inside, kind == "timestamp", name.lower() not in _CHANGED, -position, name))
    inside, _, _, _, name = max(shares, default=(0.0, False, False, 0, ""))
    if inside < 0.5:
        return None
    if unit is Unit.ANY:
        return Guess(name, "the first instant, or day, by which no row is changed; paths name no time")
    return Guess(name, f"{inside:.0%} of {len(rows):,} sampled values lie inside the {unit} that their path names")


def instant_of(value: Any) -> datetime | None:
    """Return the instant of a value in UTC, of a day its beginning; None if it has none."""
    try:
        instant = datetime.fromisoformat(re.sub(r" ?UTC$", "Z", str(value).strip()))
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):  # the latter at an end of the calendar
        return None


def key_of(
    columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], name: str, latest: Guess | None
) -> Guess | None:
    """Return the column that looks like the key of the rows; None if none does.

    Args:
        name: Of the table: `orders` prefers `order_id` to `customer_id`.
        latest: The column that may say which of two rows with the same key is newer. A few repetitions are let pass if
            it does so for each of them.
    """
    stem = name.removesuffix("s")
    best: list[tuple[bool, float, int, str]] = []
    for position, (column, kind) in enumerate(columns.items()):
        values = [row.get(column) for row in rows]
        if (
            kind not in ("bigint", "int", "string", "smallint")
            or not _ENTITY_ID.search(column.lower())
            or None in values
            or not values
        ):
            continue
        share = len(set(map(str, values))) / len(values)
        if share == 1 or (share > 0.9 and latest is not None and decides(latest.value, column, rows)):
            best.append((column.lower().startswith(stem), share, -position, column))
    if not best:
        return None
    _, share, _, column = max(best)
    return Guess(
        column,
        f"unique in {len(rows):,} sampled rows" if share == 1 else f"nearly unique ({share:.1%} of {len(rows):,} rows)",
    )


def decides(latest: str, key: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether keys come more than once in a sample, and a column says each time which row is the newest."""
    seen: dict[str, list[Any]] = {}
    for row in rows:
        seen.setdefault(str(row.get(key)), []).append(row.get(latest))
    repeated = [found for found in seen.values() if len(found) > 1]
    return bool(repeated) and all(None not in found and len(set(map(str, found))) == len(found) for found in repeated)


def latest_by_of(columns: Mapping[str, str]) -> Guess | None:
    """Return the column that by its name says when a row was changed; None if there is none."""
    for name in _CHANGED:
        for column, kind in columns.items():
            if column.lower() == name and kind in ("timestamp", "date", "bigint", "int"):
                return Guess(column, "by its name; of rows with the same key the largest wins")
    return None


def lacks_zone(values: Iterable[Any]) -> bool:
    """Say whether any instant among texts has no zone."""
    return any(
        isinstance(v, str) and _INSTANT.fullmatch(v) is not None and _HAS_ZONE.fullmatch(v) is None for v in values
    )
