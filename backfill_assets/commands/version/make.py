"""New versions are made, empty; then their history is copied by ordinary launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from backfill_assets.commands.project import Project
from backfill_assets.commands.range_launch import RangeRun, launch_range
from backfill_assets.commands.version.chosen import ChosenVersion, now_iso, record, who

if TYPE_CHECKING:
    from backfill_assets.core.calendar.partitions import Partition
    from backfill_assets.core.spec.table import TableSpec
    from backfill_assets.core.state.fence import Fence
    from backfill_assets.core.state.version_steps import VersionStep

MARGIN = timedelta(minutes=10)
"""A new version must be made this long before its stream begins, so that the stream can be started in time."""


def make_versions(chosen: ChosenVersion, *, reason: str, log: Callable[[str], None]) -> dict[str, str]:
    """Make the new versions that are not there; return by key where the stream of each begins, empty without one.

    A version that a killed command has made, and could not note, is noted.

    Raises:
        FenceError: A stream would begin too soon, or has begun. No version was made after that.
    """
    from backfill_assets.core.state.fence import first_fence, refuse_past_boundary
    from backfill_assets.core.state.version_steps import VersionStep
    from backfill_assets.lake.definition import utc_now

    lakes = [chosen.lake(pair.new, log) for pair in chosen.pairs]
    missing = [lake for lake in lakes if not lake.exists()]
    fences: dict[str, Fence | None] = {lake.spec.key: first_fence(lake.spec) for lake in missing}
    for lake in missing:
        fence = fences[lake.spec.key]
        if fence is not None:
            refuse_past_boundary(lake.spec, fence, utc_now() + MARGIN)
    steps = {step.key for name in {pair.name for pair in chosen.pairs} for step in _made(chosen.project, name)}
    unrecorded = [lake.spec for lake in lakes if lake.spec.key not in steps]
    began = [VersionStep(now_iso(), "making", lake.spec.key, by=who(), reason=reason) for lake in missing]
    if began:  # before anything is there, so that whatever is killed next leaves a trace of who did it
        record(chosen.project, *began, log=log)
    for lake in missing:
        lake.create()
    made = [
        VersionStep(now_iso(), "made", spec.key, by=who(), reason=reason, detail=_stream_of(first_fence(spec)))
        for spec in unrecorded
    ]
    if made:
        record(chosen.project, *made, log=log)
    return {key: fence.at_utc.isoformat() if fence else "" for key, fence in fences.items()}


def _made(project: Project, name: str) -> list[VersionStep]:
    return [step for step in project.lakehouse.version_steps(name) if step.what == "made"]


def _stream_of(fence: Fence | None) -> str:
    return f"its stream begins at {fence.at_utc.isoformat()}" if fence else "without a stream of its own"


@dataclass(frozen=True, slots=True)
class Copied:
    """One launch of a new version."""

    key: str
    run: RangeRun


def copy_versions(chosen: ChosenVersion, *, reason: str, log: Callable[[str], None]) -> list[Copied]:
    """Launch what new versions lack, one table after the other; what comes after a failure is not begun.

    A version that follows a database is left out if its writer brings its history, or nobody may read it.
    """
    from backfill_assets.core.state.version_steps import VersionStep

    done: list[Copied] = []
    for pair in chosen.pairs:
        feed = chosen.specs[pair.new].changes
        is_launched = feed is None or feed.backfill == "manual"
        lacking = lacks(chosen.project, pair.new, log) if is_launched else []
        if not lacking:
            continue
        first, last = lacking[0].key, lacking[-1].key
        log(f"{pair.new}: {len(lacking):,} partitions, {first}...{last}")
        began = VersionStep(
            now_iso(), "copying", pair.new, pair.before, who(), reason=reason, detail=f"{first}...{last}"
        )
        record(chosen.project, began, log=log)  # before anything is written: a kill leaves who did it
        config: dict[str, Any] = {"reason": reason, "only": "MISSING", "may_find_nothing": True}
        run = launch_range(chosen.table(pair.new), first, last, config)
        done.append(Copied(pair.new, run))
        lake = chosen.lake(pair.new, log)
        published = lake.published()
        step = VersionStep(
            now_iso(),
            "copied",
            pair.new,
            pair.before,
            who(),
            reason=reason,
            versions={pair.new: lake.version()},
            rows=sum(published[p.key].partition.rows for p in lacking if p.key in published),
            detail=f"{first}...{last}: {run.failure}" if run.failure else f"{first}...{last}, run {run.run_id}",
        )
        record(chosen.project, step, log=log)
        if run.failure:
            break
    return done


def has_writer(spec: TableSpec) -> bool:
    """Say whether `live` has to run for a version, because it has a stream or a feed of its own."""
    return spec.live is not None or spec.changes is not None


def lacks(project: Project, key: str, log: Callable[[str], None]) -> list[Partition]:
    """Return the partitions of a table that are complete at its source and not published as that would make them."""
    import dagster as dg

    from backfill_assets.core.state.partition_status import State
    from backfill_assets.runs.table_status import look_at_table

    table, lakehouse = project.table(key), project.lakehouse  # before the instance: its context would outlive that
    with dg.DagsterInstance.get() as instance:
        found = look_at_table(instance, table.table, table.specs, lakehouse, log)
    return [status.partition for status in found.complete if status.state is not State.PUBLISHED]
