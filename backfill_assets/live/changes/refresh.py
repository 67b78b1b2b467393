"""Partitions kept up to date: what a feed has brought is folded into all that it touches, in one commit."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.outcomes import Outcome, Published, Refused
from backfill_assets.core.history.plan import Launch
from backfill_assets.core.history.publish import materialize
from backfill_assets.core.history.reasons import ReasonKind
from backfill_assets.core.spec.table import MAX_PARTITIONS_PER_COMMIT, TableSpec
from backfill_assets.live.changes.source import ChangedSource
from backfill_assets.live.changes.table import Reach

BY = "change feed"
"""Who launched, in the receipts of a refresh."""

LAUNCHED_AT_ONCE = 31
"""So many partitions that were never launched are read from the database between two refreshes."""


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What one refresh has done.

    Args:
        position: Up to where changes are in every partition that was published.
        launched: Partitions that were read from the database for the first time.
    """

    position: int
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    launched: int = 0

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
        source: Its database and its feed.
        code_version: Of the code that makes the rows.
        log: Called with one sentence whenever a person would want to know.
    """

    source: ChangedSource
    code_version: str
    log: Callable[[str], None] = field(default=lambda _: None)
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))

    @property
    def spec(self) -> TableSpec:
        return self.source.spec

    def once(self) -> Refreshed:
        """Read what has landed, overwrite every partition that it touches, and launch what the spec says.

        All that changes touch is overwritten in one commit, so that no reader sees a row in two partitions, or in none.
        """
        reach = self.source.reader.read()
        if reach is None:
            return Refreshed(0)
        published = self.source.lake.published()
        behind = self.source.behind(reach)
        outcomes = self._overwritten(behind, pinned=reach) if behind else []
        keys = {partition.key for partition in behind}
        self.source.settled = {
            key: (published[key].receipt.receipt_id, reach.position)
            for key in self.source.positions(published, reach).keys() - keys
        }
        missing = self._missing(reach)[:LAUNCHED_AT_ONCE]
        if missing:
            self.log(f"{len(missing):,} partitions from {missing[0].key} on are read from the database.")
            outcomes += self._overwritten(missing, pinned=None)
        return Refreshed(reach.position, outcomes, len(missing))

    def _missing(self, reach: Reach) -> list[Partition]:
        """Return the partitions that were never launched and are to be, the oldest first."""
        mode = self.source.feed.backfill
        if mode == "excluded":
            return []
        published = self.source.lake.published()
        until = self.source.complete_until()
        return [
            p
            for p in self.spec.grid.until(self.now())
            if p.key not in published
            and (until is None or p.window.end_utc <= until)
            and (mode == "automatic" or self._begins_after_the_feed(p, reach))
        ]

    def _begins_after_the_feed(self, partition: Partition, reach: Reach) -> bool:
        """Say whether the feed has been there for all of a partition's time."""
        return partition.window.start_utc >= reach.began_at

    def _overwritten(self, partitions: Sequence[Partition], *, pinned: Reach | None) -> list[Outcome]:
        """Publish partitions as an ordinary launch does.

        Args:
            pinned: Up to where changes are folded into the table's own rows; None: the database is read.
        """
        from_table = pinned is not None
        run_id = f"{BY.replace(' ', '-')}-{uuid.uuid4().hex[:12]}"
        launch = Launch(
            run_id=run_id,
            root_run_id=run_id,
            code_version=self.code_version,
            by=BY,
            reason="" if self.spec.reason == "optional" else ReasonKind.NEW_DATA,
            max_partitions_per_chunk=MAX_PARTITIONS_PER_COMMIT if from_table else None,
            may_find_nothing=True,
        )
        source, effects = replace(self.source, from_table=from_table, pinned=pinned), Effects(log=self.log)
        return list(materialize(self.spec, partitions, source, self.source.lake, launch, effects=effects))
