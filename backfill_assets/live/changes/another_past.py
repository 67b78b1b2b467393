"""Whether a server tells of the past what has landed of it: one that was put back from a copy has another one.

Its slot is behind the files then, as after a crash. Its log ends before them at first; once it has written more than it
lost, only what the log says tells that it is another one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from backfill_assets.core.live.feed import FeedFile
from backfill_assets.core.live.pgoutput import Begin, Change, Commit, Decoder, Truncate
from backfill_assets.live.changes.joining import noted_tables
from backfill_assets.live.changes.landed import CaptureTable, tables_of

_LOWER_HALF = 0xFFFFFFFF

Identity = tuple[int, int]
"""What a transaction is known by: the lower half of its id, and when it was committed, in microseconds since 1970."""


def is_another_past(
    folder: Path,
    files: Sequence[FeedFile],
    confirmed: int,
    messages: Iterable[tuple[str, bytes]],
    tables: Mapping[int, CaptureTable],
) -> bool:
    """Say whether a server lacks the transaction that landed last, or has changes where none landed.

    Args:
        files: Those in the folder, one behind the other; the newest ends behind the slot.
        confirmed: Up to where the slot is.
        messages: What the slot has up to where the newest file ends.
        tables: Those that are captured, by their numbers in the catalog. What one that joined had before is told too.
    """
    behind = [file for file in files if file.end > confirmed]
    landed = _last_landed([folder / file.name for file in behind if not file.is_idle])
    noted = noted_tables(folder) or {}
    begins = {number: noted[str(table)] for number, table in tables.items() if str(table) in noted}
    decoder, told, at, has_changes = Decoder(), (0, 0), 0, False
    found: set[Identity] = set()
    for _, message in messages:
        match decoder.decode(message):
            case Begin(xid=xid, commit=commit, micros=micros):
                told, at, has_changes = (xid, micros), commit, False
            case Change() | Truncate() as change:
                has_changes |= any(begins.get(relation.oid, at + 1) <= at for relation in tables_of(change))
            case Commit(end=end) if behind[0].start < end <= behind[-1].end and (told == landed or has_changes):
                found.add(told)
            case _:
                continue
    return landed not in found if landed else bool(found)


def _last_landed(filled: Sequence[Path]) -> Identity | None:
    """Return the newest transaction in files with changes; None if there is no such file."""
    last = ""
    for path in filled[-1:]:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                last = line
    if not last:
        return None
    source = json.loads(last)["source"]
    return int(source["txId"]) & _LOWER_HALF, int(source["ts_us"])
