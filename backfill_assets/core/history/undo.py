"""A launch taken back: each partition that it wrote gets what it held before, by the same one overwrite as a publish.

`undo_plan.py` says which. Each commit carries a receipt, so taking a launch back can be taken back too.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

from backfill_assets.core.history.effects import ATTEMPTS, Effects, wait_to_repeat
from backfill_assets.core.history.other_code import since_now
from backfill_assets.core.history.plan import Launch
from backfill_assets.core.history.ports import Lake, Rows
from backfill_assets.core.history.undo_plan import Undo, UndoAction, Undoing, UndoPlan, plan_undo
from backfill_assets.core.history.verification import Verification
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.receipts import UNDOES, PartitionReceipt, Receipt, summed_columns
from backfill_assets.core.state.tallies import EMPTY
from backfill_assets.errors import PublishError, UnreadableTableError


@dataclass(frozen=True, slots=True)
class Restored:
    """One commit that put partitions back.

    Args:
        version: That it made.
    """

    version: int
    receipt: Receipt
    partitions: tuple[Undoing, ...]


def carry_out(
    spec: TableSpec, lake: Lake[Rows], undo: Undo, plan: UndoPlan, effects: Effects
) -> Iterator[Restored | Undoing]:
    """Put partitions back as planned, in one commit for each version that they are put back to.

    Yields what each commit put back, and what was kept after all because somebody wrote it since the plan was made.

    Raises:
        PublishError: A commit could not be made. Those before it are; the same undo does the rest.
    """
    groups: dict[tuple[int, str], list[Undoing]] = {}
    for one in plan.of(UndoAction.RESTORED):
        groups.setdefault((one.before, one.launched.receipt.run.flow), []).append(one)
    most = spec.max_partitions_per_chunk
    for _, group in sorted(groups.items(), reverse=True):
        for first in range(0, len(group), most):
            chunk = tuple(group[first : first + most])
            yield from _restore(spec, lake, undo, UndoPlan(plan.version, chunk), effects)


def _restore(
    spec: TableSpec, lake: Lake[Rows], undo: Undo, plan: UndoPlan, effects: Effects
) -> Iterator[Restored | Undoing]:
    """Make one commit; where somebody came between, look again at what may still be put back."""
    for attempt in range(1, ATTEMPTS + 1):
        todo = plan.of(UndoAction.RESTORED)
        if not todo:
            return
        try:
            with lake.failures():
                restored = _commit(spec, lake, undo, UndoPlan(plan.version, tuple(todo)), effects)
            yield restored
            return
        except PublishError as error:
            if isinstance(error, UnreadableTableError):  # it is committed, and another look would find it done
                raise
            wait_to_repeat(error, attempt, effects)
            plan = plan_undo(spec, lake, undo, only=[one.key for one in todo])
            yield from (one for one in plan.partitions if one.action is not UndoAction.RESTORED)


def _commit(spec: TableSpec, lake: Lake[Rows], undo: Undo, plan: UndoPlan, effects: Effects) -> Restored:
    launched, before = plan.partitions[0].launched.receipt, plan.partitions[0].before
    contents = {one.key: one.then or EMPTY for one in plan.partitions}
    partitions = [spec.grid.partition(key) for key in contents]
    rows_now = lake.rows_now(partitions, version=plan.version)
    now = effects.now()
    run = replace(undo.run, reason=undo.run.reason or f"undo of {undo.name}", flow=launched.run.flow)
    receipt = Receipt(
        receipt_id=uuid.uuid4().hex,
        table=spec.key,
        run=run,
        staged_from_version=plan.version,
        source={
            "kind": "version",
            "version": before,
            UNDOES: sorted({one.launched.receipt.receipt_id for one in plan.partitions}),
        },
        partitions={
            key: PartitionReceipt.of(tally, fingerprint="", rows_before=rows_now.get(key, 0))
            for key, tally in contents.items()
        },
        kind="put_back",
        made_at=now.isoformat(timespec="seconds"),
        columns=summed_columns(spec),
        began_at=now.isoformat(timespec="milliseconds"),
    )
    commit = lake.restore(partitions, version=before, receipt=receipt)
    others = since_now(lake, Launch(undo.run))
    verification = Verification(spec, lake, others, effects)
    verification.verify(partitions, contents, commit, receipt)
    verification.refuse_overtaken(partitions, commit, receipt)
    return Restored(commit.version, receipt, plan.partitions)
