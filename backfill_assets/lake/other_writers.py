"""What others than us did to a table, as far as its log and its rows say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.live.receipts import MARK as LIVE_MARK
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.receipts import MARK, PublishedPartition, marked_body
from backfill_assets.table.log import CommitInfo, TableLog


def outside_grid(spec: TableSpec, now_utc: datetime) -> Callable[[str], bool]:
    """Return what says of a value of the partition column whether it is no partition of the table.

    A partition that has not begun yet is none, unless a stream or a change feed fills the table.
    """
    is_streamed = spec.live or spec.changes or spec.source.is_of_version
    has_begun = not is_streamed and now_utc >= spec.grid.start_utc
    last = str(spec.grid.partition_of(now_utc).value) if has_begun else None
    return lambda value: not spec.grid.is_key(spec.grid.key_of(value)) or (last is not None and value > last)


def written_by_others(
    spec: TableSpec,
    log: TableLog,
    published: Mapping[str, PublishedPartition],
    rows_now: Callable[[Sequence[Partition]], Mapping[str, int | None]],
) -> dict[str, int]:
    """Return the newest version by which somebody else wrote each partition after its receipt, by key.

    Where the log does not say in which partition a removed file lay, it may have been any. Of commits that it has
    forgotten only the number of rows tells: then it is the newest version that may have been it.

    Args:
        rows_now: Counts the rows of partitions, by key, in the version that is looked at.
    """
    since = min((receipt.version for receipt in published.values()), default=None)
    if since is None:
        return {}
    infos = log.infos(since)
    versions, oldest = _without_our_mark(infos), min(infos, default=since + 1)
    unknown = {key: known for key, known in published.items() if known.version + 1 < oldest}
    found = dict.fromkeys(_with_other_counts(spec, unknown, rows_now), oldest - 1)
    for commit in log.commits(versions, spec.partition_column):
        keys = {spec.grid.key_of(value) for value in commit.touched}
        concerned = published if commit.touched_anything else keys & published.keys()
        found |= {key: commit.version for key in concerned if commit.version > published[key].version}
    return found


def _with_other_counts(
    spec: TableSpec,
    published: Mapping[str, PublishedPartition],
    rows_now: Callable[[Sequence[Partition]], Mapping[str, int | None]],
) -> list[str]:
    """Return the keys of partitions that have another number of rows than their receipts say."""
    partitions = spec.grid.from_start(filter(spec.grid.is_key, published))
    now = rows_now(partitions) if partitions else {}
    return [p.key for p in partitions if now.get(p.key, 0) != published[p.key].partition.rows]


def _without_our_mark(infos: Mapping[int, CommitInfo]) -> list[int]:
    """Return the versions whose commits carry nothing of ours, in order."""
    return [
        version
        for version, one in sorted(infos.items())
        if marked_body(one.user_metadata, MARK) is None and marked_body(one.user_metadata, LIVE_MARK) is None
    ]
