"""`backfill-assets reconcile`: exit codes, what it names, and what it leaves in Dagster's history."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import deltalake
import pyarrow.csv as csv
import pytest
from click.testing import CliRunner, Result

from backfill_assets.assets.reconciliation import RECONCILIATION, check_name
from backfill_assets.cli import main
from tests.e2e.world import ORDERS, World, new_world, shop_orders
from tests.support.launching import key_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAY_1, DAY_2, DAY_3 = DAYS = ("2023-01-01", "2023-01-02", "2023-01-03")

Command = Callable[..., Result]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> World:
    """Three days are in the table; of the second, one order was taken out behind our back."""
    world = new_world(tmp_path_factory.mktemp("loaded"))
    for day in DAYS:
        world.export(day, shop_orders(day))
    with world.here() as lake:
        assert lake.launch(DAY_1, DAY_3).succeeded
    deltalake.DeltaTable(str(world.path())).delete(f"dt = '{DAY_2}' AND customer_id = 1")
    return world


@pytest.fixture(scope="module")
def command(loaded: World) -> Iterator[Command]:
    """The command in this process, which has Spark already."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in loaded.environment.items():
            if name in ("DAGSTER_HOME", "LAKEHOUSE_ROOT", "COLUMNS"):
                patch.setenv(name, value)
        yield lambda *words: CliRunner().invoke(main, ["reconcile", *words])


@pytest.fixture(scope="module")
def one_day(command: Command) -> Result:
    """A range of one day, which equals its source."""
    return command(ORDERS, "--partition-range", f"{DAY_1}...{DAY_1}")


def statuses(world: World, partition: str) -> list[str]:
    """How the newest comparisons of a partition ended, newest first."""
    with world.here() as lake:
        key = dg.AssetCheckKey(key_of(ORDERS), "reconciled")
        history = lake.instance.event_log_storage.get_asset_check_execution_history(key, limit=100)
        return [record.status.value for record in history if record.partition == partition]


def test_a_difference_exits_with_1_and_is_named(loaded: World, command: Command):
    """Exit code 1, and the terminal shows the partition, both counts, the rule and the row."""
    ran = command(ORDERS)
    assert ran.exit_code == 1, ran.output[-3000:]
    assert DAY_2 in ran.stdout
    assert DAY_1 not in ran.stdout
    assert (
        "rows_match_source: the table has 2 rows, 1 fewer than its source (3); 1 rows only in the source, 0 only in the table."
        in (" ".join(ran.stdout.replace("│", " ").split()))
    )
    assert f"only in the source: order_id={shop_orders(DAY_2)[1]['order_id']}" in ran.stdout
    assert f"{ORDERS}: 1 of 3 partitions differ from their source." in ran.stdout
    assert statuses(loaded, DAY_2)[0] == "FAILED"


def test_json_is_all_that_is_printed(command: Command, tmp_path: Path):
    """`--json` prints one object, with every partition that was compared and every rule that does not hold.

    Rows that differ go into a file of their own, both sides of each beside what is wrong with it.
    """
    file = tmp_path / "rows.csv"
    ran = command(ORDERS, "--json", "--partition-range", f"{DAY_2}...{DAY_3}", "--rows", str(file))
    assert ran.exit_code == 1
    report = json.loads(ran.stdout)
    assert (report["table"], report["passed"], report["left_out"]) == (ORDERS, False, [])
    second, third = report["partitions"]
    assert (second["partition"], second["passed"], second["source_rows"], second["table_rows"]) == (DAY_2, False, 3, 2)
    assert [failure["rule"] for failure in second["failures"]] == ["rows_match_source"]
    assert (third["partition"], third["passed"], third["failures"]) == (DAY_3, True, [])
    assert third["source_checksum"] == third["table_checksum"]
    (row,) = csv.read_csv(file).to_pylist()
    told = (str(row["partition"]), row["difference"], row["source_times"], row["table_times"])
    assert told == (DAY_2, "missing", 1, 0)
    assert (row["customer_id_source"], row["customer_id_table"]) == (1, None)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.prove
def test_rows_that_differ_are_explained(command: Command):
    """With their values on the terminal, and in JSON; nothing of that is in Dagster's history."""
    shown = command(ORDERS, "--explain")
    assert shown.exit_code == 1
    lost = shop_orders(DAY_2)[1]
    assert f"{ORDERS}: rows that differ" in shown.stdout
    assert f"order_id={lost['order_id']}" in shown.stdout
    assert "missing" in shown.stdout
    report = json.loads(command(ORDERS, "--json", "--explain").stdout)
    (row,) = report["rows"]
    assert (report["row_differences"], row["partition"], row["kind"], row["table"]) == (1, DAY_2, "missing", None)
    assert row["source"]["customer_id"] == "1"


def test_a_file_that_cannot_be_written_is_refused_first(command: Command, tmp_path: Path):
    """Before an hour of comparing."""
    ran = command(ORDERS, "--rows", str(tmp_path / "no/folder.csv"))
    assert ran.exit_code == 2
    assert "cannot be written" in " ".join(ran.stderr.split())


@pytest.mark.usefixtures("one_day")
def test_the_whole_table_is_judged_too(loaded: World):
    """Each run, of one day too, also records whether every partition of the table is reconciled."""
    with loaded.here() as lake:
        key = dg.AssetCheckKey(dg.AssetKey(RECONCILIATION), check_name(ORDERS))
        (newest,) = lake.instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    assert newest.status.value == "FAILED"
    assert "1 of 3 partitions are not reconciled" in newest.event.dagster_event.asset_check_evaluation_data.description


@pytest.mark.prove
def test_it_can_be_repeated(loaded: World, command: Command):
    """Run twice it records two comparisons, which Dagster keeps apart by their runs.

    One tag is the same in all runs of one command and in no others; the range and the part are tags that the UI shows.
    """
    before = len(statuses(loaded, DAY_3))
    for _ in range(2):
        assert command(ORDERS, "--partition-range", f"{DAY_3}...{DAY_3}").exit_code == 0
    assert statuses(loaded, DAY_3)[:2] == ["SUCCEEDED", "SUCCEEDED"]
    assert len(statuses(loaded, DAY_3)) == before + 2
    with loaded.here() as lake:
        last, its_first, *others = [run.tags for run in lake.instance.get_runs(limit=4)]
    assert [last["part"], its_first["part"], its_first["partitions"]] == ["whole table", "partitions", DAY_3]
    assert last["reconcile"] == its_first["reconcile"]
    assert last["reconcile"].startswith(f"{ORDERS} ")
    assert {tags["reconcile"] for tags in others}.isdisjoint({last["reconcile"]})


def test_days_beyond_the_source_are_left_out(command: Command):
    """Partitions for which the source is not complete are not compared, and named as left out."""
    ran = command(ORDERS, "--json", "--partition-range", f"{DAY_3}...2023-01-05")
    assert ran.exit_code == 0
    assert json.loads(ran.stdout)["left_out"] == ["2023-01-04", "2023-01-05"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(
            ["bronze/order"], "There is no table `bronze/order` in `backfill_assets.definitions`.", id="unknown table"
        ),
        pytest.param(
            [ORDERS, "--partition-range", f"{DAY_3}...{DAY_1}"],
            f"The range `{DAY_3}...{DAY_1}` is reversed",
            id="reversed",
        ),
        pytest.param(["gold/monthly_revenue"], "source has nothing yet", id="nothing to compare"),
    ],
)
def test_a_wrong_command_exits_with_2(command: Command, words: list[str], says: str):
    """A command that cannot be done exits with 2, says what is wrong in one message, and shows no stack."""
    ran = command(*words)
    assert ran.exit_code == 2, ran.output
    assert says in ran.stderr
    assert "Traceback" not in ran.output
    assert ran.stdout == ""
