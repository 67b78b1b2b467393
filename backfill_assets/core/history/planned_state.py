"""What the partitions of a plan are made of, and whether they still are when it is carried out. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.ports import Lake, Rows
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.surveys import Survey
from backfill_assets.errors import NOTHING_WRITTEN, PlanDriftError


class MadeOf(NamedTuple):
    """What a partition is judged by in a plan: if any of it changes, so may what a launch does.

    Args:
        fingerprint: Of the source's content.
        receipt_id: Of its newest publish; empty if there is none.
        written_since: Newest version by which somebody else wrote it after that; 0 if nobody did.
        late_rows: That there are.
    """

    fingerprint: str
    receipt_id: str
    written_since: int
    late_rows: int


def planned_digest(made_of: Mapping[str, MadeOf]) -> str:
    """Return a short digest of what some partitions are made of, by partition key."""
    lines = "".join(f"{key} {json.dumps(found)}\n" for key, found in sorted(made_of.items()))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def refuse_drift(
    spec: TableSpec,
    wanted: Sequence[Partition],
    surveys: Mapping[str, Survey],
    lake: Lake[Rows],
    *,
    plan: str,
    planned_state: str,
) -> None:
    """Raise if a launch carries out a plan, and its partitions are not what that was made of.

    Args:
        plan: Its name.
        planned_state: The digest of what they were made of.

    Raises:
        PlanDriftError: They are not. Nothing was written.
    """
    published, late = lake.published(), lake.late(wanted).rows
    ours = {p.key: published[p.key] for p in wanted if p.key in published}
    touched = lake.written_by_others(ours)
    made_of = {
        p.key: MadeOf(
            surveys[p.key].fingerprint,
            ours[p.key].receipt.receipt_id if p.key in ours else "",
            touched.get(p.key, 0),
            late.get(p.key, 0),
        )
        for p in wanted
    }
    if planned_digest(made_of) != planned_state:
        raise PlanDriftError(
            f"`{spec.key}`: these partitions are not what plan `{plan}` was made of.",
            state=NOTHING_WRITTEN,
            remedy="Make a new plan, look at it, and apply that.",
        )
