"""A source and a table in memory, and how a launch between them is started and told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.outcomes import Published, Refused
from backfill_assets.core.history.plan import LeftOut
from backfill_assets.core.history.publish import materialize
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import NOTHING_WRITTEN, CommitConflictError, TableLockedError
from tests.support.fake_lake import FakeLake
from tests.support.fakes import ORDERS, POINTS, FakeSource, Script, files_of, hash_of, launch_with, orders_of

FIRST, LAST = "2024-02-26", "2024-03-02"
KEYS = ["2024-02-26", "2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01", "2024-03-02"]
BAD = "2024-02-28"
POINTS_OF_A_CHUNK = POINTS[:5]
LOCKED = TableLockedError("Somebody holds the lock.", state=NOTHING_WRITTEN, remedy="Wait.")
CONFLICT = CommitConflictError("Another writer was there.", state=NOTHING_WRITTEN, remedy="Try again.")


@dataclass
class World:
    """A source and a table that share a script, and what a launch said on its way."""

    spec: TableSpec = ORDERS
    script: Script = field(default_factory=Script)
    said: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)

    def __post_init__(self):
        self.source = FakeSource(self.spec, files_of(self.spec, FIRST, LAST), self.script)
        self.lake = FakeLake(self.spec, self.script)

    def outcomes(self, keys=KEYS, *, chunk=None, **launch):
        """Start a launch of some partitions; it goes on as its outcomes are taken."""
        partitions = [key if isinstance(key, Partition) else self.spec.grid.partition(key) for key in keys]
        effects = Effects(log=self.said.append, at_step=self.steps.append, sleep=self.slept.append)
        effects = replace(effects, **{name: launch.pop(name) for name in ("clock", "now") if name in launch})
        made = launch_with(max_partitions_per_chunk=chunk, **launch)
        return materialize(self.spec, partitions, self.source, self.lake, made, effects=effects)

    def run(self, keys=KEYS, **launch):
        """Launch to the end; whatever happens, no rows are held afterwards."""
        outcomes, held_before = [], self.lake.staged_now
        try:
            for outcome in self.outcomes(keys, **launch):
                outcomes.append(outcome)  # noqa: PERF402 (kept when the launch raises)
        finally:
            assert self.lake.staged_now == held_before, "rows were not let go"
        return outcomes

    def correct(self, *keys, amount=2):
        """Replace the source's files of some partitions: same keys, other amounts."""
        for key in keys:
            self.source.files[key] = orders_of(self.spec, key, amount=amount)

    def source_content(self):
        """Return what the table has when it equals its source."""
        return {key: sorted(map(hash_of, rows)) for key, rows in self.source.files.items() if rows}


def published_keys(outcomes):
    return [[p.key for p in outcome.partitions] for outcome in outcomes if isinstance(outcome, Published)]


def refused_keys(outcomes):
    return [outcome.verdict.partition.key for outcome in outcomes if isinstance(outcome, Refused)]


def left_out(outcomes):
    return [([p.key for p in o.partitions], o.why, o.published) for o in outcomes if isinstance(o, LeftOut)]
