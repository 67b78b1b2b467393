"""Two versions of a table that follow the same changes, read as both are at one position of the database's log.

Each is refreshed in its own turn, so they have never come equally far, and a row that changes all the time is never the
same in both. So each must have every change that had landed when it began to be waited for; what it has not of the few
that have landed since is folded into its rows as they are read, by the same fold that a refresh does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.ports import Source
from backfill_assets.core.live.feed import as_lsn
from backfill_assets.core.sql import replace_where
from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.lake.table import LakeTable
from backfill_assets.lake.tally import contents
from backfill_assets.live.changes.source import ChangedSource
from backfill_assets.live.changes.table import Reach
from backfill_assets.spark.expressions import column, partition_value

_LOOK_AGAIN_SECONDS = 1.0


def follow_the_same(sources: Sequence[Source[DataFrame]]) -> TypeGuard[Sequence[ChangedSource]]:
    """Say whether tables follow the same table of the same database, by the same capture, which has begun."""
    followed = [(of.feed.capture, of.reader.source.table) for of in sources if isinstance(of, ChangedSource)]
    if len(followed) < len(sources) or len({*followed}) > 1:
        return False
    return all(of.reader.reach() is not None for of in sources if isinstance(of, ChangedSource))


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

    def wait(self, seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """Return when every table has what has landed by now, or the time is over."""
        until = time.monotonic() + seconds
        reaches = [_reach_of(source) for source in self.sources]
        for source, reach in zip(self.sources, reaches, strict=True):
            is_said = False
            while (lagging := _lagging(source, reach)) and time.monotonic() < until:
                if not is_said:
                    self.log(f"Waiting until `{source.spec.key}` has come up to `{as_lsn(reach.position)}`.")
                    is_said = True
                sleep(_LOOK_AGAIN_SECONDS)
            self._lagging[source.spec.key] = lagging

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
            lacking = [p for p in source.behind(reach, published) if p.key not in self._lagging[key]]
            self._frames[key, version] = _with_changes(source, lacking, reach, version, published)
        return self._frames[key, version]


def _reach_of(source: ChangedSource) -> Reach:
    reach = source.reader.reach()
    assert reach is not None, "`follow_the_same` has seen it, and a feed does not go back"  # noqa: S101 (for the types)
    return reach


def _lagging(source: ChangedSource, reach: Reach) -> set[str]:
    """Return the partitions that are not as they would be with every change up to a position, by key.

    One that a change has touched and left as it was is not written again for that.
    """
    version = source.lake.version()
    published = source.lake.published(until=version)
    if not (behind := source.behind(reach, published)):
        return set()
    named = replace_where(source.spec.partition_column, behind)
    sides = source.lake.read(version), _with_changes(source, behind, reach, version, published)
    has, would_have = (contents(source.spec, rows.where(named)) for rows in sides)
    return {p.key for p in behind if has.get(p.key) != would_have.get(p.key)}


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
    names = [column(name) for name in source.spec.columns]
    value = partition_value(source.spec, column(source.spec.event_time)).alias(kept_in)
    folded = source.brought_up(partitions, reach, version, published, after=0)
    named = F.expr(replace_where(kept_in, partitions))
    others = rows.where(~F.coalesce(named, F.lit(False)))
    return others.select(*names, column(kept_in)).unionByName(folded.select(*names, value))
