"""What a database must have, and keep, for its changes to be captured whole: tables, whole rows, a publication."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from backfill_assets.core.postgres import questions
from backfill_assets.core.schema.postgres import shared_keys
from backfill_assets.errors import ChangeFeedError
from backfill_assets.live.changes.landed import CaptureTable, note_as_a_whole, noted_beside
from backfill_assets.sources.database.connection import Database

if TYPE_CHECKING:
    import psycopg

_NOTHING_TAKEN = "What was captured before has landed; nothing after it has been taken from the server."
_ANEW = (
    "drop the slot and the publication, move the files away, start the capture again, and launch all partitions again"
)


MEMBERS = "members.json"
"""File beside a feed's that says as which member of the publication the files have each table's changes."""

_BY_TABLE = TypeAdapter(dict[str, str])


@dataclass(frozen=True, slots=True)
class Publication:
    """The publication of a capture.

    Args:
        name: The slot has the same.
        folder: Of the files.
    """

    name: str
    database: Database
    tables: Sequence[CaptureTable]
    folder: Path
    log: Callable[[str], None]

    def prepare(
        self, connection: psycopg.Connection, noted: Collection[str] | None, *, has_begun: bool
    ) -> Mapping[int, CaptureTable]:
        """Make it if it is not there; return its tables by their numbers in the catalog.

        Args:
            noted: The tables that the capture had so far; None if that is not known. Another one is added.
            has_begun: Whether there is a slot, or a file: then it must be there, and have been whole since.

        Raises:
            ChangeFeedError: Changes would not come whole, or some may have been lost already.
        """
        numbers = self.tables_by_number(connection)
        members = self._members(connection)
        lacking = [table for table in self.tables if str(table) not in members]
        if not self.database.ask(connection, questions.PUBLICATION, (self.name,)):
            if has_begun:
                raise self._lost(f"the publication `{self.name}` is gone")
            statement = questions.create_publication(self.name, [(t.schema, t.name) for t in self.tables])
            self.database.run(connection, statement)
            self.log(f"The publication `{self.name}` was made, of {', '.join(map(str, self.tables))}.")
        elif lacking:
            lost = [table for table in lacking if noted is None or str(table) in noted]
            if has_begun and lost:
                raise self._lost(f"{', '.join(f'`{t}`' for t in lost)} is not in the publication `{self.name}`")
            statement = questions.add_to_publication(self.name, [(t.schema, t.name) for t in lacking])
            self.database.run(connection, statement)
        if self.database.ask(connection, questions.PUBLISHES_LESS, ([*numbers], self.name))[0][0]:
            raise self._lost(f"the publication `{self.name}` leaves out operations, rows or columns")
        if has_begun:
            self._refuse_other_members(members, [table for table in self.tables if str(table) in (noted or ())])
        self._note(self._members(connection))
        return numbers

    def refuse_changes(self, connection: psycopg.Connection, numbers: Mapping[int, CaptureTable]) -> None:
        """Raise if a table is another one than it was, or the publication leaves something out by now."""
        for number, table in numbers.items():
            found = self.database.ask(connection, questions.CAPTURED, (table.schema, table.name))
            if not found or found[0][0] != number:
                raise self._lost(f"`{table}` is not the table any more that it was: it was renamed, or made again")
            for what, remedy in _problems(table, found[0]):
                raise ChangeFeedError(f"`{table}`: {what}.", state=_NOTHING_TAKEN, remedy=f"{remedy} Then {_ANEW}.")
        less = self.database.ask(connection, questions.PUBLISHES_LESS, ([*numbers], self.name))
        if not less or less[0][0]:
            raise self._lost(f"the publication `{self.name}` is gone, or leaves out operations, rows or columns")
        members = self._members(connection)
        self._refuse_other_members(members, self.tables)
        if members != self._noted_members():
            self._note(members)

    def _members(self, connection: psycopg.Connection) -> dict[str, str]:
        """Return the names of each captured table's memberships, by table; those that are no member are left out.

        The publication itself is among them, by no name: whoever alters what it publishes makes another one of it.
        """
        known, query = {"", *map(str, self.tables)}, questions.members(connection.info.server_version)
        found = {
            str(CaptureTable(schema, name)): member
            for schema, name, member in self.database.ask(connection, query, (self.name,))
        }
        found.update(("", by) for (by,) in self.database.ask(connection, questions.PUBLICATION, (self.name,)))
        return {table: member for table, member in found.items() if table in known}

    def _noted_members(self) -> dict[str, str]:
        return noted_beside(self.folder, MEMBERS, _BY_TABLE) or {}  # a capture may have begun before it was noted

    def _note(self, members: Mapping[str, str]) -> None:
        note_as_a_whole(self.folder, MEMBERS, json.dumps(members, indent=2))

    def _refuse_other_members(self, members: Mapping[str, str], tables: Sequence[CaptureTable]) -> None:
        """Raise if a table is no member of the publication, or is one anew: what it had meanwhile was not published.

        One that is a member in several ways was published all the time if it still is in one of them.
        """
        noted = self._noted_members()
        if (defined := noted.get("")) and members.get("") != defined:
            raise self._lost(f"the publication `{self.name}` was altered, and may have left out operations for a while")
        known = [table for table in map(str, tables) if table in noted]
        if lost := [table for table in known if not {*noted[table].split()} & {*members.get(table, "").split()}]:
            raise self._lost(
                f"{', '.join(f'`{t}`' for t in lost)} has left the publication `{self.name}`, if only for a "
                "while, or was made again"
            )

    def tables_by_number(self, connection: psycopg.Connection) -> dict[int, CaptureTable]:
        """Return the tables by their numbers in the catalog.

        Raises:
            ChangeFeedError: One is not there, or its changes would not come whole.
        """
        found: dict[int, CaptureTable] = {}
        for table in self.tables:
            rows = self.database.ask(connection, questions.CAPTURED, (table.schema, table.name))
            for what, remedy in _problems(table, rows[0] if rows else None):
                raise ChangeFeedError(f"`{table}`: {what}.", state="Nothing was taken from the server.", remedy=remedy)
            found[rows[0][0]] = table
        return found

    def _lost(self, what: str) -> ChangeFeedError:
        return ChangeFeedError(
            f"The capture of `{self.name}`: {what}. Changes since then may be lost to the feed.",
            state=_NOTHING_TAKEN,
            remedy=f"To be sure, {_ANEW}.",
        )


def _problems(
    table: CaptureTable, found: tuple[int, str, bool, bool, list[list[str | None]]] | None
) -> Iterator[tuple[str, str]]:
    """Say why a table cannot be captured, and what to do."""
    if found is None:
        yield "there is no such table in the database", "Correct `source.table`."
        return
    _, identity, has_parts, has_generated, unique = found
    if has_parts:
        yield (
            "it is in parts, or a part of another one, and changes would come under the parts' names",
            "Capture tables that are not partitioned, and launch this one without `changes`.",
        )
    if has_generated:
        yield (
            "it has generated columns: with whole rows in its changes, PostgreSQL would refuse every update of it",
            "Make them ordinary columns, or launch this table without `changes`.",
        )
    if identity != "f":
        yield (
            "its changes would come without the row from before them, and without large values that did not change",
            f"`ALTER TABLE {table.typed} REPLICA IDENTITY FULL;`, once, by its owner.",
        )
    yield from filter(None, (shared_keys(key, table.typed, unique) for key in sorted(table.keys)))
