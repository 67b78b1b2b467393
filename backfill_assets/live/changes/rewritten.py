"""Tables whose rows have got other values, of which no change tells: PostgreSQL sends none for an `ALTER TABLE`.

Another type writes all rows anew, with whatever `USING` makes of them; a column that is dropped and added again has its
default in every row; two that are renamed have each other's values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_assets.core.postgres import questions
from backfill_assets.live.changes.landed import CaptureTable, note_as_a_whole
from backfill_assets.sources.database.connection import Database

if TYPE_CHECKING:
    import psycopg

STORED = "stored.json"
"""File beside a feed's that says how the database kept each table's rows when they were last looked at."""


@dataclass(frozen=True, slots=True)
class Stored:
    """How a database keeps a table's rows.

    Args:
        file: Number of the file that they are in: it is another one when all of them were written anew.
        columns: By name: the number of the column, and how it was defined. Noted are also those that are gone: one that
            is called so again is another one, however long that was apart.
    """

    file: str
    columns: dict[str, tuple[int, str]]

    def may_have_other_values(self, before: Stored) -> bool:
        """Say whether rows that no change told of may have other values than they had before.

        | since                                        | file  | columns                   | other values |
        |----------------------------------------------|-------|---------------------------|--------------|
        | `ALTER COLUMN n TYPE ... USING ...`          | other | `n` was defined anew      | yes          |
        | `DROP COLUMN n`, and ever since `ADD COLUMN` | same  | `n` has another number    | yes          |
        | `VACUUM FULL`, `CLUSTER`, `TRUNCATE`         | other | same                      | no           |
        | `ALTER COLUMN n TYPE varchar(9)`, once of 5  | same  | `n` was defined anew      | no           |
        | `ADD COLUMN`, `DROP COLUMN`, `RENAME COLUMN` | same  | a name more, or less      | no           |
        """
        known = [(self.columns[name], defined) for name, defined in before.columns.items() if name in self.columns]
        is_written_anew = self.file != before.file and any(now != defined for now, defined in known)
        return is_written_anew or any(now[0] != defined[0] for now, defined in known)


def stored_now(
    connection: psycopg.Connection, database: Database, tables: Mapping[int, CaptureTable], noted: Mapping[str, Stored]
) -> dict[str, Stored]:
    """Return how a database keeps each table's rows now.

    Args:
        tables: By their numbers in the catalog.
        noted: As they were when they were last looked at; columns that are gone stay as they were then.
    """
    found: dict[str, Stored] = {}
    for number, file, name, place, defined in database.ask(connection, questions.STORED, ([*tables],)):
        table = str(tables[number])
        before = noted[table].columns if table in noted else {}
        found.setdefault(table, Stored(file, {**before})).columns[name] = (place, defined)
    return found


def noted_stored(folder: Path) -> dict[str, Stored]:
    """Return how each table was stored when that was noted last."""
    try:
        noted = json.loads((folder / STORED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return {
        table: Stored(file, {name: (number, defined) for name, (number, defined) in columns.items()})
        for table, (file, columns) in noted.items()
    }


def note_stored(folder: Path, tables: Mapping[str, Stored]) -> None:
    """Note how tables are stored."""
    as_json = {table: (stored.file, stored.columns) for table, stored in tables.items()}
    note_as_a_whole(folder, STORED, json.dumps(as_json, indent=2))
