"""Stopping the launches of a table, as the UI's Terminate does; where there is no daemon and no code server too."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import dagster as dg
from dagster._core.execution.backfill import BulkActionStatus

from backfill_assets.runs import killed
from backfill_assets.runs.table import Table
from backfill_assets.runs.table_runs import BACKFILL_NOT_ENDED, under_way

START_SECONDS = 30.0
"""How long a run that is starting is waited for to name its process."""

SAYS_STOPPED = "Stopped. "
"""How the sentence begins by which a launch says what became of its last chunk."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """What became of one launch that was to be stopped: of a run, or of a backfill that may start runs.

    Args:
        launch_id: Of the run, or of the backfill.
        ended: Whether it has ended by now; whether the backfill starts no more runs.
        seconds: Until it had, or as long as was waited.
        said: What the run says of the chunk that was in flight; or why it could not be stopped.
    """

    launch_id: str
    ended: bool
    seconds: float
    said: str
    is_backfill: bool = False


def stop_launches(
    instance: dg.DagsterInstance, table: Table, *, wait_seconds: float, project: str = ""
) -> list[Stopped]:
    """Stop every launch of a table that has not ended, and wait for them; runs of other tables alone are not touched.

    Another project may have a table with the same key in the same Dagster: its runs are not touched either.

    A backfill that may still start runs is canceled first. A run that is queued is taken from the queue. One that lives
    on this machine is interrupted as by Ctrl-C; one on another is left to Dagster's own Terminate.
    """
    list(killed.report_dead(instance))
    stopped = [_cancel(instance, one.backfill_id) for one in under_way(instance, [table], project=project).backfills]
    tried = set[str]()
    while runs := [run for run in under_way(instance, [table], project=project).runs if run.run_id not in tried]:
        runs.sort(key=lambda run: run.status not in killed.NOT_BEGUN)  # none may begin while others are waited for
        stopped += [_stop(instance, run.run_id, wait_seconds) for run in runs]
        tried |= {run.run_id for run in runs}  # the daemon may have been about to queue another one
    return stopped


def _cancel(instance: dg.DagsterInstance, backfill_id: str) -> Stopped:
    """Cancel a backfill as Dagster's UI does: it starts no more runs, and the daemon ends those that it has started."""
    backfill = instance.get_backfill(backfill_id)  # as it is now
    if backfill is None or backfill.status not in BACKFILL_NOT_ENDED:
        return Stopped(backfill_id, True, 0.0, "It ended by itself.", is_backfill=True)
    if backfill.status is BulkActionStatus.REQUESTED:
        instance.update_backfill(backfill.with_status(BulkActionStatus.CANCELING))
    tables = ", ".join(sorted(key.to_user_string() for key in backfill.asset_selection or ()))
    of = f" of {tables}" if tables else ""
    return Stopped(backfill_id, True, 0.0, f"It is canceled and starts no more runs{of}.", is_backfill=True)


def _stop(instance: dg.DagsterInstance, run_id: str, wait_seconds: float) -> Stopped:
    began, run = time.monotonic(), instance.get_run_by_id(run_id)  # as it is now: the one before it took its time
    if run is None or run.is_finished:
        return Stopped(run_id, True, 0.0, "It ended by itself.")
    if run.status in killed.NOT_BEGUN:
        instance.report_run_canceling(run, message="Taken from the queue by `backfill-assets stop`.")
        instance.report_run_canceled(run)
        return Stopped(run.run_id, True, 0.0, "It had not begun.")
    pid, ended = _process_of(instance, run.run_id, wait_seconds)
    if ended:
        return Stopped(run.run_id, True, time.monotonic() - began, "It ended by itself.")
    if pid is None:
        said = "It runs on another machine, or has not begun there: terminate it in Dagster's UI."
        return Stopped(run.run_id, False, time.monotonic() - began, said)
    try:
        os.kill(pid, 0)  # a run that is said to be canceled, and goes on, would be taken for ended by everybody
    except PermissionError:
        said = f"Its process, {pid}, is another user's: stop it as that user, or terminate it in Dagster's UI."
        return Stopped(run.run_id, False, time.monotonic() - began, said)
    except ProcessLookupError:
        pass  # it ends just now
    else:
        instance.report_run_canceling(run, message="Stopped by `backfill-assets stop`.")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGINT)
    ended = _wait(lambda: _has_ended(instance, run.run_id), wait_seconds)
    said = _last_words(instance, run.run_id) if ended else "It has not ended yet; it ends after the save in progress."
    return Stopped(run.run_id, ended, time.monotonic() - began, said)


def _process_of(instance: dg.DagsterInstance, run_id: str, wait_seconds: float) -> tuple[int | None, bool]:
    """Return the process of a run, and whether the run has ended; a run that is starting has none for a while."""
    until = time.monotonic() + min(wait_seconds, START_SECONDS)
    while True:
        run = instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return None, True
        pid = killed.process_here(run)
        if pid is not None or run.tags.get(killed.RUN) == run_id or time.monotonic() >= until:
            return pid, False
        time.sleep(0.2)


def _has_ended(instance: dg.DagsterInstance, run_id: str) -> bool:
    run = instance.get_run_by_id(run_id)
    return run is None or run.is_finished


def _last_words(instance: dg.DagsterInstance, run_id: str) -> str:
    """Return what a launch said when it was stopped."""
    said = [entry.user_message for entry in instance.all_logs(run_id) if entry.user_message.startswith(SAYS_STOPPED)]
    return said[-1] if said else "It was in no chunk of a launch."


def _wait(is_done: Callable[[], bool], seconds: float) -> bool:
    """Wait until something holds, at most so long; say whether it does."""
    until = time.monotonic() + seconds
    while not (done := is_done()) and time.monotonic() < until:
        time.sleep(0.2)
    return done
