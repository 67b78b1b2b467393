"""Where the seconds of a launch go, by what the events of its run say."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from dagster import DagsterEventType, DagsterInstance, IntMetadataValue

from benchmarks.processes import Process

CHUNK_LINE = re.compile(r"seconds by step: ([a-z]+ [\d.]+(?:, [a-z]+ [\d.]+)*)")


@dataclass(frozen=True)
class RangeLaunch:
    """One range launch of ours, and what its events tell.

    Args:
        parts: Seconds by part of the launch, in the order in which they come; they add up to the whole.
        check_seconds: Of the check's step; None if the run had no such step.
        rows: That were published; None if the events do not tell.
        first_seconds: From the step's start to the first event of a partition; None if there is none.
    """

    seconds: float
    parts: dict[str, float]
    check_seconds: float | None
    rows: int | None
    first_seconds: float | None = None


def explained(launch: Process, dagster_home: Path) -> RangeLaunch:
    """Split the seconds of a launch by what the events of its run say."""
    steps, first_event, rows = _events(dagster_home, launch.ended)
    ended = [step for step in steps.values() if step.ended]
    asset = next((step for step in ended if step.materialized), None)
    check = next((step for step in ended if step.evaluations and not step.materialized), None)
    parts: dict[str, float] = {}
    if asset:
        parts["process start, imports, definitions"] = first_event - launch.started
        parts["planned events, start of the run"] = asset.started - first_event
        parts |= asset.parts()
    if check:
        parts["check: table read back, evaluations"] = check.ended - check.started
    if parts:
        parts["end of the run and of the process, and what is left"] = launch.seconds - sum(parts.values())
    check_seconds = check.ended - check.started if check else None
    first_seconds = min(asset.materialized) - asset.started if asset else None
    return RangeLaunch(launch.seconds, parts, check_seconds, rows, first_seconds)


def _events(dagster_home: Path, until: float) -> tuple[dict[str, StepEvents], float, int | None]:
    """Return what the events of the newest run tell by step, when the first one was, and the rows that they name."""
    steps: dict[str, StepEvents] = {}
    first_event, rows = until, None
    os.environ["DAGSTER_HOME"] = str(dagster_home)  # an event log that `dagster.yaml` names may look there
    with DagsterInstance.from_config(str(dagster_home)) as instance:
        (run,) = instance.get_runs(limit=1)
        for entry in instance.all_logs(run.run_id):
            first_event = min(first_event, entry.timestamp)
            step = steps.setdefault(entry.step_key, StepEvents()) if entry.step_key else StepEvents()
            if line := CHUNK_LINE.search(entry.user_message or ""):
                step.end_chunk(entry.timestamp, line[1])
            if not entry.is_dagster_event:
                continue
            event = entry.get_dagster_event()
            match event.event_type:
                case DagsterEventType.STEP_START:
                    step.started = entry.timestamp
                case DagsterEventType.STEP_SUCCESS:
                    step.ended = entry.timestamp
                case DagsterEventType.ASSET_CHECK_EVALUATION:
                    step.evaluations += 1
                case DagsterEventType.ASSET_MATERIALIZATION:
                    step.materialized.append(entry.timestamp)
                    metadata = event.step_materialization_data.materialization.metadata
                    count = metadata.get("dagster/partition_row_count")
                    rows = (rows or 0) + (count.value or 0) if isinstance(count, IntMetadataValue) else rows
    return steps, first_event, rows


@dataclass
class StepEvents:
    """What the events of one step tell, in seconds since 1970."""

    started: float = 0.0
    ended: float = 0.0
    evaluations: int = 0
    materialized: list[float] = field(default_factory=list)
    chunks: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    """When each chunk was recorded, and the seconds of its steps."""

    def end_chunk(self, at: float, seconds: str) -> None:
        self.chunks.append((at, {name: float(value) for name, value in (part.split() for part in seconds.split(", "))}))

    def parts(self) -> dict[str, float]:
        """Split the seconds of a step that publishes chunks."""
        if not self.chunks:
            return {"asset": self.ended - self.started}
        by_step: dict[str, float] = {}
        events = before = 0.0
        previous = self.started
        for recorded, seconds in self.chunks:
            for name, value in seconds.items():
                by_step[f"chunks: {name}"] = by_step.get(f"chunks: {name}", 0.0) + value
            first = min((at for at in self.materialized if previous <= at <= recorded), default=recorded)
            events += recorded - first
            before += first - previous - sum(seconds.values())
            previous = recorded
        return {
            "session start, table, listing": before,
            **by_step,
            "materialization events": events,
            "copy of the receipts": self.ended - previous,
        }
