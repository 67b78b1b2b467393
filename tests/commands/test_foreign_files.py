"""Files that somebody else put into a partition: whoever only looks sees that its rows are not those of its receipt."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.commands.places import Place, new_place
from tests.support.launching import ORDERS
from tests.support.shop import orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAYS = ["2024-01-01", "2024-01-02"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = new_place(tmp_path)
    for day in DAYS:
        found.lake.export(day, orders(day))
    assert found.lake.launch(DAYS[0], DAYS[-1]).succeeded
    return found


def gaps(place: Place) -> dict[str, str]:
    (found,) = json.loads(place.run("gaps", ORDERS, "--json").stdout)["tables"]
    return {one["partition"]: one["why"][0] for one in found["gaps"]}


def log_of(place: Place) -> list[Path]:
    return sorted((place.lake.path() / "_delta_log").glob("*.json"))


def test_another_spelling_of_a_day_is_seen(place):
    """Spark reads the day twice; the number of rows says so, whatever the log calls the day."""
    lines = [line for file in log_of(place) for line in file.read_text().splitlines()]
    (add,) = [
        one["add"] for one in map(json.loads, lines) if one.get("add", {}).get("partitionValues") == {"dt": DAYS[1]}
    ]
    shutil.copy(place.lake.path() / add["path"], place.lake.path() / "foreign.parquet")
    add |= {"path": "foreign.parquet", "partitionValues": {"dt": f" {DAYS[1]}"}}
    commit = log_of(place)[-1].with_name(f"{len(log_of(place)):020d}.json")
    commit.write_text(json.dumps({"add": add}) + "\n")
    assert gaps(place) == {DAYS[1]: "published with 3 rows, and has 6: somebody else wrote it"}


def test_a_log_that_lost_its_first_commits_is_seen(place):
    """The reader of the log opens the table all the same, and finds fewer rows than were published."""
    place.lake.export(DAYS[1], orders(DAYS[1], 4))
    assert place.lake.launch(DAYS[1]).succeeded
    for file in log_of(place)[:2]:
        file.unlink()
    assert gaps(place)[DAYS[0]] == "published with 3 rows, and has 0: somebody else wrote it"


def test_a_lost_file_hides_no_other_day(place):
    """Not even if the log does not say how many rows the files of another day have."""
    for file in log_of(place):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for add in (line["add"] for line in lines if line.get("add", {}).get("partitionValues") == {"dt": DAYS[1]}):
            del add["stats"]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for crc in (place.lake.path() / "_delta_log").glob("*.crc"):
        crc.unlink()
    (lost,) = (place.lake.path() / f"dt={DAYS[0]}").glob("*.parquet")
    lost.unlink()
    assert list(found := gaps(place)) == [DAYS[0]]
    assert "cannot be read" in found[DAYS[0]]
