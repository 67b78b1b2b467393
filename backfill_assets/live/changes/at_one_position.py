"""Two versions of a table that follow the same changes, read as both are at one position of the database's log.

Each is refreshed in its own turn, so they have never come equally far, and a row that changes all the time is never the
same in both. So each must have every change that had landed when it began to be waited for; what it has not of the few
that have landed since is folded into its rows as they are read, by the same fold that a refresh does.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeGuard

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.ports import Source
from backfill_assets.core.live.feed import as_lsn
from backfill_assets.core.sql import replace_where
from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.lake.table import LakeTable
from backfill_assets.live.changes.source import ChangedSource
from backfill_assets.live.changes.table import Reach
from backfill_assets.spark.expressions import column, kept_columns

_LOOK_AGAIN_SECONDS = 1.0


def follow_the_same(sources: Sequence[Source[DataFrame]]) -> TypeGuard[Sequence[ChangedSource]]:
    """Say whether tables follow the same table of the same database, by the same capture, which has begun."""
    fed = [of for of in sources if isinstance(of, ChangedSource)]
    followed = {(of.feed.capture, of.reader.source.schema_and_name) for of in fed}
    return len(fed) == len(sources) and len(followed) == 1 and all(of.reader.reach() is not None for of in fed)


@dataclass(slots=True)
class AtOnePosition:
    """Reads versions of tables as they are at one position of what they all follow.

    A partition that does not come up to where the feed is now within the time that is waited is read as it is; so is
    one that nothing is folded into, since somebody else wrote it, it was put back, or another feed brought it.

    Args:
        sources: Of which `follow_the_same` is true.
        log: Called with one sentence if there is something to wait for.
    """

    sources: Sequence[ChangedSource]
    log: Callable[[str], None] = field(default=lambda _: None)
    _lagging: dict[str, set[str]] = field(default_factory=dict[str, set[str]], init=False)
    _frames: dict[tuple[str, int], DataFrame] = field(default_factory=dict[tuple[str, int], DataFrame], init=False)
    _position: int | None = field(default=None, init=False)

    def wait(self, seconds: float, sleep: Callable[[float], None] = time.sleep) -> bool:
        """Return when every table has what has landed by now, or the time is over; say whether they all have.

        Whatever was folded in while they were read has landed by now. So where they all have, it is in them.
        """
        self._frames.clear()
        self._position, until = None, time.monotonic() + seconds
        reaches = [_reach_of(source) for source in self.sources]
        for source, reach in zip(self.sources, reaches, strict=True):
            is_said = False
            while (behind := source.behind(reach, source.lake.published())) and time.monotonic() < until:
                if not is_said:
                    self.log(f"Waiting until `{source.spec.key}` has come up to `{as_lsn(reach.position)}`.")
                    is_said = True
                sleep(_LOOK_AGAIN_SECONDS)
            self._lagging[source.spec.key] = {partition.key for partition in behind}
        return not any(self._lagging.values())

    def read(self, table: LakeTable, version: int) -> DataFrame:
        """Return a table's rows at a version of its log, with the changes up to the position that it lacks.

        What is compared has to be chosen before any of it is read: the position is that of the feed by then.
        """
        key = table.spec.key
        if (key, version) not in self._frames:
            (source,) = (one for one in self.sources if one.spec.key == key)
            reach = _reach_of(source)
            self._position = reach.position if self._position is None else self._position
            reach = replace(reach, position=self._position)
            published = source.lake.published(until=version)
            behind = source.behind(reach, published)
            lacking = [partition for partition in behind if partition.key not in self._lagging[key]]
            self._frames[key, version] = _with_changes(source, lacking, reach, version, published)
        return self._frames[key, version]

    def not_followed(self, until: datetime | None = None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return, for each of two tables, the partitions that no change comes into, of time in which the other follows.

        Their rows may be the same today. Whoever reads that table tomorrow would lack what has changed by then.

        Args:
            until: Only of the time before it.
        """
        before, new = (_followed(source) for source in self.sources)
        return _left_behind(before, new, until), _left_behind(new, before, until)


def _reach_of(source: ChangedSource) -> Reach:
    reach = source.reader.reach()
    assert reach is not None, "`follow_the_same` has seen it, and a feed does not go back"  # noqa: S101 (for the types)
    return reach


def _left_behind(
    own: Mapping[Partition, bool], others: Mapping[Partition, bool], until: datetime | None
) -> tuple[str, ...]:
    windows = [partition.window for partition in sorted(others) if others[partition]]  # one after the other
    ends = [window.end_utc for window in windows]
    found: list[str] = []
    for partition in sorted(p for p, is_followed in own.items() if not is_followed):
        window = partition.window
        at = bisect_right(ends, window.start_utc)
        if at < len(ends) and windows[at].start_utc < window.end_utc and (until is None or window.start_utc < until):
            found.append(partition.key)
    return tuple(found)


def _followed(source: ChangedSource) -> dict[Partition, bool]:
    """Return each partition up to now, and whether changes come into it, or will when it is launched by itself."""
    reach, published = _reach_of(source), source.lake.published()
    positions = source.refreshed_from(source.positions(published, reach), reach)
    every = source.spec.grid.until(source.now())
    foreign = source.lake.written_by_others({p.key: published[p.key] for p in every if p.key in published})
    undone, mode = source.lake.receipts.undone(), source.feed.backfill

    def comes(partition: Partition) -> bool:
        key, known = partition.key, published.get(partition.key)
        if key in positions:
            return key not in foreign
        if known is not None:  # with other columns it is read anew when anything in it changes
            is_ours = known.receipt.kind == "publish" and reach.brought(known.partition.fingerprint)
            return is_ours and key not in foreign and mode != "excluded"
        return key not in undone and (mode == "automatic" or partition.window.start_utc >= reach.began_at)

    return {partition: comes(partition) for partition in every}


def _with_changes(
    source: ChangedSource,
    partitions: Sequence[Partition],
    reach: Reach,
    version: int,
    published: Mapping[str, PublishedPartition],
) -> DataFrame:
    """Return a table's rows at a version of its log, of some partitions with the changes up to a position."""
    rows, kept_in = source.lake.read(version), source.spec.partition_column
    if not partitions:
        return rows
    folded = source.brought_up(partitions, reach, version, published, after=0)
    named = F.expr(replace_where(kept_in, partitions))
    others = rows.where(~F.coalesce(named, F.lit(False)))
    names = [column(name) for name in (*source.spec.columns, kept_in)]
    return others.select(*names).unionByName(folded.select(*kept_columns(source.spec)))
