"""What once-flows have done: read from a table's receipts, written since each flow was last reset."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.spec.once import OnceFlow
from backfill_assets.core.state.receipts import PublishedPartition, Receipt, Run, as_at, latest_at

FlowState = Literal["never run", "partly", "done"]


@dataclass(frozen=True, slots=True)
class FlowProgress:
    """What a flow did since it was last reset.

    Args:
        published: What it published of its partitions, by partition key; a later launch by somebody else is not in it.
        reset: The receipt of its newest reset.
    """

    flow: OnceFlow
    published: Mapping[str, PublishedPartition] = field(default_factory=dict[str, PublishedPartition])
    reset: Receipt | None = None

    @property
    def left(self) -> list[Partition]:
        """Partitions that the flow has not published."""
        return [partition for partition in self.flow.partitions if partition.key not in self.published]

    @property
    def state(self) -> FlowState:
        if not self.left:
            return "done"
        return "partly" if self.published else "never run"

    @property
    def rows(self) -> int:
        """Rows that the flow published."""
        return sum(published.partition.rows for published in self.published.values())

    @property
    def newest(self) -> PublishedPartition | None:
        """The last partition that the flow published."""
        return max(self.published.values(), key=lambda published: published.version, default=None)

    def in_words(self) -> str:
        """Return the state in one sentence."""
        if self.newest is None:
            return f"`{self.flow.name}` never ran" + (" since it was reset." if self.reset else ".")
        receipt = self.newest.receipt
        at = f" at {receipt.made_at}" if receipt.made_at else ""
        return (
            f"`{self.flow.name}` has published {len(self.published):,} of its {len(self.flow.partitions):,} "
            "partitions with "
            f"{self.rows:,} rows, the last{at} in version {self.newest.version} by run {receipt.run.id}."
        )


def progress_of(flow: OnceFlow, receipts: Mapping[int, Receipt]) -> FlowProgress:
    """Read from a table's receipts what a flow did since it was last reset.

    Args:
        receipts: All of the table, by version.
    """
    mine, reset = {partition.key for partition in flow.partitions}, None
    known: dict[str, list[tuple[int, PublishedPartition | None]]] = {}
    for version in sorted(receipts):
        receipt = receipts[version]
        if receipt.kind == "reset" and receipt.run.flow == flow.name:
            known, reset = {}, receipt
        for key in mine & receipt.partitions.keys():
            timeline = known.setdefault(key, [])
            if receipt.kind == "put_back":  # what is there again is the flow's, or not
                there = latest_at(timeline, as_at(version, receipt)) if "version" in receipt.source else None
                timeline.append((version, there))
            elif receipt.run.flow == flow.name:
                timeline.append((version, PublishedPartition(version, receipt, receipt.partitions[key])))
    newest = {key: timeline[-1][1] for key, timeline in known.items() if timeline}
    published = {key: there for key, there in newest.items() if there is not None}
    return FlowProgress(flow, published, reset)


def reset_receipt(flow: OnceFlow, table: str, run: Run, *, version: int, now: datetime) -> Receipt:
    """Return the receipt of a commit without rows, from which on a flow counts as one that never ran.

    Args:
        run: What resets it.
        version: Newest version of the table.
    """
    return Receipt(
        receipt_id=uuid.uuid4().hex,
        table=table,
        run=replace(run, flow=flow.name),
        staged_from_version=version,
        source={"kind": "none"},
        partitions={},
        kind="reset",
        made_at=now.isoformat(timespec="seconds"),
    )
