"""Where the tables and files that belong to one table lie: always beside it, or in its log."""

from __future__ import annotations

import re
from pathlib import Path


def late_path(table_path: str) -> str:
    """Return the path of `<table>_late`."""
    return _beside(table_path, "_late")


def quarantine_path(table_path: str) -> str:
    """Return the path of `<table>_quarantine`."""
    return _beside(table_path, "_quarantine")


def receipts_path(table_path: str) -> str:
    """Return the path of `<table>_receipts`."""
    return _beside(table_path, "_receipts")


def flow_path(table_path: str, flow: str) -> str:
    """Return what a once-flow's lock is named after: nothing lies there."""
    return _beside(table_path, f".{flow}")


def lock_file(path: Path) -> Path:
    """Return the lock file of whatever lies at a local path."""
    return path.with_name(path.name + ".lock")


def commit_file(table_path: str, version: int) -> str:
    """Return the file of one commit in a table's log, as a reader of files takes it: letters of a pattern escaped."""
    escaped = re.sub(r"([\[\]{}*?\\])", r"\\\1", table_path)
    return f"{escaped}/_delta_log/{version:020d}.json"


def _beside(table_path: str, suffix: str) -> str:
    return table_path.rstrip("/") + suffix
