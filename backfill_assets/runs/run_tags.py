"""Tags of a run that people look for in the list of runs: which partitions, why, and how far it is."""

from __future__ import annotations

import getpass
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import dagster as dg

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.receipts import Run
from backfill_assets.core.words import range_in_words
from backfill_assets.runs.launch_report import LaunchReport

PARTITIONS, REASON, USER, PLAN = "partitions", "reason", "user", "plan"
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
"""Dagster's own tags of a run over a range of partitions, both ends included."""

PARTITION, BACKFILL = "dagster/partition", "dagster/backfill"
"""Dagster's own tags of a run of one partition, and of the runs of one backfill."""

PRIORITY = "dagster/priority"
"""Dagster's own tag by which queued runs are sorted, the largest first; a run without it has 0."""

LAUNCHES = "launches"
"""The pool of everything that overwrites partitions; how many may at once is in `dagster.yaml`."""

PART = "part"
"""What a run is for, of the runs that one command leaves."""


def limit_pool(instance: dg.DagsterInstance, pool: str) -> None:
    """Give a pool the default limit that `dagster.yaml` names, unless it has a limit.

    Dagster does so when it first takes runs of the pool from the queue, and only after it has read the limits: so it
    starts as many of these first runs as there are.
    """
    storage, default = instance.event_log_storage, instance.global_op_concurrency_default_limit
    if (
        default
        and storage.supports_global_concurrency_limits
        and pool not in {one.name for one in storage.get_pool_limits()}
    ):
        storage.initialize_concurrency_limit_to_default(pool)


def tag_for_people(
    instance: dg.DagsterInstance, run_id: str, wanted: Sequence[Partition], more: Mapping[str, str] | None = None
) -> None:
    """Tag a run with its range; and with whatever else is to be seen in the list of runs."""
    instance.add_run_tags(run_id, {PARTITIONS: in_short(wanted), **(more or {})})


def tag_with_progress(
    instance: dg.DagsterInstance, run_id: str, key: str, report: LaunchReport, *, now: str = ""
) -> None:
    """Tag a run with how many partitions of a table are published, refused and left out, and with what it does now."""
    instance.add_run_tags(run_id, {key: progress_in_short(report, now)})


class Progress(NamedTuple):
    """How far a run is with a table.

    Args:
        done: Partitions that are as their source has them now.
        wanted: All of the launch.
        worked: Those that it spent its time on: up to date is what it has not looked at.
        left: Those of which nothing is told yet.
    """

    done: int
    wanted: int
    worked: int
    left: int


def progress_of(tags: Mapping[str, str], key: str) -> Progress | None:
    """Return how far a run is with a table; None if it has not begun with it."""
    said = tags.get(key, "").partition("; ")[0]
    if (of_all := re.match(r"[\d,]+ of ([\d,]+) published", said)) is None:
        return None
    counts = {what: _number(count) for count, what in _TOLD.findall(said)}
    wanted, read = _number(of_all[1]), counts["published"] + counts.get("identical", 0)
    return Progress(
        read + counts.get("up to date", 0), wanted, read + counts.get("refused", 0), wanted - sum(counts.values())
    )


_TOLD = re.compile(r"([\d,]+)(?: of [\d,]+)? (published|identical|up to date|refused|left out)\b")
"""What the progress of a launch is told by: how many partitions, and what became of them."""


def step_of(tags: Mapping[str, str], key: str) -> str:
    """Return at which step a launch is with a table, or what it waits for; empty if it says nothing of it."""
    return tags.get(key, "").partition("; ")[2]


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def range_named(tags: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the first and the last key of what a run's tags name, one partition or a range; None if they name none."""
    first, last = tags.get(RANGE_START), tags.get(RANGE_END)
    if first and last:
        return first, last
    partition = tags.get(PARTITION)
    return (partition, partition) if partition else None


def launch_job_name(spec: TableSpec) -> str:
    """Return the name of the job that launches a table alone, for schedules."""
    return f"launch_{spec.key.replace('/', '_')}"


def launched_by(tags: Mapping[str, str]) -> str:
    """Return who launched a run: what its tag `user` names, else a schedule or sensor, else whose process it is."""
    for tag, kind in ((USER, ""), ("dagster/schedule_name", "schedule "), ("dagster/sensor_name", "sensor ")):
        if name := tags.get(tag):
            return kind + name
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a process of a user that has no name
        return ""


def run_of(run: dg.DagsterRun, **facts: str) -> Run:
    """Return what receipts say of a run.

    Args:
        facts: `reason`, `plan`, `flow` and `code_version`.
    """
    return Run(run.run_id, run.root_run_id or "", by=launched_by(run.tags), **facts)


def in_short(wanted: Sequence[Partition]) -> str:
    """Return the first and the last of some partitions."""
    if not wanted:
        return "none"
    return range_in_words(wanted[0].key, wanted[-1].key)


def progress_in_short(report: LaunchReport, now: str = "") -> str:
    """Return how far a launch is: `90 of 365 published, 2 refused; chunk 2 of 6 (90 partitions): write`."""
    published = sum(len(chunk.partitions) for chunk in report.published)
    up_to_date = sum(len(outcome.partitions) for outcome in report.left_out if outcome.published)
    left_out = sum(len(outcome.partitions) for outcome in report.left_out if not outcome.published)
    parts = [f"{published:,} of {len(report.wanted):,} published"]
    parts += [f"{len(report.identical):,} identical"] if report.identical else []
    parts += [f"{up_to_date:,} up to date"] if up_to_date else []
    parts += [f"{len(report.refused):,} refused"] if report.refused else []
    parts += [f"{left_out:,} left out"] if left_out else []
    return "; ".join(filter(None, (", ".join(parts), now)))
