"""What can be set for one launch."""

from __future__ import annotations

from enum import Enum

import dagster as dg
from pydantic import Field

from backfill_assets.core.history.guards import Allowances
from backfill_assets.errors import NOTHING_WRITTEN, LaunchError
from backfill_assets.runs.run_tags import BACKFILL


class Only(Enum):
    """Which of the partitions that a launch names it writes."""

    ALL = "all"
    MISSING = "missing"


class PublishConfig(dg.Config):
    """What can be set for whatever overwrites partitions."""

    max_partitions_per_chunk: int | None = Field(
        default=None,
        ge=1,
        le=2000,
        description="Partitions in one commit; the spec's `chunk.max_partitions` if not given.",
    )
    discard_uncovered_rows: bool = Field(
        default=False,
        description="Whether rows may be discarded that a live stream wrote and the source lacks. Otherwise their "
        "partition "
        "is refused.",
    )
    allow_shrink: bool = Field(
        default=False,
        description="Whether partitions may be published that lose more of their rows than the table's `max_shrink`.",
    )
    allow_unexpected: bool = Field(
        default=False,
        description="Whether partitions may be published whose measures are not what the table's `expect` says.",
    )
    ignore_off_peak: bool = Field(
        default=False, description="Whether chunks begin at any hour, whatever `pace.off_peak` of the table says."
    )
    max_refused: int | None = Field(
        default=None,
        ge=1,
        description="After so many refused partitions the chunk that they are in is ended, and nothing more is begun.",
    )
    reason: str = Field(
        default="",
        description="Why this launch, best begun with a kind (`logic changed: revenue without tax`); it is stored in "
        "every commit's receipt.",
    )

    def allowed_in(self, run: dg.DagsterRun) -> Allowances:
        """Return what a run may publish in spite of the guards.

        Raises:
            LaunchError: It discards rows that its source does not have, and repeats another run. What may be discarded
                was said of the partitions that were history then; one that was sealed since has other rows.
        """
        if self.discard_uncovered_rows and run.parent_run_id is not None:
            raise LaunchError(
                f"This run repeats run {run.root_run_id}, which discards rows that its source does not have; it would "
                "discard those of days that were sealed since then too.",
                state=NOTHING_WRITTEN,
                remedy="Launch the partitions for which it is meant as a run of its own; with `only: MISSING` what was "
                "published stays.",
            )
        return Allowances(
            allow_shrink=self.allow_shrink,
            allow_unexpected=self.allow_unexpected,
            discard_uncovered_rows=self.discard_uncovered_rows,
        )


class LaunchConfig(PublishConfig):
    """What can be set for one launch, in the dialog's Config section or with `--config`."""

    only: Only = Field(
        default=Only.ALL,
        description="`ALL` makes every partition that the launch names, and writes those that are others than the "
        "table has. `MISSING` leaves out those whose receipt "
        "names the "
        "source's content, and the code, as they are now.",
    )
    rewrite_identical: bool = Field(
        default=False,
        description="Whether partitions are written again that the table has already, row for row, of the same source "
        "and code.",
    )
    may_find_nothing: bool = Field(
        default=False,
        description="Whether the run succeeds although it skips partitions that are live, or for which the source is "
        "not complete. Otherwise it publishes the others, and fails. For schedules: Dagster's backfills count a "
        "skipped partition as failed, and their runs fail too.",
    )
    keep_keys: bool = Field(
        default=False,
        description="Whether a partition is refused from which a key of the table would get lost, because the source "
        "does not have it any more, or has it in a partition that is refused.",
    )
    only_keys: str = Field(
        default="",
        description="First and last key that the launch may change, both included: `100...199`. A partition is "
        "refused in which another row would be inserted, changed or lost.",
    )
    plan: str = Field(default="", description="Id of the plan that is carried out; `backfill-assets apply` sets it.")
    planned_state: str = Field(
        default="",
        description="Digest of what the plan's partitions were made of, at the source and in the table. If that has "
        "changed the launch writes nothing; `backfill-assets apply` sets it.",
    )

    def may_skip(self, run: dg.DagsterRun) -> bool:
        """Return whether a run succeeds although it skips partitions; the backfill that it is of would not."""
        return self.may_find_nothing and BACKFILL not in run.tags
