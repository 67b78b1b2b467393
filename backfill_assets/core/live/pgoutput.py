"""What PostgreSQL's own plugin `pgoutput` says of a change, from bytes to values. Pure.

Source: PostgreSQL's documentation, "Logical Replication Message Formats", protocol version 1.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from backfill_assets.errors import ChangeFeedError

Row = Mapping[str, str | None]
"""Values by column, as text; a column whose value did not change and is not sent is missing."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins; all of its changes follow, up to its commit.

    Args:
        commit: Position of its commit in the log.
        micros: When it was committed, since 1970.
    """

    xid: int
    commit: int
    micros: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction ends.

    Args:
        end: Position of the log behind it.
    """

    end: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table, as it is from now on.

    Args:
        is_full: Whether changes come with the whole row from before them.
    """

    oid: int
    schema: str
    name: str
    columns: tuple[str, ...]
    is_full: bool


@dataclass(frozen=True, slots=True)
class Change:
    """A row is inserted (`c`), updated (`u`) or deleted (`d`)."""

    op: Literal["c", "u", "d"]
    relation: Relation
    before: Row | None
    after: Row | None


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables are emptied."""

    relations: tuple[Relation, ...]


Message = Begin | Commit | Relation | Change | Truncate

_SINCE_2000 = 946_684_800_000_000
"""Microseconds from 1970 to 2000, from when PostgreSQL counts."""


class Decoder:
    """Decodes the messages of one session; it remembers the tables that it was told of."""

    def __init__(self) -> None:
        self._relations: dict[int, Relation] = {}

    def decode(self, message: bytes) -> Message | None:
        """Return what a message says; None if it is of no concern: an origin, a type, a message of an application.

        Raises:
            ChangeFeedError: It cannot be decoded.
        """
        reader = _Reader(message)
        try:
            match kind := reader.char():
                case "B":
                    commit, micros = reader.unsigned(8), reader.signed(8) + _SINCE_2000
                    return Begin(reader.unsigned(4), commit, micros)
                case "C":
                    reader.skip(9)
                    return Commit(reader.unsigned(8))
                case "R":
                    return self._relation(reader)
                case "I" | "U" | "D":
                    return self._change(kind, reader)
                case "T":
                    count = reader.unsigned(4)
                    reader.skip(1)
                    return Truncate(tuple(self._relations[reader.unsigned(4)] for _ in range(count)))
                case "O" | "Y" | "M":
                    return None
                case _:
                    raise ValueError(f"kind `{kind}`")
        except (struct.error, ValueError, KeyError, IndexError, UnicodeDecodeError) as error:
            raise ChangeFeedError(
                f"A message of the change feed cannot be decoded: {error}.",
                state="What was captured before has landed; nothing after it has been taken from the server.",
                remedy="This version reads version 1 of `pgoutput`'s protocol. Tell its makers what the server is.",
            ) from error

    def _relation(self, reader: _Reader) -> Relation:
        oid, schema, name, identity = reader.unsigned(4), reader.text(), reader.text(), reader.char()
        columns: list[str] = []
        for _ in range(reader.unsigned(2)):
            reader.skip(1)
            columns.append(reader.text())
            reader.skip(8)
        relation = Relation(oid, schema or "pg_catalog", name, tuple(columns), identity == "f")
        self._relations[oid] = relation
        return relation

    def _change(self, kind: str, reader: _Reader) -> Change:
        relation = self._relations[reader.unsigned(4)]
        before: Row | None = None
        part = first = reader.char()
        if part in "KO":
            before = reader.row(relation.columns)
            if kind == "D":
                return Change("d", relation, before, None)
            part = reader.char()
        if part != "N":
            raise ValueError(f"a row of kind `{part}`")
        after = reader.row(relation.columns)
        if before is not None and first == "O":  # a large value that did not change is not sent again
            after = {name: after.get(name, before.get(name)) for name in relation.columns}
        return Change("c" if kind == "I" else "u", relation, before, after)


class _Reader:
    """Reads the parts of one message, one after the other."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._at = 0

    def skip(self, count: int) -> None:
        self._at += count

    def _take(self, count: int) -> bytes:
        taken = self._message[self._at : self._at + count]
        if len(taken) < count:
            raise ValueError(f"{count} bytes are expected, and {len(taken)} are left")
        self._at += count
        return taken

    def char(self) -> str:
        return self._take(1).decode("ascii")

    def unsigned(self, count: int) -> int:
        return int.from_bytes(self._take(count), "big")

    def signed(self, count: int) -> int:
        return int.from_bytes(self._take(count), "big", signed=True)

    def text(self) -> str:
        end = self._message.index(0, self._at)
        taken = self._message[self._at : end].decode()
        self._at = end + 1
        return taken

    def row(self, columns: tuple[str, ...]) -> dict[str, str | None]:
        count = self.unsigned(2)
        if count != len(columns):
            raise ValueError(f"a row of {count} values, of a table with {len(columns)} columns")
        found: dict[str, str | None] = {}
        for name in columns:
            match kind := self.char():
                case "n":
                    found[name] = None
                case "t":
                    found[name] = self._take(self.unsigned(4)).decode()
                case "u":
                    continue
                case _:
                    raise ValueError(f"a value of kind `{kind}`")
        return found
