"""Commands act on the lakehouse that the definitions name, wherever the environment points."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from backfill_assets.assets.catch_up import history_until
from backfill_assets.commands.project import Project
from backfill_assets.errors import ConfigurationError
from backfill_assets.runs.resources import Lakehouse
from tests.commands.places import MODULE, Place, new_place
from tests.support.launching import ORDERS
from tests.support.shop import json_line, opened, orders, rows_in

DAY_1, DAY_2, DAY_3 = (f"2024-01-0{n}" for n in range(1, 4))
SPEC = {
    "latest_wins_by": ["ordered_at"],
    "live": {"path": "events", "starts": DAY_3},
    "once": {"ranges": {"orders_early": f"{DAY_1}...{DAY_2}"}},
}


class SubLakehouse(Lakehouse):
    """A lakehouse that knows its place."""

    place: str

    @property
    def root_uri(self) -> str:
        return f"{self.place}/ours"


# -- which lakehouse ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configured", "below_root"),
    [
        pytest.param(lambda root: Lakehouse(root=str(root)), "", id="a root"),
        pytest.param(lambda _: Lakehouse(root=dg.EnvVar("ROOT_OF_THE_SHOP")), "", id="a variable of the environment"),
        pytest.param(lambda root: SubLakehouse(place=str(root)), "/ours", id="a subclass"),
    ],
)
def test_the_lakehouse_of_the_definitions_is_made_as_dagster_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configured, below_root
):
    """A fixed root, a root from a variable and a resource of one's own: each means to a command what it means to a run."""
    monkeypatch.setenv("LAKEHOUSE_ROOT", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("ROOT_OF_THE_SHOP", str(tmp_path))
    project = Project(MODULE, dg.Definitions(resources={"lakehouse": configured(tmp_path)}))
    with project:
        assert project.lakehouse.root_uri == f"{tmp_path}{below_root}"


def test_definitions_without_a_root_leave_it_to_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where the definitions name no root, `LAKEHOUSE_ROOT` does."""
    monkeypatch.setenv("LAKEHOUSE_ROOT", str(tmp_path))
    with Project.load("backfill_assets.definitions") as project:
        assert project.lakehouse.root_uri == str(tmp_path)


@pytest.mark.parametrize(
    ("resources", "says"),
    [
        pytest.param({}, "have no resource `lakehouse`", id="none"),
        pytest.param(
            {"lakehouse": Lakehouse(root=dg.EnvVar("NOT_SET_ANYWHERE"))}, "NOT_SET_ANYWHERE", id="a variable not set"
        ),
    ],
)
def test_a_lakehouse_that_cannot_be_made_is_said(resources, says):
    """Definitions without a lakehouse, or with one whose variable is not set: one clear error, and nothing is read."""
    with pytest.raises(ConfigurationError, match=says), Project(MODULE, dg.Definitions(resources=resources)) as project:
        _ = project.lakehouse


# -- every command -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Place:
    """Two days of history by a once-flow's range, and one event, below the root that the definitions name."""
    place = new_place(tmp_path_factory.mktemp("place"), **SPEC)
    for day in (DAY_1, DAY_2):
        place.lake.export(day, orders(day))
    events = place.lake.root / "landing/events"
    events.mkdir(parents=True)
    (events / "a.json").write_text("".join(f"{json_line({**row, 'coupon': 'x'})}\n" for row in orders(DAY_3)))
    job = place.lake.definitions.resolve_implicit_global_asset_job_def()
    flow = job.get_subset(asset_selection={dg.AssetKey(["bronze", "orders_early"])})
    assert place.lake._execute(flow, None, None, {}, None).succeeded
    return place


@pytest.mark.prove
@pytest.mark.spark
def test_every_command_acts_on_the_root_of_the_definitions(place: Place):
    """Writing live, moving the fence, reconciling, resetting a flow, adding a column: all below the configured root."""
    table = place.lake.path()
    assert len(rows_in(table)) == 6

    live = place.run("live", ORDERS, "--once")
    assert live.exit_code == 0, live.output
    assert len(rows_in(table)) == 9

    moved = place.run("fence", ORDERS, "--at", "2024-01-04T00:00:00Z", "--json")
    assert moved.exit_code == 0, moved.output
    assert json.loads(moved.stdout)["was"] == "2024-01-03T00:00:00+00:00"
    shown = json.loads(place.run("fence", ORDERS, "--json").stdout)
    assert (shown["fence"], shown["epoch"]) == ("2024-01-04T00:00:00+00:00", json.loads(moved.stdout)["epoch"])
    with place.instance() as instance:  # whatever the stream does: days that were sealed are caught up
        until = history_until(instance, place.lake.spec, datetime(2030, 1, 1, tzinfo=UTC))
    assert until == datetime(2024, 1, 4, tzinfo=UTC)

    compared = place.run("reconcile", ORDERS, "--partition-range", f"{DAY_1}...{DAY_2}", "--json")
    assert compared.exit_code == 0, compared.output
    assert [(p["partition"], p["table_rows"]) for p in json.loads(compared.stdout)["partitions"]] == [
        (DAY_1, 3),
        (DAY_2, 3),
    ]

    reset = place.run("once", ORDERS, "--reset", "all", "--json")
    assert reset.exit_code == 0, reset.output
    assert json.loads(reset.stdout)["reset"] == ["orders_early"]

    proposed = json.loads(place.run("schema", ORDERS, "--json").stdout)["columns"]
    (coupon,) = [column for column in proposed if column["column"] == "coupon"]
    assert (coupon["action"], coupon["what"]) == (
        "add",
        "new nullable column: live events have it, and the history does not",
    )

    version = opened(table).version()
    place.lake.changes = {
        **SPEC,
        "columns": {**place.lake.spec.model_dump(exclude_unset=True)["columns"], "channel": "string"},
    }
    applied = place.run("schema", ORDERS, "--apply", "--json")
    assert applied.exit_code == 0, applied.output
    assert (json.loads(applied.stdout)["added"], opened(table).version()) == (["channel"], version + 1)

    drafted = place.run("init", "bronze/visits", "--from", "orders", "--output", "-")
    assert drafted.exit_code == 0, drafted.output
    assert "key_columns: [order_id]" in drafted.stdout

    for command, code in (("stop", 0), ("resume", 2)):  # the history that the commands write knows of no launch
        nothing = place.run(command, ORDERS, "--json")
        assert nothing.exit_code == code, nothing.output

    far = place.run("fence", ORDERS, "--at", "2042-01-01T00:00:00Z", "--yes", "--json")
    assert (far.exit_code, json.loads(far.stdout)["fence"]) == (0, "2042-01-01T00:00:00+00:00"), far.output
