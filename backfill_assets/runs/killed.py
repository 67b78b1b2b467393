"""Runs that were killed: found by their process, and reported as failed."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import dagster as dg
from dagster._core.executor.child_process_executor import _execute_command_in_child_process
from dagster._core.storage.tags import HIDDEN_TAG_PREFIX

from backfill_assets.runs.run_tags import progress_of

RUN, HOST, MACHINE, BOOT, NAMESPACE, PID, STARTED, PROJECT = (
    f"{HIDDEN_TAG_PREFIX}backfill_assets/{name}"
    for name in ("run", "host", "machine", "boot", "namespace", "pid", "started", "project")
)
"""Where a run lives, and of which project it is; the UI does not show these tags. A process id means something only in
its namespace, since a boot; and Dagster copies a run's tags when it is executed again."""

_PROC = Path("/proc")
_ALIVE = "alive"
"""What is known of a living process that `/proc` does not show."""

UNFINISHED = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.CANCELING]
NOT_BEGUN = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED]
NOT_ENDED = [*NOT_BEGUN, *UNFINISHED]


def tag_with_process(instance: dg.DagsterInstance, run_id: str, project: str) -> None:
    """Tag a run with the process that it lives in, so that others can tell whether it still does; and its project.

    A run that executes another one again has that one's tags: how far that was with its tables is taken out.
    """
    run = instance.get_run_by_id(run_id)
    inherited = run.tags if run and run.tags.get(RUN) != run_id else {}
    of_another = {key: "" for key in inherited if progress_of(inherited, key)}
    instance.add_run_tags(run_id, {**of_another, **process_tags(run_id, pid_of_run()), PROJECT: project})


def project_of(run: dg.DagsterRun) -> str | None:
    """Return the project of a run that has begun, empty if that has no name; None if no project has begun the run."""
    return run.tags.get(PROJECT, "") if run.tags.get(RUN) == run.run_id else None


def pid_of_run() -> int:
    """Return the process of a run: this one, or the one that gave a process to its step, but not its code server."""
    before, of_step = multiprocessing.parent_process(), getattr(multiprocessing.current_process(), "_target", None)
    return before.pid if before and before.pid and of_step is _execute_command_in_child_process else os.getpid()


def process_tags(run_id: str, pid: int) -> dict[str, str]:
    """Return the tags of a run that lives in a process of this machine."""
    return {**_here(), RUN: run_id, PID: str(pid), STARTED: _start_of(pid) or _ALIVE}


def report_dead(instance: dg.DagsterInstance) -> Iterator[str]:
    """Mark tagged runs of this machine whose process is gone as failed, and free their pool slots.

    A run of which that is not certain is left alone: another container of this host, another host of this name.

    Yields:
        The id of each run that was found dead.
    """
    here = _here()
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED, tags={HOST: here[HOST]})):
        if run.tags.get(RUN) != run.run_id or not _is_gone(run.tags, here):
            continue
        again = instance.get_run_by_id(run.run_id)  # it may have ended, as runs do, since it was looked up
        if again is None or again.status not in UNFINISHED:
            continue
        instance.report_run_failed(run, "The process of this run is gone: it was killed, or the machine was restarted.")
        if instance.event_log_storage.supports_global_concurrency_limits:
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
        yield run.run_id


def _is_gone(tags: Mapping[str, str], here: Mapping[str, str]) -> bool:
    """Say whether the process that a run was tagged with is certainly gone.

    | host | machine        | boot    | namespace | process                      | gone |
    |------|----------------|---------|-----------|------------------------------|------|
    | same | any            | same    | same      | lives, and started then      | no   |
    | same | any            | same    | same      | lives, started nobody knows  | no   |
    | same | any            | same    | same      | none, or started another day | yes  |
    | same | any            | same    | another   | of another container         | no   |
    | same | same and known | another | any       | from before a restart        | yes  |
    | same | another        | another | any       | of another machine           | no   |
    """
    if tags.get(BOOT) != here[BOOT]:
        return bool(here[MACHINE]) and tags.get(MACHINE) == here[MACHINE]
    if tags.get(NAMESPACE) != here[NAMESPACE]:
        return False
    pid = tags.get(PID, "")
    return pid.isdigit() and _start_of(int(pid)) not in (tags.get(STARTED), _ALIVE)


def process_here(run: dg.DagsterRun) -> int | None:
    """Return the process id of a run that certainly lives on this machine, where this process can reach it."""
    here, tags, pid = _here(), run.tags, run.tags.get(PID, "")
    if tags.get(RUN) != run.run_id:  # it has not begun, or has the tags of the run that it executes again
        return None
    if any(tags.get(name) != here[name] for name in (HOST, MACHINE, BOOT, NAMESPACE)) or not pid.isdigit():
        return None
    return int(pid) if _start_of(int(pid)) == tags.get(STARTED) else None


def _here() -> dict[str, str]:
    """Return the tags of every process here that sees the same process ids; empty where something is not known."""
    try:
        namespace = str((_PROC / "self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return {
        HOST: socket.gethostname(),
        MACHINE: _text_of(Path("/etc/machine-id")),
        BOOT: _text_of(_PROC / "sys/kernel/random/boot_id"),
        NAMESPACE: namespace,
    }


def _text_of(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _start_of(pid: int) -> str | None:
    """Return when a process started, in clock ticks since boot; None if there is none. Process ids come round again."""
    try:
        stat = (_PROC / f"{pid}/stat").read_text()
    except OSError:
        return _alive_unseen(pid)
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def _alive_unseen(pid: int) -> str | None:
    """Return what is known of a process where there is no `/proc`, or where it hides other users' processes."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return None if isinstance(error, ProcessLookupError) else _ALIVE
    return _ALIVE
