"""Six ways in which backfills fail elsewhere: cost, load, downtime, an old schema, a stall, and slips of a person."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from tests.commands.places import Place, copied, new_place
from tests.support.launching import ORDERS, Ran
from tests.support.shop import SCHEMA, Row, content, folder_of, multiset, orders, write_parquet

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAYS = [f"2024-01-0{n}" for n in range(1, 5)]
RANGE = f"{DAYS[0]}...{DAYS[-1]}"


def rows_of(*days: str) -> list[Row]:
    return [row for day in days for row in orders(day, 4)]


@pytest.fixture(scope="module")
def at_first(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Place:
    place = new_place(tmp_path_factory.mktemp("shop"))
    for day in DAYS:
        place.lake.export(day, orders(day, 4))
    assert launch(place, *DAYS[:2]).succeeded
    return place


@pytest.fixture
def place(at_first: Place, tmp_path: Path) -> Place:
    """Four days at the source, of which two are published."""
    return copied(at_first, tmp_path)


def launch(place: Place, first: str = DAYS[0], last: str = DAYS[-1], **config: object) -> Ran:
    """Launch days in the history that the commands have too."""
    with place.instance() as place.lake.instance:
        return place.lake.launch(first, last, **config)


def version(place: Place) -> int:
    return deltalake.DeltaTable(str(place.lake.path())).version()


def export_texts(place: Place, day: str) -> None:
    """Let the old system write amounts as texts, one of which is no number."""
    folder = folder_of(place.lake.root / "landing/orders", day)
    shutil.rmtree(folder)
    amounts = pa.array(["1.25", "2.25", "3.25", "n/a"])
    table = pa.Table.from_pylist(orders(day, 4), schema=SCHEMA)
    texts = table.set_column(table.schema.get_field_index("amount"), "amount", amounts)
    write_parquet(folder, texts.to_pylist(), schema=texts.schema)


def test_cost_is_known_before(place, tmp_path):
    """A plan says what its launch costs, and which smaller one would do; it writes nothing."""
    (tmp_path / "prices.yaml").write_text("currency: USD\nper_gb: 0.50\nper_hour: 0.14\n")
    before = version(place)
    shown = place.run("plan", ORDERS, "--partition-range", RANGE, "--prices", str(tmp_path / "prices.yaml")).stdout
    assert f"launches only {DAYS[2]}...{DAYS[3]}." in shown
    assert "USD, instead of " in shown
    assert version(place) == before


def test_load_on_the_source_is_bounded(place):
    """No more files a second are read than the table's pace allows, and the launch says how long it waited for that."""
    place.lake.changes = {"pace": {"max_files_per_second": 0.1}}
    began = datetime.now(UTC)
    ran = launch(place, DAYS[2], DAYS[3], max_partitions_per_chunk=1)
    assert ran.succeeded
    assert (datetime.now(UTC) - began).total_seconds() > 9
    assert "for `max_files_per_second`" in ran.launch


def test_no_reader_meets_an_empty_table(place):
    """Days that are launched again are whole in every version: as they were, or as they are."""
    first = version(place)
    for day in DAYS[:2]:
        place.lake.export(day, orders(day, 4, amount=Decimal("9.99")))
    assert launch(place, max_partitions_per_chunk=1).succeeded
    assert version(place) == first + len(DAYS)
    for seen in range(first, version(place) + 1):
        found = deltalake.DeltaTable(str(place.lake.path()), version=seen).to_pyarrow_table(columns=["dt"])
        assert [found["dt"].to_pylist().count(datetime.fromisoformat(day).date()) for day in DAYS[:2]] == [4, 4]


def test_old_schema_writes_nothing(place):
    """The spec is behind its source, whose amounts are texts by now: the day is refused, and the schema is named."""
    before = version(place)
    export_texts(place, DAYS[1])
    ran = launch(place, DAYS[1], DAYS[1])
    assert not ran.succeeded
    assert "amount" in ran.failure
    assert (version(place), place.lake.content()) == (before, multiset(rows_of(*DAYS[:2])))


def test_stalled_launch_has_three_ways_out(place):
    """It met another type in its middle. It can be resumed there, taken back, and begun again."""
    export_texts(place, DAYS[2])
    stalled = launch(place, rewrite_identical=True, max_partitions_per_chunk=1, max_refused=1)
    assert (stalled.succeeded, stalled.recorded()) == (False, DAYS[:2])
    place.lake.export(DAYS[2], orders(DAYS[2], 4))
    before = version(place)

    resumed = place.run("resume", ORDERS, "--json")
    assert resumed.exit_code == 0, resumed.output
    assert version(place) == before + 2, "a commit for each day that was left"
    assert place.lake.content() == multiset(rows_of(*DAYS))

    undone = place.run("undo", json.loads(resumed.stdout)["run_id"], "--json")
    assert undone.exit_code == 0, undone.output
    assert place.lake.content() == multiset(rows_of(*DAYS[:2]))

    assert launch(place, rewrite_identical=True).recorded() == DAYS
    assert place.lake.content() == multiset(rows_of(*DAYS))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("plan", ORDERS), "Nothing says which partitions the plan is about."),
        (("plan", ORDERS, "--partition-range", f"{DAYS[-1]}...{DAYS[0]}"), "reversed"),
        (("plan", ORDERS, "--partition-range", f"{DAYS[0]}..."), "There is no partition"),
        (("fence", ORDERS, "--at", "2024-01-04T00:00:00"), "zone"),
    ],
    ids=["without a range", "reversed", "without an end", "without a zone"],
)
def test_slips_write_nothing(place, command, said):
    """A range that is none, and an instant without a zone, end with exit code 2; `gaps` names the days that are missing."""
    place.lake.changes = {"live": {"path": "events", "starts": "2024-01-05"}, "latest_wins_by": ["ordered_at"]}
    before = version(place)
    result = place.run(*command)
    assert (result.exit_code, said in " ".join(result.stderr.split())) == (2, True), result.output
    assert (version(place), content(place.lake.path())) == (before, multiset(rows_of(*DAYS[:2])))
    found = place.run("gaps", ORDERS, "--json")
    assert found.exit_code == 1, found.output
    (of_orders,) = json.loads(found.stdout)["tables"]
    assert [one["partition"] for one in of_orders["gaps"] if "missing" in one["states"]] == DAYS[2:]
