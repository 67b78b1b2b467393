"""How long a launch can be taken back follows from what Delta keeps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from backfill_assets.core.history.undo_plan import plan_undo
from backfill_assets.core.history.undo_window import undo_window
from tests.core.history.test_undo import FIRST_DAY, undo_of, write
from tests.core.history.world import World
from tests.support.docstring_tables import table_of
from tests.support.fakes import ORDERS

NAMES = ("deletedFileRetentionDuration", "logRetentionDuration")


@pytest.mark.parametrize("row", table_of(undo_window), ids=lambda row: " ".join(row.values()))
def test_what_is_kept_is_what_the_docstring_says(row):
    """Every row of the table of cases; what is shorter than 30 days is warned of, with the property that says so."""
    window = undo_window({f"delta.{name}": row[name] for name in NAMES if row[name]})
    hours = int(row["kept, in hours"])
    assert window.kept == timedelta(hours=hours)
    noon = datetime(2024, 3, 1, 12, tzinfo=UTC)
    assert window.until(noon) == noon + timedelta(hours=hours)
    assert bool(window.warning("bronze/orders")) is (hours < 720)


@pytest.mark.parametrize(("writes", "replaced_by"), [("O1 L2 L3", 2), ("O1 L2 O3 L4", 4), ("O1", None)])
def test_it_is_kept_from_when_the_launch_first_replaced_it(writes, replaced_by):
    """A launch that was executed again wrote a partition twice: what it held before is as old as the first write."""
    world = World()
    for number, what in enumerate(writes.split(), start=1):
        write(world.lake, what[0], number)
    replaced_at = plan_undo(ORDERS, world.lake, undo_of("launch L")).replaced_at
    assert replaced_at == (replaced_by and FIRST_DAY + replaced_by * timedelta(days=20))
