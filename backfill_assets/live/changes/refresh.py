"""Partitions kept up to date: what a feed has brought is folded into all that it touches, in one commit."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.outcomes import Identical, Outcome, Published, Refused
from backfill_assets.core.history.plan import Launch
from backfill_assets.core.history.publish import materialize
from backfill_assets.core.history.reasons import ReasonKind
from backfill_assets.core.spec.table import MAX_PARTITIONS_PER_COMMIT, TableSpec
from backfill_assets.core.state.partition_status import Known, State, status_of
from backfill_assets.core.state.receipts import PublishedPartition, Run, summed_columns
from backfill_assets.errors import FoldOvertakenError
from backfill_assets.live.changes.history_pace import HistoryPace
from backfill_assets.live.changes.lacking import Had, had_by
from backfill_assets.live.changes.newest import newest_of, waiting_since
from backfill_assets.live.changes.source import ChangedSource
from backfill_assets.live.changes.table import Reach, folded_to

BY = "change feed"
"""Who launched, in the receipts of a refresh."""

LAUNCHED_AT_FIRST = 100
"""So many partitions that were never launched are read from the database before the next refresh, at first."""

_PATIENCE_AT_LEAST = 10.0
"""Seconds; whoever wants to be refreshed sooner has less of it with the past too, but no less than this."""


def launched_next(launched: int, seconds: float, refresh_seconds: float) -> int:
    """Return how many partitions are read from the database at once, after so many have taken so long.

    Much of what a piece costs is the same for every size. So the past is loaded in ever larger pieces, as long as
    changes of what is loaded already do not wait for long.

    | launched | seconds | refresh_seconds | next |
    |----------|---------|-----------------|------|
    | 31       | 12      | 10              | 124  |
    | 124      | 12      | 10              | 496  |
    | 1000     | 12      | 10              | 2000 |
    | 124      | 30      | 10              | 124  |
    | 124      | 50      | 10              | 62   |
    | 31       | 50      | 10              | 15   |
    | 1        | 50      | 10              | 1    |
    | 31       | 12      | 0               | 124  |
    """
    patience = max(refresh_seconds, _PATIENCE_AT_LEAST)
    if seconds < 2 * patience:
        return min(4 * launched, MAX_PARTITIONS_PER_COMMIT)
    return launched if seconds < 4 * patience else max(launched // 2, 1)


@dataclass(slots=True)
class Refreshed:
    """What one refresh has done.

    Args:
        position: Up to where changes are in every partition that was published.
        launched: Partitions that were never launched, or have outgrown columns, and were not refused before; some of
            them, or all, were read from the database. None while the past has to wait.
        lacking_since: When the oldest change was committed that some partition lacks all the same: it was refused, or
            taken back, or somebody else wrote it; or it has other columns than the spec, and was not read again yet.
            When this feed began, where some partition has what another one brought.
    """

    position: int = 0
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    launched: int = 0
    lacking_since: datetime | None = None

    @property
    def published(self) -> list[Published]:
        return [outcome for outcome in self.outcomes if isinstance(outcome, Published)]

    @property
    def refused(self) -> list[Refused]:
        return [outcome for outcome in self.outcomes if isinstance(outcome, Refused)]


@dataclass(slots=True)
class Refresh:
    """Refreshes one table.

    Args:
        source: Its database and its feed, and the code version of the rows.
        log: Called with one sentence whenever a person would want to know.
        pace: When the past may be read.
    """

    source: ChangedSource
    log: Callable[[str], None] = field(default=lambda _: None)
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    pace: HistoryPace = field(default_factory=HistoryPace)
    _waiting_said: bool = field(default=False, init=False)
    _launched_at_once: int = field(default=LAUNCHED_AT_FIRST, init=False)
    _refused: set[str] = field(default_factory=set[str], init=False)
    _lacks_since: dict[tuple[str, int], datetime] = field(default_factory=dict[tuple[str, int], datetime], init=False)

    @property
    def spec(self) -> TableSpec:
        return self.source.spec

    def once(self, done: Refreshed | None = None) -> Refreshed:
        """Read what has landed, overwrite every partition that it touches, and launch what the spec says.

        All that changes touch is overwritten in one commit, so that no reader sees a row in two partitions, or in none.

        Args:
            done: What is done is noted there, also where something fails afterwards: the database, which may be away,
                is asked only when what has landed is in the table.
        """
        done = Refreshed() if done is None else done
        reach = self.source.reader.read()
        if reach is None:
            return done
        found_at, published = self.source.lake.version(), self.source.lake.published()
        if published:
            self._keep_log()
        behind = self.source.behind(reach, published)
        while behind:
            try:
                done.outcomes.extend(self._overwritten(behind, pinned=reach, found_at=found_at))
                break
            except FoldOvertakenError as error:
                self.log(str(error))
                found_at, published = self.source.lake.version(), self.source.lake.published()
                behind = self.source.behind(reach, published)
        positions = self.source.positions(published, reach)
        self.source.settled = {
            key: (published[key].receipt.receipt_id, reach.position)
            for key in positions.keys() - set(self.source.keys_behind(positions, reach))  # brought up or not
        }
        done.position = reach.position
        if behind:
            published = self.source.lake.published()
        outgrown = {} if self.source.feed.backfill == "excluded" else self._outgrown(published, reach)
        missing = self._to_be_read(reach, published, outgrown.keys())
        new = [partition for partition in missing if partition.key not in self._refused]
        again = [partition for partition in missing if partition.key in self._refused]
        after_the_feed = [p for p in new if p.key not in outgrown and reach.begins_before(p)]
        first = dict.fromkeys([*after_the_feed, *new, *again])  # today, and then the past
        had = had_by(self.source, published, reach, past=[partition.key for partition in missing])
        done.lacking_since, told = self._lacking_since(done, had, reach), len(done.outcomes)
        if missing and self._in_its_turn([*first], after_the_feed, done.outcomes):
            done.launched = len(new)
        if len(done.outcomes) > told:  # where it fails, what was lacking before still is
            done.lacking_since = self._lacking_since(done, had, reach)
        return done

    def _lacking_since(self, done: Refreshed, had: Had, reach: Reach) -> datetime | None:
        """Return when the oldest change was committed that some partition lacks, though a refresh was due.

        One of the feed's own time that was never launched lacks what has come since it began, where it is refused:
        how old that is, the database has not told.
        """
        there = {p.key for one in done.outcomes if isinstance(one, Published | Identical) for p in one.partitions}
        refused = {one.verdict.partition.key for one in done.refused} | self._refused
        behind = had.behind(self.source, reach, past=refused)
        lacking = {key: at for key, at in behind.items() if key not in there}
        never = map(self.spec.grid.partition, had.never_launched & refused - there)
        since = [partition.window.start_utc for partition in never]
        since += [reach.began_at] if had.missed(past=refused) - there else []
        unknown = {key: position for key, position in lacking.items() if (key, position) not in self._lacks_since}
        found = waiting_since(self.spec.grid, self.source.reader.changes, unknown, reach.position)
        known = {(key, at): self._lacks_since.get((key, at), found.get(key)) for key, at in lacking.items()}
        self._lacks_since = {one: instant for one, instant in known.items() if instant is not None}
        return min([*since, *self._lacks_since.values()], default=None)

    def _keep_log(self) -> None:
        """Copy what the table's log tells, before Delta cleans it, if that was not done for a day, or for many commits.

        Of a partition whose receipt is gone nobody knows up to where changes are in it, and no launch may ever come.
        """
        self.source.lake.history.fill_if_due(self.now(), self.log)

    def _in_its_turn(
        self, missing: Sequence[Partition], after_the_feed: Sequence[Partition], outcomes: list[Outcome]
    ) -> bool:
        """Read some of the past, if hours, pace and other tables of the database let it; say whether they did.

        Args:
            after_the_feed: Those that began after the feed are not the past: hours and pace do not count for them.
        """
        waits_for = self.pace.waits_for()
        now = after_the_feed if waits_for else missing
        if now:
            with self.source.database.turn() as is_ours:
                if is_ours:
                    self._launch(now, outcomes, is_all=not waits_for)
            if not is_ours:
                waits_for, now = "another table of the same database, which is reading its own", ()
        left = len(missing) - len(now)
        if waits_for and left and not self._waiting_said:
            self.log(f"{left:,} partitions are still to be read from the database; that waits for {waits_for}.")
        self._waiting_said = bool(waits_for and (left or self._waiting_said))
        return not waits_for

    def _launch(self, missing: Sequence[Partition], outcomes: list[Outcome], *, is_all: bool) -> None:
        """Read some of the partitions that were never launched from the database, and publish them."""
        some = missing[: self._launched_at_once]
        later = f", {len(missing) - len(some):,} are still to come" if len(missing) > len(some) else ""
        self.log(f"{len(some):,} partitions from {some[0].key} on are read from the database{later}.")
        began = self.pace.clock()
        before = len(outcomes)
        outcomes.extend(self._overwritten(some, pinned=None))
        self._refused |= {one.verdict.partition.key for one in outcomes[before:] if isinstance(one, Refused)}
        seconds = self.pace.clock() - began
        rows = sum(o.receipt.source.get("rows", 0) for o in outcomes[before:] if isinstance(o, Published))
        self.pace.saw(rows, began)
        self._launched_at_once = launched_next(self._launched_at_once, seconds, self.source.feed.refresh_seconds)
        if is_all and not later:
            self.log("Every partition up to now was read from the database.")

    def _to_be_read(
        self, reach: Reach, published: Mapping[str, PublishedPartition], outgrown: Collection[str]
    ) -> list[Partition]:
        """Return the partitions that are to be read from the database, the oldest first.

        Those that were never launched, as the spec says, unless somebody took their launch back; and those that lack
        changes and have other columns than the spec by now: what their other rows have in a new one, no change tells.
        """
        mode = self.source.feed.backfill
        if mode == "excluded":
            return []
        known = Known(published=published, complete_until=self.source.complete_until(), is_source_known=True)
        found = [
            status.partition
            for status in status_of(self.spec.grid.until(self.now()), known)
            if status.partition.key in outgrown
            or (status.state is State.MISSING and (mode == "automatic" or reach.begins_before(status.partition)))
        ]
        undone = self.source.lake.history.undone() if found else set[str]()
        self._refused -= undone  # whatever they had was somebody's launch, and was taken back
        return [partition for partition in found if partition.key not in undone]

    def _outgrown(self, published: Mapping[str, PublishedPartition], reach: Reach) -> dict[str, int]:
        """Return the partitions with other columns than the spec that lack changes, and up to where they have them."""
        columns = summed_columns(self.spec)
        ours = {key: known for key, known in published.items() if self.spec.grid.is_key(key)}
        other = {key: known for key, known in ours.items() if known.receipt.columns != columns}
        if not other:
            return {}
        newest, since = self.source.reader.newest.until(reach), dict[str, int]()
        for key, known in other.items():
            position, at = folded_to(known), newest_of(key, newest)
            if position is not None and at and at[0] >= position:
                since[key] = position
        foreign = self.source.lake.written_by_others({key: other[key] for key in since})
        return {key: position for key, position in since.items() if key not in foreign}

    def _overwritten(
        self, partitions: Sequence[Partition], *, pinned: Reach | None, found_at: int = -1
    ) -> Iterator[Outcome]:
        """Publish partitions as an ordinary launch does; give what came of each chunk when it is done.

        Args:
            pinned: Up to where changes are folded into the table's own rows; None: the database is read.
            found_at: The table's version at which they were found to be behind.
        """
        from_table = pinned is not None
        run_id = f"{BY.replace(' ', '-')}-{uuid.uuid4().hex[:12]}"
        launch = Launch(
            Run(
                run_id,
                by=BY,
                reason="" if self.spec.reason == "optional" else ReasonKind.NEW_DATA,
                code_version=self.source.code_version,
            ),
            max_partitions_per_chunk=MAX_PARTITIONS_PER_COMMIT if from_table else None,
            may_find_nothing=True,
        )
        source = replace(self.source, from_table=from_table, pinned=pinned, found_at=found_at)
        effects = Effects(log=self.log)
        yield from materialize(self.spec, partitions, source, self.source.lake, launch, effects=effects)
