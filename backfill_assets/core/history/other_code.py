"""Launches of different code beside each other: older code does not replace what newer code has published meanwhile.

No hash says which code is newer, so the launch that began later is taken to have it: its first receipt comes after the
other one began. What nobody can tell counts as newer, because a partition that is left out can be launched again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.plan import Launch
from backfill_assets.core.history.ports import Lake, Rows
from backfill_assets.core.state.receipts import Receipt, newest_by_partition


@dataclass(slots=True)
class OtherCode(Generic[Rows]):
    """What other code publishes while a launch goes on.

    Args:
        began: Newest version of the table when the launch began; of a run that Dagster executes again, when the run
            began that is repeated, unless the code has changed since.
    """

    lake: Lake[Rows]
    launch: Launch
    began: int
    _seen: int = -1
    _receipts: dict[int, Receipt] = field(default_factory=dict[int, Receipt])

    def newer(self, partitions: Sequence[Partition]) -> list[Partition]:
        """Return the partitions that newer code has published since the launch began.

        | other launch, of other code        | published the partition | newer |
        |------------------------------------|-------------------------|-------|
        | had published when this one began  | since                   | no    |
        | had not                            | since                   | yes   |
        | had not, and put it back           | since                   | no    |
        | had not                            | before this one began   | no    |
        """
        self._receipts |= self.lake.receipts_after(self._seen)
        self._seen = max(self._receipts, default=self._seen)
        if not self.launch.run.code_version:
            return []
        mine = self.launch.run.root_id, self.launch.run.code_version
        others = {v: r for v, r in self._receipts.items() if _launch_of(r) != mine}
        ours = {"", self.launch.run.code_version}  # an older package named no code
        newest = newest_by_partition(others)
        wrote = {key: p.receipt for key, p in newest.items() if p.receipt.kind == "publish"}
        found = [p for p in partitions if p.key in wrote and wrote[p.key].run.code_version not in ours]
        if not found:
            return []
        before = self.lake.receipts_after(-1)
        older = {_launch_of(receipt) for version, receipt in before.items() if version <= self.began}
        return [partition for partition in found if _launch_of(wrote[partition.key]) not in older]


def since_now(lake: Lake[Rows], launch: Launch) -> OtherCode[Rows]:
    """Note where the table stands when a launch begins."""
    began = lake.version()
    if launch.is_reexecution:
        attempts = [r for r in lake.receipts_after(-1).values() if r.run.root_id == launch.run.root_id]
        if {attempt.run.code_version for attempt in attempts} == {launch.run.code_version}:
            began = min(attempt.staged_from_version for attempt in attempts)
    return OtherCode(lake, launch, began, began)


def _launch_of(receipt: Receipt) -> tuple[str, str]:
    """Return what tells launches apart: a run that is executed again with other code is another one."""
    return receipt.run.root_id, receipt.run.code_version
