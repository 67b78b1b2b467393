"""Every query about the rows of one table of a PostgreSQL database, as SQL text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from backfill_assets.core.postgres.sql import (
    Bound,
    Span,
    Stretch,
    Value,
    bound_literal,
    digest,
    has_days,
    inside,
    instant,
    table_name,
    text_literal,
    value_of,
    when,
)
from backfill_assets.core.postgres_names import identifier
from backfill_assets.core.schema.postgres import DatabaseColumn
from backfill_assets.core.spec.columns import Column
from backfill_assets.core.spec.databases import DatabaseSpec
from backfill_assets.core.spec.table import TableSpec

_LACKING = Value("NULL", None, "NULL::text")
"""How a column is read that the database does not have."""


@dataclass(frozen=True, slots=True)
class TableQueries:
    """Every query about the rows of one table.

    Args:
        have: The database's columns by name.
    """

    spec: TableSpec
    source: DatabaseSpec
    have: Mapping[str, DatabaseColumn]

    @property
    def read(self) -> dict[str, Column]:
        """The columns that are read: those of the spec that the database has."""
        return {name: column for name, column in self.spec.columns.items() if name in self.have}

    @property
    def _event_time(self) -> DatabaseColumn:
        return self.have[self.spec.event_time]

    def _where(self, span: tuple[Bound, Bound]) -> str:
        return inside(self.spec, self.source, self._event_time, span)

    def _number(self, begins: Sequence[Bound]) -> str:
        """Return the number of a row's partition among those that begin at some bounds, from 1 on."""
        kind = "date" if has_days(self.spec) else "timestamptz"
        listed = ", ".join(bound_literal(bound) for bound in begins)
        return f"width_bucket({when(self.spec, self.source, self._event_time)}, ARRAY[{listed}]::{kind}[])"

    def fingerprints(self, span: Span) -> str:
        """Count the rows of each partition, and add up which transactions wrote them: number, rows, sum."""
        written = "coalesce(sum(hashint8extended(xmin::text::bigint, 0)::numeric), 0)::text"
        return (
            f"SELECT {self._number(span.begins)}, count(*), {written} FROM {table_name(self.source)} "
            f"WHERE {self._where((span.begins[0], span.end))} GROUP BY 1"
        )

    def with_keys(self, span: Span, first: str, last: str) -> str:
        """Count the rows of each partition whose key lies between two, both included: number, rows."""
        name = self.spec.key_columns[0]
        kind, quoted = self.spec.columns[name].type, identifier(name)
        if kind == "string":  # in the order of their bytes, as the lakehouse has them
            text = value_of(self.have[name], kind, self.source).sql
            condition = f'({text}) COLLATE "C" BETWEEN {text_literal(first)} AND {text_literal(last)}'
        elif kind == "date":
            bounds = [bound_literal(date.fromisoformat(key)) for key in (first, last)]
            condition = f"{quoted} BETWEEN {bounds[0]} AND {bounds[1]}"
        else:
            condition = f"{quoted} BETWEEN {int(first):d} AND {int(last):d}"
        return self._counts_where(span, condition)

    def modified_since(self, span: Span, column: str, since: datetime) -> str:
        """Count the rows of each partition that were written since an instant, or do not say when: number, rows."""
        name = identifier(column)
        at = instant(name, self.source) if self.have[column].base == "timestamp" else name
        return self._counts_where(span, f"({name} IS NULL OR {at} >= {bound_literal(since)})")

    def _counts_where(self, span: Span, condition: str) -> str:
        return (
            f"SELECT {self._number(span.begins)}, count(*) FROM {table_name(self.source)} "
            f"WHERE {self._where((span.begins[0], span.end))} AND {condition} GROUP BY 1"
        )

    def rows_without_event_time(self) -> str:
        """Count the rows that can lie in no partition, ever: NULL, infinite, or of no year from 1 to 9999.

        An index on the event time serves it.
        """
        name, kind = identifier(self.spec.event_time), self._event_time.base
        return (
            f"SELECT count(*) FROM {table_name(self.source)} WHERE {name} IS NULL OR "
            f"{name} < {kind} '0001-01-01' OR {name} >= {kind} '10000-01-01'"
        )

    def problems(self, span: tuple[Bound, Bound], most: int) -> str | None:
        """Return what is wrong with rows of a stretch, so many of them; None where nothing can be."""
        said = self._problems()
        if said is None:
            return None
        key = self._key()
        named = f"{key} || ': ' || {said}" if key else said
        where = f"{self._where(span)} AND {said} IS NOT NULL"
        return f"SELECT {named} FROM {table_name(self.source)} WHERE {where} ORDER BY 1 LIMIT {most:d}"

    def _key(self) -> str:
        return " || ', ' || ".join(
            f"{text_literal(f'{name}=')} || coalesce({identifier(name)}::text, 'NULL')"
            for name in self.spec.key_columns
            if name in self.have
        )

    def keys(self, span: Stretch) -> str:
        """Return the key of a row of a stretch, in words; NULL if the table has none."""
        return f"SELECT {self._key() or 'NULL'} FROM {table_name(self.source)} WHERE {self._within(span)} LIMIT 1"

    def digests(self, span: Stretch, *names: str) -> str:
        """Ask for something that takes every value of a stretch, or those of some columns, and says little."""
        values = [value for name, value in self._values().items() if not names or name in names]
        said = [value.problem for value in values if value.problem]
        each = ", ".join(f"max({one})" for one in (digest(values), *said))
        return f"SELECT {each} FROM {table_name(self.source)} WHERE {self._within(span)}"

    def _values(self) -> dict[str, Value]:
        return {name: value_of(self.have[name], column.type, self.source) for name, column in self.read.items()}

    def _problems(self) -> str | None:
        said = [value.problem for value in self._values().values() if value.problem]
        return f"nullif(concat_ws('; ', {', '.join(said)}), '')" if said else None

    def sums(self, span: Span) -> str:
        """Add up the rows of each partition: number, rows, two sums over parts of their digests, unreadable rows.

        The digest is of all columns of the spec; those that the database lacks are NULL, as they are in the table.
        """
        known = self._values()
        of_row = digest([known.get(name, _LACKING) for name in self.spec.columns])
        lanes = ", ".join(
            f"coalesce(sum(('x' || substr(digest, {start}, 15))::bit(60)::bigint), 0)::text" for start in (1, 17)
        )
        each = (
            f"SELECT {self._number(span.begins)} AS home, {of_row} AS digest, {self._problems() or 'NULL::text'} "
            f"AS problem FROM {table_name(self.source)} WHERE {self._where((span.begins[0], span.end))}"
        )
        return f"SELECT home, count(*), {lanes}, count(problem) FROM ({each}) each_row GROUP BY 1"

    def rows(self, begins: Sequence[Bound]) -> str:
        """Return the query, in brackets and with a name, of which stretches are read by `stretch`.

        Its columns are `c0`, `c1` and so on for the spec's columns that the database has; `home`, the number of the
        partition; `problem`, `digest`, and `moment`, the snapshot in which the row was read; `at` and `place` for
        conditions.
        """
        values = self._values()
        sent = ", ".join(f"{value.sql} AS c{number}" for number, value in enumerate(values.values()))
        return (
            f"(SELECT {sent}, {self._number(begins)} AS home, {self._problems() or 'NULL::text'} AS problem, "
            f"{digest(list(values.values()))} AS digest, pg_current_snapshot()::text AS moment, "
            f"{self._raw_event_time()}, ctid AS place FROM {table_name(self.source)}) rows_of_it"
        )

    def _raw_event_time(self) -> str:
        return f"{identifier(self.spec.event_time)} AS at_local, {when(self.spec, self.source, self._event_time)} AS at"

    def places(self, span: Stretch, pieces: int) -> str:
        """Ask where to cut the rows of a stretch into so many pieces of the same size: the last place of each.

        Places do not change as long as a snapshot is open: whatever moves rows waits for its lock of the table.
        """
        shares = ", ".join(f"{piece / pieces:.9f}" for piece in range(1, pieces))
        return (
            f"SELECT (percentile_disc(ARRAY[{shares}]::float8[]) WITHIN GROUP (ORDER BY ctid))::text[] "
            f"FROM {table_name(self.source)} WHERE {self._within(span)}"
        )

    def _within(self, span: Stretch) -> str:
        return self._where((span.start, span.end)) + _between(span, "ctid")

    def stretch(self, span: Stretch) -> str:
        """Return the condition for a stretch of `rows`."""
        start, end = map(bound_literal, span[:2])
        exact = f"at >= {start} AND at < {end}" + _between(span, "place")
        if self._event_time.base != "timestamp":
            return exact
        zone = text_literal(self.source.timestamps_without_zone or "UTC")
        return (
            f"at_local >= ({start} AT TIME ZONE {zone}) - interval '1 day' AND "
            f"at_local < ({end} AT TIME ZONE {zone}) + interval '1 day' AND {exact}"
        )


def _between(span: Stretch, place: str) -> str:
    """Return the condition for the places of a stretch, to be added to others."""
    ends = ((">", span.after), ("<=", span.until))
    return "".join(f" AND {place} {than} {text_literal(end)}::tid" for than, end in ends if end)
