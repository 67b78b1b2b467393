"""A change feed: Debezium's events, in files named after the part of the database's log that they hold. Pure.

A file `0000000001AF61B0-0000000001B00348.jsonl` holds every event of the transactions that ended after the first
position and not after the second. Each file begins where the one before it ended; so the names alone say whether one is
missing, and how far the feed has come.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from backfill_assets.core.live.pgoutput import Change, Relation, Truncate
from backfill_assets.core.postgres_names import as_typed
from backfill_assets.errors import ChangeFeedError

CONNECTOR = "backfill_assets"
"""What `source.connector` says in the events of `backfill-assets capture`: their ids of transactions are whole, and
their values are PostgreSQL's own texts. Of others' events neither is sure."""

_UNAVAILABLE = "__debezium_unavailable_value"
_PLACEHOLDER = _UNAVAILABLE.encode()
UNAVAILABLE = (
    _UNAVAILABLE,
    base64.b64encode(_PLACEHOLDER).decode(),
    _PLACEHOLDER.hex(),
    rf"\x{_PLACEHOLDER.hex()}",
    f'["{_UNAVAILABLE}"]',
    json.dumps(list(_PLACEHOLDER), separators=(",", ":")),
    f'{{"{_UNAVAILABLE}":"{_UNAVAILABLE}"}}',
)
"""What Debezium writes for a large value that did not change and that the database did not send again: as a text, as
bytes in each way that it writes those, as a list, as a map."""

_NAME = re.compile(r"([0-9A-F]{16})-([0-9A-F]{16})\.(jsonl|idle)")


@dataclass(frozen=True, slots=True, order=True)
class FeedFile:
    """One file of a feed.

    Args:
        start: Position of the log after which its transactions ended.
        end: Position up to which they did.
        is_idle: Whether it says that there was none: an empty file that is not called so has lost what it had.
    """

    start: int
    end: int
    is_idle: bool = False

    @property
    def name(self) -> str:
        return f"{self.start:016X}-{self.end:016X}.{'idle' if self.is_idle else 'jsonl'}"

    @classmethod
    def named(cls, name: str) -> FeedFile | None:
        """Return the file of a name; None if it is no feed's."""
        found = _NAME.fullmatch(name)
        return cls(int(found[1], 16), int(found[2], 16), found[3] == "idle") if found else None


def follow_on(files: Iterable[FeedFile], position: int | None, about: str) -> list[FeedFile]:
    """Return the files that follow a position, in order.

    Args:
        position: Up to where the feed was read; None: from the beginning.
        about: Whose feed it is, for messages.

    Raises:
        ChangeFeedError: A file is missing in between.
    """
    found: list[FeedFile] = []
    for file in sorted(files):
        if position is not None and file.end <= position:
            continue
        if position is not None and file.start > position:
            raise hole(about, position, file.start)
        found.append(file)
        position = file.end
    return found


def is_of_another_log(files: Collection[FeedFile], position: int) -> bool:
    """Say whether files cannot be those that were read up to a position: all end before it, or one has it inside.

    An empty file alone may have it inside: it got a new name since. Where no file is left, nothing is known.

    | files           | position | of another log |
    |-----------------|----------|----------------|
    | none            | 20       | no             |
    | 10-20           | 20       | no             |
    | 10-20, 20-30    | 20       | no             |
    | 10-20, 20-30    | 10       | no             |
    | 30-40           | 20       | no             |
    | 10-30 empty     | 20       | no             |
    | 10-30           | 20       | yes            |
    | 5-10, 10-15     | 20       | yes            |
    | 5-10 empty      | 20       | yes            |

    Args:
        position: Where a file ended, or an empty one.
    """
    inside = any(file.start < position < file.end and not file.is_idle for file in files)
    return inside or (bool(files) and max(file.end for file in files) < position)


def hole(about: str, position: int, start: int) -> ChangeFeedError:
    """Return the error that what lies between two positions is in no file of a feed."""
    return ChangeFeedError(
        f"{about}: the files of the feed have a hole: what ended after `{as_lsn(position)}` and not after "
        f"`{as_lsn(start)}` is in none of them.",
        state="Nothing after the hole was read.",
        remedy="Bring the missing file back. If it is gone, continue behind the hole with `backfill-assets "
        "live KEY --new-stream`, and launch all partitions again: each is then of a snapshot that has what was "
        "lost.",
        position=position,
    )


def as_lsn(position: int) -> str:
    """Write a position as PostgreSQL does: `0/1AF61B0`."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def from_lsn(text: str) -> int:
    """Read a position as PostgreSQL writes it."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction of the database's log.

    Args:
        xid: Its 64-bit id.
        after: Position of the log up to which everything had ended before it.
        commit: Position of its commit.
        micros: When that was, since 1970.
    """

    xid: int
    after: int
    commit: int
    micros: int


def envelope(
    change: Change | Truncate, relation: Relation, of: Transaction, place: tuple[int, int, int], database: str
) -> str:
    """Write a change of a table as Debezium does, as one line; values are texts.

    Args:
        place: Its own position in the log, and its numbers from 1: in the transaction, and of the table's in it.

    Raises:
        ChangeFeedError: It comes without the row from before it.
    """
    lsn, number, number_in_table = place
    before, after, op = None, None, "t"
    if isinstance(change, Change):
        before, after, op = change.before, change.after, change.op
        if op != "c" and not relation.is_full:
            raise _not_full(relation)
    said: dict[str, Any] = {
        "op": op,
        "before": before,
        "after": after,
        "source": {
            "connector": CONNECTOR,
            "db": database,
            "schema": relation.schema,
            "table": relation.name,
            "txId": of.xid,
            "lsn": lsn,
            "sequence": f'["{of.after}","{lsn}"]',
            "ts_ms": of.micros // 1000,
            "ts_us": of.micros,
        },
        "transaction": {
            "id": f"{of.xid}:{of.commit}",
            "total_order": number,
            "data_collection_order": number_in_table,
        },
        "ts_ms": of.micros // 1000,
    }
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"))


def _not_full(relation: Relation) -> ChangeFeedError:
    name, typed = f"{relation.schema}.{relation.name}", as_typed(relation.schema, relation.name)
    return ChangeFeedError(
        f"`{name}`: its changes come without the row from before them.",
        state="What was captured before has landed; this transaction and all after it wait at the server.",
        remedy=f"`ALTER TABLE {typed} REPLICA IDENTITY FULL;` holds for changes from then on. Then drop the slot, "
        "start the capture again, and launch all partitions again.",
    )
