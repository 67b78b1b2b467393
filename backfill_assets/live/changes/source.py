"""A database's table with a change feed: what a snapshot has, or what the table has, and the changes since.

A launch reads its partitions in a snapshot, waits until the feed has come past it, and folds in what the snapshot did
not see. From then on the position of the feed says which changes are in the partition; a refresh folds the later ones
into the table's own rows, and asks the database nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import ALL_ROWS, Evidence, Finding
from backfill_assets.core.history.ports import Scan, Source
from backfill_assets.core.live.feed import from_lsn
from backfill_assets.core.schema.compare import Observed
from backfill_assets.core.spec.changes import ChangeFeed
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import replace_where
from backfill_assets.core.state.receipts import PublishedPartition, summed_columns
from backfill_assets.core.state.surveys import Survey
from backfill_assets.core.state.tallies import Tally
from backfill_assets.errors import NOTHING_WRITTEN, FoldOvertakenError, SourceRefusedError
from backfill_assets.lake.table import LakeTable
from backfill_assets.live.changes.feed import FeedReader
from backfill_assets.live.changes.fold import Fold, unreadable_in, visible_in
from backfill_assets.live.changes.newest import EMPTIED, Left, left_since, newest_of, touched_by, waiting_since
from backfill_assets.live.changes.table import FOLDED_TO, Reach, folded_to, whose_rows
from backfill_assets.live.changes.waiting import behind_position, reach_past
from backfill_assets.sources.database.source import DatabaseSource
from backfill_assets.spark.expressions import column

_CHANGED = Evidence(None, deleted_rows=ALL_ROWS)
"""Of a partition into which changes are folded: how many rows there are follows from them, and may be none."""


@dataclass(slots=True)
class ChangedSource(Source[DataFrame]):
    """A table of a database, and its change feed.

    Args:
        database: Where whole partitions are read from.
        lake: The table that is filled.
        from_table: Whether changes are folded into the table's own rows; if not, into what the database has.
        pinned: Up to where changes are folded into the table's own rows; without it, all that have landed.
        found_at: The table's version at which the partitions to be refreshed were found to be behind.
        code_version: Of the code that makes the rows; whoever only looks needs none.
        said: Keys of partitions of which it was said that somebody else wrote them.
        settled: Up to where partitions were found to have every change, by key, with the receipt that they had then.
    """

    spec: TableSpec
    feed: ChangeFeed
    database: DatabaseSource
    reader: FeedReader
    lake: LakeTable
    from_table: bool = False
    pinned: Reach | None = None
    found_at: int = -1
    code_version: str = ""
    said: set[str] = field(default_factory=set[str])
    settled: Mapping[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    log: Callable[[str], None] = field(default=lambda _: None)
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))

    def complete_until(self) -> datetime | None:
        """Return the end of the partition that it is now: what comes into one that has begun, the feed brings."""
        grid = self.spec.grid
        return grid.partition_of(max(self.now(), grid.start_utc)).window.end_utc

    def check_schema(self, partitions: Sequence[Partition]) -> list[str]:
        """Hold the spec against the catalog, where the database is read at all.

        Raises:
            SourceRefusedError: A launch would read it, and `backfill: excluded` says that none does.
        """
        if self.from_table:
            return []
        if self.feed.backfill == "excluded":
            raise SourceRefusedError(
                f"`{self.spec.key}`: says `backfill: excluded`: its history is not read from the database.",
                state=NOTHING_WRITTEN,
                remedy="Change `changes.backfill` in the spec if it should be.",
            )
        return self.database.check_schema(partitions)

    def observed_columns(self) -> list[Observed]:
        """Return the database's columns as they are now."""
        return self.database.observed_columns()

    def survey(self, partitions: Sequence[Partition]) -> dict[str, Survey]:
        """Return the newest change of each partition that has arrived, or that is folded: the database is not asked."""
        reach = self.pinned or self.reader.reach()
        if reach is None:
            return {p.key: Survey("no feed yet", is_expected=self.feed.backfill != "excluded") for p in partitions}
        newest, is_all = self.reader.newest.until(reach), self.feed.backfill != "excluded"
        found = {p: newest_of(p.key, newest) for p in partitions}
        since = {} if self.from_table else self._waiting_since(partitions, reach)
        return {
            p.key: Survey(
                reach.fingerprint(at), content=reach, changed_utc=since.get(p.key),
                is_expected=is_all or at is not None,
            )
            for p, at in found.items()
        }  # fmt: skip

    def scan(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Scan[DataFrame]:
        """Prepare the read of what partitions held, and of every change since that the feed has brought."""
        ordered = sorted(partitions)
        return self._from_table(ordered) if self.from_table else self._from_database(ordered, surveys)

    def examine(self, suspects: Mapping[str, Tally], surveys: Mapping[str, Survey]) -> dict[str, list[Finding]]:
        """Name rows that cannot be what the spec says: of those that the database gave, or that changes made."""
        if not self.from_table:
            return self.database.examine(suspects, surveys)
        wrong = sorted(self.spec.grid.partition(key) for key, tally in suspects.items() if tally.unreadable_rows)
        if not wrong:
            return {}
        scan = self._from_table(wrong)
        return unreadable_in(self.spec, scan.rows, scan.partition_by_file or {})

    def set_aside_unreadable(self, surveys: Mapping[str, Survey]) -> bool:
        """Find out which partitions the database cannot read, where it is read at all."""
        return not self.from_table and self.database.set_aside_unreadable(surveys)

    def _from_database(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Scan[DataFrame]:
        """Read a snapshot, what it did not see, and into what else in the table changes have come by then.

        There has to be a feed before it: one that begins meanwhile may lack what no snapshot had seen when it began.
        """
        reach_past(self.reader, self.spec.key, self.feed, None, self.log)
        scan = self.database.scan(partitions, surveys)
        try:
            past = from_lsn(scan.position["position"])
            reach = reach_past(self.reader, self.spec.key, self.feed, past, self.log)
            since = self.reader.changes(reach.began, reach.position)
            unseen = since.where(
                ~visible_in(scan.position["snapshot"], datetime.fromisoformat(scan.position["taken_at"]))
            ).persist()
            touched = touched_by(unseen)
            numbers = {partition: -number for number, partition in enumerate(partitions, start=1)}
            rows = self.fold(numbers).of(scan.rows, unseen)
            published = self.lake.published(until=(version := self.lake.version()))
            also = self.behind(reach, published, apart_from=partitions)
            if also:
                rows = rows.unionByName(self.brought_up(also, reach, version, published, after=len(numbers)))
            left = self._left(partitions, reach)
        except BaseException:
            scan.release()
            raise

        def release() -> None:
            unseen.unpersist()
            left.release()
            scan.release()

        evidence = {
            p.key: replace(
                scan.evidence[p.key],
                **({"raw_rows": None} if str(p.value) in touched or EMPTIED in touched else {}),
                deleted_rows=left.rows.get(str(p.value), 0),
            )
            for p in partitions
        }
        return Scan(
            rows,
            {**scan.position, FOLDED_TO: reach.position},
            evidence | {p.key: _CHANGED for p in also},
            {-number: partition.key for number, partition in enumerate([*partitions, *also], start=1)},
            release=release,
            is_of_one_moment=True,
            follows_feed=True,
            fingerprints=self._fingerprints(reach, [*partitions, *also]),
            also=tuple(also),
            gone=left.keys,
        )

    def _left(self, partitions: Sequence[Partition], reach: Reach) -> Left:
        """Return which keys leave partitions by changes that the table has not: the feed says that they are gone."""
        known = self.positions(published := self.lake.published(), reach)
        since = {p.key: known.get(p.key, reach.folded(published.get(p.key))) for p in partitions}
        behind = {*self.keys_behind(since, reach)}
        lacking = {str(p.value): since[p.key] for p in partitions if p.key in behind}
        return left_since(self.spec, self.reader.changes, lacking, reach.position, self.fold({}).zone)

    def _from_table(self, partitions: Sequence[Partition]) -> Scan[DataFrame]:
        """Read the table's own rows, and the changes since each partition was folded.

        Raises:
            FoldOvertakenError: A partition is not one any more into which changes can be folded.
        """
        reach = self.pinned or self.reader.reach()
        if reach is None:
            raise behind_position(self.spec.key, self.feed)
        version = self.lake.version()
        published = self.lake.published(until=version)
        if version != self.found_at and (replaced := set(partitions) - set(self.behind(reach, published))):
            raise FoldOvertakenError(
                f"`{self.spec.key}`: {min(replaced).key} was put back or written by somebody else while changes were "
                "folded into it.",
                state=NOTHING_WRITTEN,
                remedy="What is still to be folded in is found out anew; the next refresh does it.",
            )
        return Scan(
            self.brought_up(partitions, reach, version, published, after=0),
            {"kind": "changes", FOLDED_TO: reach.position},
            {p.key: _CHANGED for p in partitions},
            {-number: partition.key for number, partition in enumerate(partitions, start=1)},
            is_of_one_moment=True,
            follows_feed=True,
            fingerprints=self._fingerprints(reach, partitions),
        )

    def brought_up(
        self,
        partitions: Sequence[Partition],
        reach: Reach,
        version: int,
        published: Mapping[str, PublishedPartition],
        *,
        after: int,
    ) -> DataFrame:
        """Return what partitions that are behind hold at a version, with the changes since they were folded."""
        positions = self.refreshed_from(self.positions(published, reach), reach)
        since = {p: positions[p.key] for p in partitions}
        accepted = {p: folded_to(published.get(p.key)) or 0 for p in partitions}
        numbers = {partition: -number for number, partition in enumerate(partitions, start=after + 1)}
        changes = self.reader.changes(max(min(since.values()), reach.began), reach.position)
        return self.own_rows(replace(self.fold(numbers), since=since, accepted=accepted), version, changes)

    def own_rows(self, fold: Fold, version: int, changes: DataFrame) -> DataFrame:
        """Return what the partitions of a fold held at a version of the table, with the changes since."""
        kept_in = self.spec.partition_column
        own = self.lake.read(version).where(replace_where(kept_in, list(fold.numbers)))
        rows = own.select(
            *(column(name) for name in self.spec.columns),
            fold.file_id(column(kept_in)).alias("_ba_file_id"),
            F.lit(None).cast("string").alias("_ba_problem"),
        )
        return fold.of(rows, changes)

    def positions(self, published: Mapping[str, PublishedPartition], reach: Reach) -> dict[str, int]:
        """Return up to where changes are in each partition: what its receipt says, or what was found since.

        Those that cannot be brought up to the feed are left out: what was restored, lies before a start that was moved,
        was published without a feed or with other columns, and what another feed has brought, which may be of another
        log. Where the database is never read, that of other code too: no launch makes it new.
        """
        found, columns = dict[str, int](), summed_columns(self.spec)
        code = self.code_version if self.feed.backfill == "excluded" else ""
        for key, newest in ((key, whose_rows(one)) for key, one in published.items() if self.spec.grid.is_key(key)):
            receipt = newest.receipt
            position = folded_to(newest) if reach.brought(newest.partition.fingerprint) else None
            if position is not None and receipt.columns == columns and code in ("", receipt.run.code_version):
                receipt_id, settled = self.settled.get(key, ("", 0))
                found[key] = max(position, settled) if receipt_id == receipt.receipt_id else position
        return found

    def refreshed_from(self, positions: Mapping[str, int], reach: Reach) -> dict[str, int]:
        """Return from where on a refresh folds changes in: of every partition, where the database is never read."""
        every = self.spec.grid.until(self.now()) if self.feed.backfill == "excluded" else ()
        return {**{p.key: reach.began for p in every}, **positions}

    def behind(
        self, reach: Reach, published: Mapping[str, PublishedPartition], *, apart_from: Sequence[Partition] = ()
    ) -> list[Partition]:
        """Return the partitions of the table that have less than the feed has brought, and can be brought up to it.

        Those that somebody else has written since are left out: what they hold is not known.
        """
        until, positions = self.complete_until(), self.refreshed_from(self.positions(published, reach), reach)
        behind = set(self.keys_behind(positions, reach)) - {partition.key for partition in apart_from}
        stale = [p for p in map(self.spec.grid.partition, behind) if until is not None and p.window.end_utc <= until]
        foreign = self.lake.written_by_others({p.key: published[p.key] for p in stale if p.key in published})
        for key in foreign.keys() - self.said:
            remedy = "docs/databases.md says how it is rebuilt" if self.feed.backfill == "excluded" else "launch it"
            self.log(f"{key} was written by somebody else, and is not brought up to the feed: {remedy}.")
            self.said.add(key)
        return sorted(p for p in stale if p.key not in foreign)

    def keys_behind(self, positions: Mapping[str, int], reach: Reach) -> list[str]:
        """Return the keys of partitions that changes have touched after a position."""
        newest = self.reader.newest.until(reach)
        touched = {key: newest_of(key, newest) for key in positions}
        return [key for key, at in touched.items() if at is not None and at[0] >= positions[key]]

    def _waiting_since(self, partitions: Sequence[Partition], reach: Reach) -> Mapping[str, datetime]:
        """Return since when changes wait to be folded in, by partition key."""
        positions = self.positions(self.lake.published(), reach)
        behind = set(self.keys_behind(positions, reach))
        lacking = {p.key: positions[p.key] for p in partitions if p.key in behind}
        return waiting_since(self.spec.grid, self.reader.changes, lacking, reach.position)

    def fold(self, numbers: Mapping[Partition, int]) -> Fold:
        """Return what folds changes into partitions."""
        may_be_older = self.feed.backfill == "excluded"
        return Fold(self.spec, numbers, self.reader.source.timestamps_without_zone, may_be_older=may_be_older)

    def _fingerprints(self, reach: Reach, partitions: Sequence[Partition]) -> dict[str, str]:
        newest = self.reader.newest.until(reach)
        return {p.key: reach.fingerprint(newest_of(p.key, newest)) for p in partitions}
