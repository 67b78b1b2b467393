"""What the log of a Delta table says, read by delta-rs: in milliseconds, and without a JVM."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deltalake
from deltalake.exceptions import DeltaError


def rows_by_partition(
    folder: Path, partition_column: str, *, version: int | None = None
) -> dict[str, int | None] | None:
    """Return how many rows a table has in each value of its partition column, whoever wrote them.

    The rows are those that the files' statistics count (`numRecords`).

    Args:
        folder: Of the table.
        version: The newest if not given.

    Returns:
        None for a value where a file has no statistics, and for every value of a table with deletion vectors, whose
        rows delta-rs does not tell. Only None if delta-rs cannot open the table, for example because its columns are
        mapped.
    """
    try:
        table = deltalake.DeltaTable(str(folder), version=version)
        has_deletion_vectors = "deletionVectors" in (table.protocol().reader_features or ())
        files = table.get_add_actions(flatten=True)
        values: Any = files.column(f"partition.{partition_column}").to_pylist()
        counts: Any = files.column("num_records").to_pylist()
    except (DeltaError, OSError, ValueError, KeyError):  # another reader has to look
        return None
    found: dict[str, int | None] = {}
    for value, count in zip(values, counts, strict=True):
        so_far = found.get(str(value), 0)
        found[str(value)] = None if so_far is None or count is None or has_deletion_vectors else so_far + count
    return found


def live_rows(file: Mapping[str, Any]) -> int | None:
    """Return how many rows of a file are in the table; None if the log does not say.

    Args:
        file: As the log has it: statistics as text, and which of its rows were deleted.
    """
    count: int | None = json.loads(file.get("stats") or "{}").get("numRecords")
    return None if count is None else count - (file.get("deletionVector") or {}).get("cardinality", 0)
