"""What a few rows say about a source that nobody has described yet: types, key, event time, layout. Guesses. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

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


# -- values of JSON lines ----------------------------------------------------------------------------------------------


def kind_of_values(values: Iterable[Any]) -> str:
    """Return the narrowest type for all values of a JSON field, as Python reads them: numbers with a point as Decimal.

    | values                                  | type          |
    |-----------------------------------------|---------------|
    | 1, 2                                    | bigint        |
    | 1, 2.50                                 | decimal(18,2) |
    | 123456789012345678901                   | decimal(38,0) |
    | 1E-30                                   | double        |
    | True, None                              | boolean       |
    | '2024-01-01T00:00:00Z', '2024-01-02'    | string        |
    | '2024-01-01T00:00:00Z'                  | timestamp     |
    | '2024-01-01'                            | date          |
    | 'x', 1                                  | string        |
    | None                                    | string        |
    """
    present = [value for value in values if value is not None]
    if any(isinstance(value, dict | list) for value in present):
        return OBJECT
    if not present:
        return "string"
    if all(isinstance(value, bool) for value in present):
        return "boolean"
    if all(isinstance(value, int | Decimal) and not isinstance(value, bool) for value in present):
        return _kind_of_numbers(present)
    if all(isinstance(value, str) for value in present):
        if all(_DATE.fullmatch(value) for value in present):
            return "date"
        if all(_INSTANT.fullmatch(value) for value in present):
            return "timestamp"
    return "string"


def _kind_of_numbers(numbers: Sequence[int | Decimal]) -> str:
    if all(isinstance(number, int) and fits(number, "bigint") for number in numbers):
        return "bigint"
    sizes = [_size(number) for number in numbers]
    before, scale = max(size[0] for size in sizes), max(size[1] for size in sizes)
    if scale:
        scale = max(scale, 2)  # 1.5 among amounts does not say that there is no 1.25
    if before + scale > 38 or scale > 18:
        return "double"
    return f"decimal({max(before + scale, 18 if before + scale <= 18 else 38)},{scale})"


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
    digits = Decimal(number).normalize().as_tuple()
    exponent = digits.exponent if isinstance(digits.exponent, int) else 0
    return max(len(digits.digits) + exponent, 1), max(-exponent, 0)


# -- a table nobody has described yet ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guess:
    """One value of a spec, and why."""

    value: str
    why: str


def layout_of(folders: Sequence[str]) -> tuple[str, list[date]] | None:
    """Return the layout that the most folders follow, as a spec says it, and their days; None if none names a day.

    Args:
        folders: Below the source's root, without slashes at the ends; of files, with repetitions.

    | folders                     | layout                  |
    |-----------------------------|-------------------------|
    | 2024/02/29                  | year/month/day          |
    | year=2024/month=02/day=29   | hive                    |
    | dt=2024-02-29               | dt={date}               |
    | 2024-02-29                  | {date}                  |
    | export/2024/2/9/part        | export/{year}/{month}/{day} |
    """
    found: dict[str, set[date]] = {}
    for folder in dict.fromkeys(folders):
        named = _day_in(folder)
        if named:
            found.setdefault(named[0], set()).add(named[1])
    if not found:
        return None
    layout = max(found, key=lambda name: (len(found[name]), name))
    short = {"{year}/{month}/{day}": "year/month/day", "year={year}/month={month}/day={day}": "hive"}
    return short.get(layout, layout), sorted(found[layout])


def _day_in(folder: str) -> tuple[str, date] | None:
    """Return the template of a folder up to its day, and the day."""
    parts = folder.split("/")
    for i, part in enumerate(parts):
        if match := re.fullmatch(r"(?P<front>[^{}]*?)(?P<date>\d{4}-\d{2}-\d{2})(?P<back>[^{}]*)", part):
            day = _date(match["date"])
            return None if day is None else ("/".join([*parts[:i], f"{match['front']}{{date}}{match['back']}"]), day)
        three = [re.fullmatch(r"([A-Za-z_]+=)?(\d+)", part) for part in parts[i : i + 3]]
        if len(three) == 3 and all(three) and len(three[0][2]) == 4:  # type: ignore[index]
            year, month, day_of_month = ((match[1] or "", match[2]) for match in three if match)
            day = _date(f"{year[1]}-{month[1]:0>2}-{day_of_month[1]:0>2}")
            if day is not None:
                template = f"{year[0]}{{year}}/{month[0]}{{month}}/{day_of_month[0]}{{day}}"
                return "/".join([*parts[:i], template]), day
    return None


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def event_time_of(columns: Mapping[str, str], rows: Sequence[tuple[date, Mapping[str, Any]]]) -> Guess | None:
    """Return the timestamp (or the date) whose values lie inside the day of their folder; None if there is none.

    Args:
        columns: Type by name.
        rows: Sampled rows, each with the day of its folder; instants in UTC.
    """
    shares: list[tuple[float, bool, int, str]] = []
    for position, (name, kind) in enumerate(columns.items()):
        days = [(day, day_of(row.get(name))) for day, row in rows] if kind in ("timestamp", "date") else []
        if days and all(found is not None for _, found in days):
            inside = sum(day == found for day, found in days) / len(days)
            shares.append((inside, kind == "timestamp", -position, name))
    inside, _, _, name = max(shares, default=(0.0, False, 0, ""))
    if inside < 0.5:
        return None
    return Guess(name, f"{inside:.0%} of {len(rows):,} sampled values lie inside the day of their folder")


def day_of(value: Any) -> date | None:
    """Return the UTC day of a value; None if it has none."""
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    return _date(str(value).strip()[:10]) if isinstance(value, str) else None


def key_of(
    columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], name: str, latest: Guess | None
) -> Guess | None:
    """Return the column that looks like the key of the rows; None if none does.

    Args:
        name: Of the table: `orders` prefers `order_id` to `customer_id`.
        latest: The column that says which of two rows with the same key is newer; with one, a few repetitions are let
            pass.
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
        if share == 1 or (latest is not None and share > 0.9):
            best.append((column.lower().startswith(stem), share, -position, column))
    if not best:
        return None
    _, share, _, column = max(best)
    return Guess(
        column,
        f"unique in {len(rows):,} sampled rows" if share == 1 else f"nearly unique ({share:.1%} of {len(rows):,} rows)",
    )


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
