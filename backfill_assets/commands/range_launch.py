"""A launch of one range of a table, as an ordinary run of Dagster in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_assets.commands.project import ProjectTable
from backfill_assets.core.words import range_in_words

if TYPE_CHECKING:
    import dagster as dg
    from dagster import JobExecutionResult

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""Run configuration with which a run says nothing on the terminal; its log is in Dagster."""


@dataclass(frozen=True, slots=True)
class RangeRun:
    """One run over a range of partitions.

    Args:
        failure: Why it failed, in words; empty if it did not.
    """

    first: str
    last: str
    run_id: str
    failure: str = ""

    @property
    def range(self) -> str:
        return range_in_words(self.first, self.last)

    def fields(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"range": [self.first, self.last], "run_id": self.run_id, "failure": self.failure}

    def __str__(self) -> str:
        """Return it in Rich's markup."""
        from rich.markup import escape

        what = f"[bold red]failed[/] {escape(self.failure)}" if self.failure else "[green]published[/]"
        return f"{self.range}: {what} (run {self.run_id})"


def launch_range(
    chosen: ProjectTable,
    first: str,
    last: str,
    config: Mapping[str, Any],
    tags: Mapping[str, str] | None = None,
    *,
    resumes: dg.DagsterRun | None = None,
) -> RangeRun:
    """Materialize a range of a table, and wait for it.

    Args:
        config: Of the launch.
        tags: Of the run, beside those that name the range.
        resumes: An earlier run that this one executes again: what its root run has published is left out.
    """
    import dagster as dg

    from backfill_assets.runs.run_tags import RANGE_END, RANGE_START

    whole = chosen.project.definitions.resolve_implicit_global_asset_job_def()
    job = whole.get_subset(asset_selection={chosen.table.asset_key})
    ranged = {RANGE_START: first, RANGE_END: last, **(tags or {})}
    run_config: dict[str, Any] = {
        **QUIET,
        "ops": {chosen.table.asset_key.to_python_identifier(): {"config": dict(config)}},
    }
    with dg.DagsterInstance.get() as instance:
        if resumes is not None:
            result = _execute_again(instance, job, ranged, run_config, resumes)
        else:
            result = job.execute_in_process(instance=instance, tags=ranged, run_config=run_config, raise_on_error=False)
    if was_stopped(result):
        raise KeyboardInterrupt  # Dagster has taken it, so that the run could end; the command has no answer
    failure = "" if result.success else failure_of(result)
    return RangeRun(first, last, result.run_id, failure)


def _execute_again(
    instance: dg.DagsterInstance, job: dg.JobDefinition, tags: Mapping[str, str], run_config: Any, again: dg.DagsterRun
) -> JobExecutionResult:
    """Execute a job as `execute_in_process` does, in a run that Dagster knows as the re-execution of another one."""
    from dagster._core.definitions.job_base import InMemoryJob
    from dagster._core.execution.api import execute_run

    here = job.as_ephemeral_job(resource_defs={}, input_values={})
    run = instance.create_run_for_job(
        here,
        run_config=run_config,
        tags={**job.run_tags, **tags},
        parent_run_id=again.run_id,
        root_run_id=again.root_run_id or again.run_id,
        asset_selection=job.asset_selection,
    )
    return execute_run(InMemoryJob(here), run, instance)


def was_stopped(result: dg.ExecuteInProcessResult | JobExecutionResult) -> bool:
    """Say whether a run ended because somebody pressed Ctrl-C, or terminated it."""
    from dagster._core.execution.plan.objects import ErrorSource

    failures = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    return any(failure.error_source is ErrorSource.INTERRUPT for failure in failures)


def failure_of(result: dg.ExecuteInProcessResult | JobExecutionResult) -> str:
    """Return why a run failed, in the words of our own error if it was one."""
    from backfill_assets.runs.recording import failure_in_words

    found = filter(None, map(failure_in_words, result.all_events))
    return next(found, "the run failed before it read anything.")
