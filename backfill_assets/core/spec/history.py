"""The part of a table that its source has: its history may begin after the table does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backfill_assets.core.calendar.partitions import Grid
    from backfill_assets.core.spec.table import TableSpec


def history_of(spec: TableSpec) -> Grid:
    """Return the partitions that a table's source can fill.

    Those before it are of something else, such as flows that load a range once, and none of them is missing.
    """
    return replace(spec.grid, start=spec.source.begins(spec.start))
