"""Two versions of a table that follow the same changes, read as both are at one position of the database's log.

Each is refreshed in its own turn, so they have never come equally far, and a row that changes all the time is never the
same in both. So each must have every change that had landed when it began to be waited for; what it has not of the few
that have landed since is folded into its rows as they are read, by the same fold that a refresh does.
"""

from __future__ import annotations

import time
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
from backfill_assets.live.changes.lacking import never_launched
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

        Whatever was folded in while they were read has landed by now. So where they all have, it is in them. What did
        not come up the last time is not waited for again.
        """
        self._frames.clear()
        self._position, until = None, time.monotonic() + seconds
        reaches = [_reach_of(source) for source in self.sources]
        for source, reach in zip(self.sources, reaches, strict=True):
            known, is_said = self._lagging.get(source.spec.key, set[str]()), False
            while (behind := _behind(source, reach)) - known and time.monotonic() < until:
                if not is_said:
                    self.log(f"Waiting until `{source.spec.key}` has come up to `{as_lsn(reach.position)}`.")
                    is_said = True
                sleep(_LOOK_AGAIN_SECONDS)
            self._lagging[source.spec.key] = behind
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

    def lagging(self, until: Sequence[datetime | None]) -> list[tuple[str, ...]]:
        """Return which partitions of each table had not come up when they were waited for last.

        Args:
            until: Of each table, only those that begin before it; None: all.
        """
        found = list[tuple[str, ...]]()
        for source, end in zip(self.sources, until, strict=True):
            lagging = sorted(map(source.spec.grid.partition, self._lagging[source.spec.key]))
            found.append(tuple(p.key for p in lagging if end is None or p.window.start_utc < end))
        return found


def _reach_of(source: ChangedSource) -> Reach:
    reach = source.reader.reach()
    assert reach is not None, "`follow_the_same` has seen it, and a feed does not go back"  # noqa: S101 (for the types)
    return reach


def _behind(source: ChangedSource, reach: Reach) -> set[str]:
    """Return the partitions that a refresh has still to bring up to a position, or to launch for what has come."""
    published = source.lake.published()
    new = dict.fromkeys(never_launched(source, published, reach), reach.began)
    return {*source.keys_behind(new, reach), *(partition.key for partition in source.behind(reach, published))}


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
