"""Where tables and files that belong to one table lie: beside it, or in its log."""

from __future__ import annotations

import os
from pathlib import Path

from backfill_assets.core.spec.paths import lies_in, place_of
from backfill_assets.spark.local_disk import local_path


def lies_below(uri: str, folder: str) -> bool:
    """Say whether something is a folder, or lies anywhere below it: by its real path on this machine, else by name."""
    return lies_in(real_place(uri), real_place(folder))


def real_place(uri: str) -> str:
    """Return one name for whatever an absolute path or a URI names: without links, on this machine."""
    local = local_path(uri)
    return place_of(uri) if local is None else os.path.realpath(local)


def late_path(table_path: str) -> str:
    """Return the path of `<table>_late`."""
    return _beside(table_path, "_late")


def quarantine_path(table_path: str) -> str:
    """Return the path of `<table>_quarantine`."""
    return _beside(table_path, "_quarantine")


def history_path(table_path: str) -> str:
    """Return the path of `<table>_history`."""
    return _beside(table_path, "_history")


def changes_path(table_path: str) -> str:
    """Return the path of `<table>_changes`."""
    return _beside(table_path, "_changes")


def flow_path(table_path: str, flow: str) -> str:
    """Return what a once-flow's lock is named after: nothing lies there."""
    return _beside(table_path, f".{flow}")


def stream_path(table_path: str) -> str:
    """Return what the lock of a table's live writer is named after: nothing lies there."""
    return _beside(table_path, "_live")


def lock_file(path: Path) -> Path:
    """Return the lock file of whatever lies at a local path."""
    return path.with_name(path.name + ".lock")


def _beside(table_path: str, suffix: str) -> str:
    return table_path.rstrip("/") + suffix
