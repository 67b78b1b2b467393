"""What PostgreSQL cannot read of a table, found by asking it again: which partitions, and a row and its columns.

Its driver for Java says only that a query failed. One broken row would end the read of every partition beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from backfill_assets.core.calendar.partitions import Partition, runs_of
from backfill_assets.core.history.audit import AuditRule, Finding
from backfill_assets.core.postgres import sql
from backfill_assets.core.postgres.queries import TableQueries
from backfill_assets.errors import SourceRefusedError

Ask = Callable[[str], list[tuple[Any, ...]]]
"""Asks a server a query. A query that fails must not end the next one, so a transaction needs a savepoint."""

_ROWS_NAMED = 10
"""So many partitions at most have a broken row named: each takes some twenty reads of its partition."""

_OF_THE_TABLE = "42"
"""The class of SQLSTATEs of statements that are not allowed, or name what is not there: no partition can be read."""


@dataclass(slots=True)
class ByPartition:
    """Asks about partitions all at once, and about ever fewer where the server cannot answer.

    Args:
        findings: Why partitions cannot be read, by key: those for which the server refuses every query.
    """

    queries: TableQueries
    ask: Ask
    findings: dict[str, Finding] = field(default_factory=dict[str, Finding])

    def answers(
        self, query: Callable[[sql.Span], str], partitions: Sequence[Partition]
    ) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield what a query says of each partition that it has a row of, by key.

        Raises:
            SourceRefusedError: The query is refused whatever rows there are.
        """
        for run in runs_of(sorted(partitions)):
            (span,) = sql.spans(self.queries.spec, run)
            try:
                found = self.ask(query(span))
            except SourceRefusedError as error:
                if str(error.facts["sqlstate"]).startswith(_OF_THE_TABLE):
                    raise
                if len(run) > 1:
                    middle = len(run) // 2
                    yield from self.answers(query, run[:middle])
                    yield from self.answers(query, run[middle:])
                else:
                    self.findings[run[0].key] = self._finding(run[0], error)
            else:
                yield from ((run[number - 1].key, tuple(rest)) for number, *rest in found)

    def _finding(self, partition: Partition, error: SourceRefusedError) -> Finding:
        named = ""
        if len(self.findings) < _ROWS_NAMED and (row := self._first_broken_row(partition)):
            named = f" The first such row: {self._name(row)}."
        what = f"PostgreSQL cannot read every row (SQLSTATE {error.facts['sqlstate']}): {error.facts['said']}.{named}"
        return Finding(AuditRule.VALUES_FIT_THEIR_TYPES, 0, what)

    def _first_broken_row(self, partition: Partition) -> sql.Stretch | None:
        """Return where the first row lies that cannot be read; None if none fails by itself, as in a broken index."""
        spec = self.queries.spec
        found = sql.Stretch(sql.begin_of(spec, partition), sql.end_of(spec, partition))
        while True:
            places = self._answer(self.queries.places(found, 2))
            if not places or not places[0][0]:
                return None
            first_half = found._replace(until=places[0][0][0])
            if self._answer(self.queries.digests(first_half)) is None:
                if first_half == found:
                    return found
                found = first_half
            elif first_half == found:
                return None
            else:
                found = sql.Stretch(found.start, found.end, first_half.until, found.until)

    def _name(self, row: sql.Stretch) -> str:
        """Name a row by its key, or by its place if the key cannot be read, and the columns that cannot."""
        columns = [name for name in self.queries.read if self._answer(self.queries.digests(row, name)) is None]
        keys = self._answer(self.queries.keys(row))
        named = keys[0][0] if keys and keys[0][0] else f"ctid={row.until}"
        return f"{named}, in {', '.join(f'`{name}`' for name in columns)}" if columns else named

    def _answer(self, query: str) -> list[tuple[Any, ...]] | None:
        """Return what a query says; None if the server cannot say it."""
        try:
            return self.ask(query)
        except SourceRefusedError:
            return None
