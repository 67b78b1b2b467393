"""The demo in small: the whole story as `make demo` tells it, with fewer days."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

import deltalake
import psutil
import pytest

from tests.e2e.world import new_world

pytestmark = [pytest.mark.e2e, pytest.mark.long]

DAYS = 31


def left_running(folder: Path) -> list[str]:
    """The commands of processes that know a folder by their environment; a JVM whose process has ended may take 20 s."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(folder) in process.environ().get("LAKEHOUSE_ROOT", ""):
                found.append(process)
    return [" ".join(process.cmdline()) for process in psutil.wait_procs(found, timeout=20)[1]]


def test_the_demo_ends_as_it_should(tmp_path: Path):
    """Every step ends as it should, and nothing keeps running; for another reader each day has rows, no order twice.

    Also for whoever has named definitions of their own: it tells of the shop's.
    """
    world = new_world(tmp_path, {"BACKFILL_ASSETS_DEFINITIONS": "shop.definitions"})

    told = world.run("backfill-assets", "demo", "--days", f"{DAYS}", "--orders-per-day", "20")

    assert told.returncode == 0, told.stdout[-6000:] + told.stderr[-3000:]
    assert "Every step ended as it should" in told.stdout
    orders = deltalake.DeltaTable(str(world.path())).to_pyarrow_table(columns=["order_id", "ordered_at"])
    days = {at.date() for at in orders["ordered_at"].to_pylist() if at.year < 2026}
    assert len(days) == DAYS
    assert [order for order, times in Counter(orders["order_id"].to_pylist()).items() if times > 1] == []
    assert left_running(world.lakehouse) == []


@pytest.mark.prove
def test_the_demo_of_a_database_ends_as_it_should(tmp_path: Path):
    """Every step ends as it should, the writer and the capture killed on the way; nothing keeps running."""
    world = new_world(tmp_path)

    told = world.run("backfill-assets", "demo", "database", "--customers", "2000", "--rate", "10")

    assert told.returncode == 0, told.stdout[-6000:] + told.stderr[-3000:]
    assert "Every step ended as it should" in told.stdout
    assert not (world.lakehouse / "database/data/postmaster.pid").exists()
    keys = deltalake.DeltaTable(str(world.path("bronze/customers"))).to_pyarrow_table(columns=["customer_id"])
    assert max(Counter(keys["customer_id"].to_pylist()).values()) == 1


@pytest.mark.prove
def test_the_demo_of_a_version_ends_as_it_should(tmp_path: Path):
    """Every step ends as it should; in the end the first versions are current, and both have the same orders."""
    world = new_world(tmp_path)

    told = world.run("backfill-assets", "demo", "--orders-per-day", "20", "version")

    assert told.returncode == 0, told.stdout[-6000:] + told.stderr[-3000:]
    assert "Every step ended as it should" in told.stdout
    lakehouse = world.lakehouse / "versions/lakehouse"
    current = deltalake.DeltaTable(lakehouse / "_current").to_pyarrow_table().to_pylist()
    assert {row["name"] for row in current} == {row["key"] for row in current}
    ids = [
        sorted(deltalake.DeltaTable(lakehouse / "tables" / key).to_pyarrow_table()["order_id"].to_pylist())
        for key in ("bronze/orders", "bronze/orders__v2")
    ]
    assert ids[0] == ids[1]
    with world.here() as lake:
        assert lake.instance.get_runs_count() == 0, "the history of the other tables of these names tells nothing of it"
