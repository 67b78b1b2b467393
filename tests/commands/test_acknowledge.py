"""`live --acknowledge`: a file that changed after it landed is dealt with, and the checks are green until it changes again."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backfill_assets.core.live.checks import LiveCheck
from backfill_assets.live.fence_queries import inspect
from backfill_assets.runs.resources import Lakehouse
from tests.commands.places import Place, new_place
from tests.support.launching import ORDERS
from tests.support.shop import json_line, orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAY = "2024-01-03"


def checks(place: Place) -> dict[str, LiveCheck]:
    """What is found around the fence, long after the day."""
    spec, lakehouse = place.lake.spec, Lakehouse(root=str(place.lake.root))
    table, now = lakehouse.live_table(spec, lambda _: None), datetime.now(UTC)
    assert spec.live is not None
    folder, at = lakehouse.landing_path(spec.live.path), lakehouse.checkpoint_path(ORDERS)
    return {found.name: found for found in inspect(table, spec.live, folder, checkpoint=at, now=now)}


def written(place: Place, file: Path, *numbers: int) -> None:
    rows = orders(DAY, 4)
    with file.open("a") as lines:
        lines.write("".join(f"{json_line(rows[number])}\n" for number in numbers))
    assert place.run("live", ORDERS, "--once").exit_code == 0


@pytest.mark.prove
def test_a_file_that_was_dealt_with_is_told_and_green(tmp_path):
    """After the lost line has landed again both checks are green; a line that has not is a gap; another change is red."""
    place = new_place(tmp_path, latest_wins_by=["ordered_at"], live={"path": "events", "starts": DAY})
    folder = place.lake.root / "landing/events"
    folder.mkdir(parents=True)
    first = folder / "a b.json"
    written(place, first, 0, 1)
    written(place, first, 2)
    found = checks(place)
    assert not found["landed_files_are_as_read"].passed
    assert f"--acknowledge file:{first}`" in found["landed_files_are_as_read"].what

    refused = place.run("live", ORDERS, "--acknowledge", str(folder / "b.json"))
    assert refused.exit_code == 2
    assert f"Changed are: `file:{first}`." in " ".join(refused.stderr.split())
    noted = place.run("live", ORDERS, "--acknowledge", str(first))
    assert (noted.exit_code, noted.stdout) == (0, f"{ORDERS}: 1 files are noted as dealt with.\n")
    found = checks(place)
    assert found["landed_files_are_as_read"].passed
    assert f"(`file:{first}` as " in found["landed_files_are_as_read"].what
    assert "the table has 2 rows, and 3 events landed" in found["no_gap_at_fence"].partitions[DAY]

    written(place, folder / "b.json", 2)
    assert DAY not in checks(place)["no_gap_at_fence"].partitions
    os.utime(first, (0, first.stat().st_mtime - 60))
    assert not checks(place)["landed_files_are_as_read"].passed, "what was said was of the file as it was"
