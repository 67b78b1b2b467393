"""Two versions of a table that follow a database, read as both are at one position of its log.

Each is refreshed in its own turn, so they have never come equally far, and a row that changes all the time is never the
same in both. So each must have every change that had landed when it began to be waited for; what it has not of the few
that have landed since is folded into its rows as they are read, by the same fold that a refresh does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.version_comparison import has_same_event_time
from backfill_assets.core.live.feed import as_lsn
from backfill_assets.core.sql import replace_where
from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.lake.table import LakeTable
from backfill_assets.live.changes.followed import followed, not_followed, readable
from backfill_assets.live.changes.lacking import had_by
from backfill_assets.live.changes.source import ChangedSource
from backfill_assets.live.changes.table import Reach
from backfill_assets.spark.expressions import column, kept_columns

_LOOK_AGAIN_SECONDS = 1.0


@dataclass(slots=True)
class AtOnePosition:
    """Reads two versions of a table as they are at one position of what both follow, if that is one feed.

    A partition that does not come up to where its feed is now within the time that is waited is read as it is; so is
    one that nothing is folded into, since somebody else wrote it, it was put back, or another feed brought it.

    Args:
        sources: Of the version before, and of the new one; each with a feed.
        log: Called with one sentence if there is something to wait for, or a feed cannot be read on.
    """

    sources: Sequence[ChangedSource]
    log: Callable[[str], None] = field(default=lambda _: None)
    _said: set[str] = field(default_factory=set[str], init=False)
    _lagging: dict[str, set[str]] = field(default_factory=dict[str, set[str]], init=False)
    _frames: dict[tuple[str, int], DataFrame] = field(default_factory=dict[tuple[str, int], DataFrame], init=False)
    _position: int | None = field(default=None, init=False)

    def is_one_feed(self) -> bool:
        """Say whether both follow the same table of the same database, by the same capture, and can be read on."""
        tables = {(of.feed.capture, of.reader.source.schema_and_name) for of in self.sources}
        return len(tables) == 1 and all(self._reach_of(source) is not None for source in self.sources)

    def wait(self, seconds: float, sleep: Callable[[float], None] = time.sleep) -> bool:
        """Return when each table has what has landed by now, or the time is over; say whether both have.

        Whatever was folded in while they were read has landed by now. So where they all have, it is in them. What did
        not come up the last time is not waited for again.
        """
        self._frames.clear()
        self._position, until = None, time.monotonic() + seconds
        reaches = [self._reach_of(source) for source in self.sources]
        for source, reach in zip(self.sources, reaches, strict=True):
            known, behind = self._lagging.get(source.spec.key, set[str]()), set[str]()
            while reach and (behind := _behind(source, reach)) - known and time.monotonic() < until:
                self._say(f"Waiting until `{source.spec.key}` has come up to `{as_lsn(reach.position)}`.")
                sleep(_LOOK_AGAIN_SECONDS)
            self._lagging[source.spec.key] = behind
        return not any(self._lagging.values())

    def read(self, table: LakeTable, version: int) -> DataFrame:
        """Return a table's rows at a version of its log, with the changes up to the position that it lacks.

        What is compared has to be chosen before any of it is read: the position is that of the feed by then.

        Raises:
            ChangeFeedError: The feed cannot be read on any more.
        """
        key = table.spec.key
        if (key, version) not in self._frames:
            (source,) = (one for one in self.sources if one.spec.key == key)
            reach = source.reader.reach()
            assert reach is not None, "`is_one_feed` has seen it, and none goes back"  # noqa: S101 (for the types)
            self._position = reach.position if self._position is None else self._position
            reach = replace(reach, position=self._position)
            published = source.lake.published(until=version)
            behind = source.behind(reach, published)
            lacking = [partition for partition in behind if partition.key not in self._lagging[key]]
            self._frames[key, version] = _with_changes(source, lacking, reach, version, published)
        return self._frames[key, version]

    def launched(self) -> list[Set[str]]:
        """Return the keys of partitions that each version has by now."""
        return [source.lake.published().keys() for source in self.sources]

    def lagging(self) -> list[tuple[str, ...]]:
        """Return which partitions of each version had not come up when they were waited for last."""
        return [tuple(sorted(self._lagging[source.spec.key])) for source in self.sources]

    def not_followed(self) -> list[tuple[str, ...]]:
        """Return which partitions of each version no change comes into, of time in which the other one follows."""
        before, new = (followed(source, self._reach_of(source)) for source in self.sources)
        is_same = has_same_event_time(self.sources[1].spec, self.sources[0].spec)
        pairs = (before, new), (new, before)
        return [not_followed(own, other, has_same_event_time=is_same) for own, other in pairs]

    def _reach_of(self, source: ChangedSource) -> Reach | None:
        return readable(source, self._say)

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.log(text)


def _behind(source: ChangedSource, reach: Reach) -> set[str]:
    """Return the partitions that lack changes up to a position, and into which they come by a refresh."""
    lacking = had_by(source, source.lake.published(), reach).behind(source, reach)
    return {p.key for p, comes in followed(source, reach).items() if comes and p.key in lacking} if lacking else set()


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
