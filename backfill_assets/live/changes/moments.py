"""What a database and the table that follows it had at one moment: exactly the same, whatever clients write meanwhile.

The database adds up its rows in one snapshot. The table's side is what one version of it has, with the changes that the
snapshot sees; it is the older of the two, so nothing has to be taken out of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC

from pyspark.sql import Column, DataFrame

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.moments import Moment, RowSums
from backfill_assets.core.history.ports import Difference
from backfill_assets.core.live.feed import as_lsn, from_lsn
from backfill_assets.core.spec.source_spec import refuse_unset
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import replace_where
from backfill_assets.errors import SourceUnavailableError
from backfill_assets.lake.compare import compare
from backfill_assets.live.changes.fold import visible_in
from backfill_assets.live.changes.source import ChangedSource
from backfill_assets.live.changes.table import Reach
from backfill_assets.live.changes.waiting import behind_position, reach_past
from backfill_assets.sources.database.moment import DatabaseMoment
from backfill_assets.sources.database.values import columns_of, sums_of
from backfill_assets.spark.expressions import kept_columns
from backfill_assets.spark.failures import translated

_LOOK_AGAIN_SECONDS = 0.2


@dataclass(slots=True)
class FollowedDatabase(ChangedSource):
    """A database's table and its change feed, as a `FollowedSource` of the core."""

    def moment(self, partitions: Sequence[Partition], *, version: int) -> Moment[DataFrame]:
        """Return what both sides had of some partitions at one moment of the database, which is now or soon.

        With `backfill: excluded` the database is not asked: what the feed has brought is all that there should be.

        Args:
            version: Of the table.

        Raises:
            AddressMissingError: Nobody has said where the database is.
            FeedBehindError: The feed does not come up to the moment.
            SourceUnavailableError: The database did not answer, or shows less than the table has, and goes on so.
        """
        if self.feed.backfill != "excluded":
            refuse_unset(self.spec.key, self.spec.source.variables, os.environ)
        reach = self.reader.reach()
        if reach is None:
            raise behind_position(self.spec.key, self.feed)
        published = self.lake.published(until=version)
        known = {p.key: published[p.key] for p in partitions if p.key in published}
        foreign = self.lake.written_by_others(known, version=version)
        positions = {key: at for key, at in self.positions(published, reach).items() if key not in foreign}
        folded = {p: reach.position if p.key in foreign else positions.get(p.key, reach.began) for p in partitions}
        sides = _Sides(self, sorted(partitions), version)
        if self.feed.backfill == "excluded":
            return sides.of_the_feed(reach, folded)
        database = self._that_shows(reach, max(folded.values()))
        try:
            return sides.of_the_database(database, positions)
        except BaseException:
            database.snapshot.close()
            raise

    def _that_shows(self, reach: Reach, position: int) -> DatabaseMoment:
        """Return a moment of the database that shows every change which the feed had brought up to a position.

        The feed may be ahead: it has a transaction as soon as that is in the log, and sessions see it when the server
        has also told the client, which with synchronous replication waits for a standby.
        """
        until = time.monotonic() + self.feed.wait_seconds
        while True:
            moment = self.database.take_moment()
            try:
                shown = visible_in(moment.snapshot.visible, moment.snapshot.taken_at)
                if not self.reader.changes(reach.began, position).where(~shown).head(1):
                    return moment
            except BaseException:
                moment.snapshot.close()
                raise
            moment.snapshot.close()
            if time.monotonic() >= until:
                raise SourceUnavailableError(
                    f"`{self.spec.key}`: the feed of `{self.feed.capture}` has brought changes that the database does "
                    f"not show after {self.feed.wait_seconds:g} s.",
                    state="Nothing was compared, and nothing was written.",
                    remedy="See whether its commits wait for a standby that is away, and compare again.",
                )
            time.sleep(_LOOK_AGAIN_SECONDS)


@dataclass(frozen=True, slots=True)
class _Sides:
    """Both sides of some partitions.

    Args:
        version: Of the table.
    """

    source: ChangedSource
    partitions: Sequence[Partition]
    version: int

    @property
    def spec(self) -> TableSpec:
        return self.source.spec

    @property
    def numbers(self) -> Mapping[Partition, int]:
        """What `_ba_file_id` is of each partition's rows."""
        return {partition: -number for number, partition in enumerate(self.partitions, start=1)}

    def of_the_database(self, database: DatabaseMoment, positions: Mapping[str, int]) -> Moment[DataFrame]:
        """Return what a moment of the database has, and the table by then.

        Partitions that no change is folded into, since they were never launched, were put back or were written by
        somebody else, are held against the database as they are.
        """
        snapshot = database.snapshot
        in_database, findings = database.sums(self.partitions)
        of = self.source
        reach = reach_past(of.reader, of.spec.key, of.feed, from_lsn(snapshot.position), of.log)
        since = {p: positions.get(p.key, reach.position) for p in self.partitions}
        at = f"{snapshot.taken_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, `{snapshot.position}` of the database's log"
        in_table = self._in_table(reach, since, visible_in(snapshot.visible, snapshot.taken_at))
        problems = {key: [str(finding) for finding in found] for key, found in findings.items()}
        moment = self._moment(at, in_database, in_table, database.rows)
        return replace(moment, problems=problems, release=snapshot.close)

    def of_the_feed(self, reach: Reach, since: Mapping[Partition, int]) -> Moment[DataFrame]:
        """Return what all changes that ever came make of nothing, and the table with those that it lacks."""
        nothing = self.source.lake.spark.createDataFrame([], columns_of(self.spec))
        by_feed = self.source.fold(self.numbers).of(nothing, self.source.reader.changes(0, reach.position))
        at = f"`{as_lsn(reach.position)}` of the database's log, as the feed tells it"
        return self._moment(at, self._added_up(by_feed), self._in_table(reach, since), lambda _: by_feed)

    def _in_table(self, reach: Reach, since: Mapping[Partition, int], seen: Column | None = None) -> DataFrame:
        """Return what the version has, with the changes of each partition since that are seen; without it, all."""
        changes = self.source.reader.changes(max(min(since.values()), reach.began), reach.position)
        if seen is not None:
            changes = changes.where(seen)
        return self.source.own_rows(replace(self.source.fold(self.numbers), since=since), self.version, changes)

    def _moment(
        self,
        at: str,
        source: Mapping[str, RowSums],
        in_table: DataFrame,
        read: Callable[[Sequence[Partition]], DataFrame],
    ) -> Moment[DataFrame]:
        def rows(partitions: Sequence[Partition]) -> tuple[DataFrame, DataFrame]:
            return self._stored(read(partitions), partitions), self._stored(in_table, partitions)

        def differences(partitions: Sequence[Partition]) -> Mapping[str, Difference]:
            most = sum(source.get(p.key, RowSums()).rows for p in partitions)
            with compare(self.spec, *rows(partitions), rows=most) as compared:
                return compared.differences()

        return Moment(at, source, self._added_up(in_table), rows, differences)

    def _added_up(self, rows: DataFrame) -> dict[str, RowSums]:
        with translated(self.spec.key):
            return sums_of(self.spec, rows, {number: p.key for p, number in self.numbers.items()})

    def _stored(self, rows: DataFrame, partitions: Sequence[Partition]) -> DataFrame:
        """Return the rows of some partitions, as the table keeps them: with the partition column."""
        kept_in = self.spec.partition_column
        return rows.select(*kept_columns(self.spec)).where(replace_where(kept_in, list(partitions)))
