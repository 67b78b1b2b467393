"""Tables whose rows have got other values, of which no change tells: PostgreSQL sends none for an `ALTER TABLE`.

Another type writes all rows anew, with whatever `USING` makes of them; a column that is dropped and added again has its
default in every row; two that are renamed have each other's values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from backfill_assets.core.postgres import questions
from backfill_assets.live.changes.landed import CaptureTable, note_as_a_whole, noted_beside
from backfill_assets.sources.database.connection import Database

if TYPE_CHECKING:
    import psycopg

STORED = "stored.json"
"""File beside a feed's that says how the database kept each table's rows when they were last looked at."""


_ONE_TEXT = frozenset({"text", "varchar"})
"""Types between which a column changes without its values changing, nor the file that they are in."""


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """How a database keeps a column.

    Args:
        number: Of the column: another one of the same name has another one.
        defined: What is another one when it was defined anew.
        is_filled: Whether rows that were there when it was added have a default that nobody wrote.
        type: Of a domain the one below it; empty if it was not noted.
        labels: Of an enum, by their numbers.
    """

    number: int
    defined: str
    is_filled: bool = False
    type: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])

    def has_other_values_than(self, before: StoredColumn) -> bool:
        """Say whether rows that nobody wrote have other values than in a column of the same name."""
        is_retyped = bool(before.type) and self.type != before.type and not {self.type, before.type} <= _ONE_TEXT
        is_called_otherwise = any(self.labels.get(number, label) != label for number, label in before.labels.items())
        return self.number != before.number or is_retyped or is_called_otherwise


@dataclass(frozen=True, slots=True)
class Stored:
    """How a database keeps a table's rows.

    Args:
        file: Number of the file that they are in: it is another one when all of them were written anew.
        columns: By name. Noted are also those that are gone: one that is called so again is another one, however long
            that was apart.
        gone: Names of columns that the table has no more.
        is_kept_logged: Whether the table is published by its own name: then the server refuses `SET UNLOGGED`, which
            keeps changes from the log until `SET LOGGED`.
        large: Number of the table that has its large values: another one after both. `0` if it can have none; empty if
            it was not noted.
    """

    file: str
    columns: dict[str, StoredColumn]
    gone: frozenset[str] = frozenset()
    is_kept_logged: bool = True
    large: str = ""

    def may_have_other_values(self, before: Stored, optional: Collection[str] = ()) -> bool:
        """Say whether rows that no change told of may have other values than they had before.

        | since                                        | file  | columns                   | other values |
        |----------------------------------------------|-------|---------------------------|--------------|
        | `ALTER COLUMN n TYPE ... USING ...`          | other | `n` was defined anew      | yes          |
        | `ALTER COLUMN n TYPE timestamp`, in UTC      | same  | `n` has another type      | yes          |
        | `ALTER TYPE ... RENAME VALUE`                | same  | a label is another one    | yes          |
        | `DROP COLUMN n`, and ever since `ADD COLUMN` | same  | `n` has another number    | yes          |
        | `VACUUM FULL`, `CLUSTER`, `TRUNCATE`         | other | same                      | no           |
        | `ALTER COLUMN n TYPE varchar(9)`, once of 5  | same  | `n` was defined anew      | no           |
        | `ADD COLUMN`, `DROP COLUMN`, `RENAME COLUMN` | same  | a name more, or less      | no           |
        | the same, of a column that is optional       | same  | a name less, or filled    | yes          |
        | `SET UNLOGGED`, `SET LOGGED`                 | other | same                      | yes          |

        Where the server would have refused the last, or large values are where they were, another file says nothing by
        itself.

        Args:
            optional: Columns that some table of the lakehouse has whether or not the database has them. Of any other
                one that comes, or is gone, no table has values, or the table is refused.
        """
        known = [(self.columns[name], column) for name, column in before.columns.items() if name in self.columns]
        is_written_anew = self.file != before.file and any(now.defined != then.defined for now, then in known)
        was_logged = (self.is_kept_logged and before.is_kept_logged) or self.large == before.large not in ("", "0")
        is_written_anew |= self.file != before.file and not was_logged
        is_another = any(now.has_other_values_than(then) for now, then in known)
        return is_written_anew or is_another or any(self._comes_or_goes(name, before) for name in optional)

    def _comes_or_goes(self, name: str, before: Stored) -> bool:
        """Say whether a column is gone since, or has come with values that nobody wrote."""
        was, is_there = (name in one.columns and name not in one.gone for one in (before, self))
        if was or not is_there:
            return was and not is_there
        column, renamed = self.columns[name], {column.number for column in before.columns.values()}
        return column.is_filled or column.number in renamed or self.file != before.file


def stored_now(
    connection: psycopg.Connection, database: Database, tables: Mapping[int, CaptureTable], noted: Mapping[str, Stored]
) -> dict[str, Stored]:
    """Return how a database keeps each table's rows now.

    Args:
        tables: By their numbers in the catalog.
        noted: As they were when they were last looked at; columns that are gone stay as they were then.
    """
    files, found = dict[str, tuple[str, bool, str]](), dict[str, dict[str, StoredColumn]]()
    for number, file, name, *column, is_kept_logged, large in database.ask(connection, questions.STORED, ([*tables],)):
        table = str(tables[number])
        files[table] = file, is_kept_logged, large
        found.setdefault(table, {})[name] = StoredColumn(*column)
    before = {table: noted[table].columns if table in noted else {} for table in found}
    return {
        table: Stored(
            files[table][0],
            {**before[table], **columns},
            frozenset(before[table].keys() - columns.keys()),
            is_kept_logged=files[table][1],
            large=files[table][2],
        )
        for table, columns in found.items()
    }


def noted_stored(folder: Path) -> dict[str, Stored]:
    """Return how each table was stored when that was noted last.

    Raises:
        ChangeFeedError: What was noted cannot be read.
    """
    return noted_beside(folder, STORED, _NOTED) or {}


def note_stored(folder: Path, tables: Mapping[str, Stored]) -> None:
    """Note how tables are stored."""
    note_as_a_whole(folder, STORED, _NOTED.dump_json(dict(tables), indent=2).decode())


_NOTED = TypeAdapter(dict[str, Stored])
