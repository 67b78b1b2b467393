"""SQL text for PostgreSQL: every identifier quoted, every value a typed literal.

Rows come over the wire as values that no calendar, zone or number format of a driver can change: days and microseconds
since 1970 as integers, decimals with the digits of the lakehouse's type. Anything else is NULL, and the row says in
words why. A digest of the values as PostgreSQL has them lets the reader see that each row has arrived as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import NamedTuple

from backfill_assets.core.calendar.partitions import Partition, runs_of
from backfill_assets.core.calendar.windows import as_utc
from backfill_assets.core.postgres_names import identifier
from backfill_assets.core.schema.postgres import DatabaseColumn
from backfill_assets.core.spec.databases import DatabaseSpec
from backfill_assets.core.spec.table import TableSpec

Bound = date | datetime
"""Where a partition begins: an instant, or a day where the event time is a date."""


def text_literal(text: str) -> str:
    """Return text as a literal, whatever the server's settings say of backslashes."""
    return "E'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def bound_literal(bound: Bound) -> str:
    """Return a day or an instant as a typed literal."""
    if isinstance(bound, datetime):
        return f"timestamptz '{as_utc(bound).astimezone(UTC).replace(tzinfo=None).isoformat(' ')}+00'"
    return f"date '{bound.isoformat()}'"


def table_name(source: DatabaseSpec) -> str:
    """Return the table with its schema."""
    return ".".join(map(identifier, source.schema_and_name))


# -- when a row happened -----------------------------------------------------------------------------------------------


class Span(NamedTuple):
    """A stretch of event time that one query reads, in which partitions begin at `begins`; its end is not in it."""

    begins: tuple[Bound, ...]
    end: Bound


class Stretch(NamedTuple):
    """What one query reads: rows from an event time on and before another.

    Args:
        after: Only those behind this place in the table's files, as PostgreSQL writes a `ctid`.
        until: Only those up to this place, which is in it.
    """

    start: Bound
    end: Bound
    after: str | None = None
    until: str | None = None


def spans(spec: TableSpec, partitions: Sequence[Partition]) -> list[Span]:
    """Return the stretches without a hole that some partitions are made of."""
    return [
        Span(tuple(begin_of(spec, partition) for partition in run), end_of(spec, run[-1]))
        for run in runs_of(sorted(partitions))
    ]


def begin_of(spec: TableSpec, partition: Partition) -> Bound:
    """Return where a partition begins, in the words of its event time."""
    return partition.value if has_days(spec) and isinstance(partition.value, date) else partition.window.start_utc


def end_of(spec: TableSpec, partition: Partition) -> Bound:
    """Return where a partition ends, in the words of its event time."""
    after = partition.next_value
    return after if has_days(spec) and isinstance(after, date) else partition.window.end_utc


def has_days(spec: TableSpec) -> bool:
    """Say whether the event time is a day, and no instant."""
    return spec.columns[spec.event_time].type == "date"


def when(spec: TableSpec, source: DatabaseSpec, event_time: DatabaseColumn) -> str:
    """Return the event time of a row, as an instant or a day."""
    name = identifier(spec.event_time)
    return instant(name, source) if event_time.base == "timestamp" else name


def inside(spec: TableSpec, source: DatabaseSpec, event_time: DatabaseColumn, span: tuple[Bound, Bound]) -> str:
    """Return a condition for rows from a bound on and before another, which an index on the event time can serve."""
    start, end = map(bound_literal, span)
    exact = f"{when(spec, source, event_time)} >= {start} AND {when(spec, source, event_time)} < {end}"
    if event_time.base != "timestamp":
        return exact
    name, zone = identifier(spec.event_time), text_literal(source.timestamps_without_zone or "UTC")
    near = (  # local times go back and forth by less than a day, and are what the index has
        f"{name} >= ({start} AT TIME ZONE {zone}) - interval '1 day' AND "
        f"{name} < ({end} AT TIME ZONE {zone}) + interval '1 day'"
    )
    return f"{near} AND {exact}"


def instant(name: str, source: DatabaseSpec) -> str:
    """Return a local time as an instant: of an hour that clocks show twice, the first."""
    zone = text_literal(source.timestamps_without_zone or "UTC")
    at = f"({name} AT TIME ZONE {zone})"
    if source.timestamps_without_zone == "UTC":
        return at
    earlier = " ".join(
        f"WHEN (({at} - interval '{shift}') AT TIME ZONE {zone}) = {name} THEN {at} - interval '{shift}'"
        for shift in ("2 hours", "1 hour", "30 minutes", "20 minutes")
    )
    return f"(CASE {earlier} ELSE {at} END)"


# -- values ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Value:
    """How one column is read.

    Args:
        sql: What is sent; NULL where `problem` says something.
        problem: Says why it cannot be the lakehouse's type, or NULL; None where it always can.
        canonical: Its text, as the reader writes it too.
    """

    sql: str
    problem: str | None
    canonical: str


def value_of(column: DatabaseColumn, kind: str, source: DatabaseSpec) -> Value:
    """Return how a column is read into a type of the lakehouse that it can be."""
    name = identifier(column.name)
    match kind.partition("(")[0]:
        case "decimal":
            precision, scale = (int(digits) for digits in kind[8:-1].split(","))
            bad = f"(abs({name}) >= 1{'0' * (precision - scale)} OR {name} <> round({name}, {scale}))"
            sent = f"(CASE WHEN {bad} THEN NULL ELSE {name} END)::{kind.replace('decimal', 'numeric')}"
            return Value(sent, _problem(column, bad, kind), f"({sent})::text")
        case "date":
            bad = f"NOT ({name} >= date '0001-01-01' AND {name} <= date '9999-12-31')"
            sent = f"(CASE WHEN {bad} THEN NULL ELSE {name} - date '1970-01-01' END)"
            return Value(sent, _problem(column, bad, "date of the years 1 to 9999"), f"{sent}::text")
        case "timestamp":
            at = instant(name, source) if column.base == "timestamp" else name
            bad = f"NOT ({at} >= {_FIRST} AND {at} < {_END})"
            if column.base == "timestamp":
                zone = text_literal(source.timestamps_without_zone or "UTC")
                bad = f"({bad} OR ({at} AT TIME ZONE {zone}) <> {name})"
            sent = f"(CASE WHEN {bad} THEN NULL ELSE (extract(epoch from {at}) * 1000000)::bigint END)"
            return Value(sent, _problem(column, bad, "instant of the years 1 to 9999"), f"{sent}::text")
        case "string":
            text = f"{name}::text"
            if column.base not in _PLAIN_TEXTS:  # as the feed has it: a cast leaves out an address's mask, or adds it
                text = f"(CASE WHEN {name} IS NOT NULL THEN format('%s', {name}) END)"
            return Value(text, None, text)
        case "binary":
            return Value(name, None, f"encode({name}, 'hex')")
        case "float" | "double":
            sent = f"{name}::text::float8" if column.base == "float4" and kind == "double" else name  # 1.1 stays 1.1
            bits = f"('x' || encode(float8send(({sent})::float8), 'hex'))::bit(64)::bigint::text"
            return Value(sent, None, f"(CASE WHEN {name} = 'NaN' THEN '9221120237041090560' ELSE {bits} END)")
        case _:
            return Value(name, None, f"{name}::text")


_PLAIN_TEXTS = frozenset({"text", "varchar", "json", "jsonb", "uuid", "numeric"})
_FIRST, _END = "timestamptz '0001-01-01 00:00:00+00'", "timestamptz '10000-01-01 00:00:00+00'"


def _problem(column: DatabaseColumn, bad: str, what: str) -> str:
    name = identifier(column.name)
    words = f"{text_literal(f'`{column.name}`: ')} || left({name}::text, 60) || {text_literal(f' is no {what}')}"
    return f"CASE WHEN {bad} THEN {words} END"


def digest(values: Sequence[Value]) -> str:
    """Return the digest of a row: the MD5 of its values' texts, each with its length; NULL is a dash."""
    parts = " || ".join(
        f"coalesce(octet_length(convert_to({v.canonical}, 'UTF8'))::text || ':' || {v.canonical}, '-')" for v in values
    )
    return f"md5(convert_to({parts}, 'UTF8'))"
