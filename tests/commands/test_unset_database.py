"""The shop's tables that follow a database, where nobody has said which: they say so, and all others are as ever."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import dagster as dg
import pytest

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.assets.factory import tables_of
from backfill_assets.assets.reconciliation import RECONCILIATION, RECONCILIATION_JOB, check_name
from backfill_assets.assets.status import status_of_tables
from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.definitions import defs
from backfill_assets.runs.resources import Lakehouse
from tests.commands.places import Place, below, new_place
from tests.support.shop import frame_of, orders, orders_spec, receipt_for

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

OF_DATABASE = ["bronze/audit_log", "bronze/customers"]
OTHERS = ["bronze/orders", "bronze/registration_events", "gold/monthly_revenue", "silver/daily_sales"]


@pytest.fixture
def place(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The shop as it is shipped, with nothing in it, and no database."""
    monkeypatch.delenv("SHOP_DATABASE", raising=False)
    monkeypatch.setenv("LAKEHOUSE_ROOT", str(tmp_path / "elsewhere"))
    return new_place(tmp_path)


@pytest.fixture(scope="module")
def shop() -> dg.Definitions:
    return defs(None)


def test_status_says_so_in_their_rows(place, shop):
    """Each says what to set; the others are looked at, and nothing is written."""
    told = place.run("status", "--json", definitions=shop)
    found = {one["table"]: one for one in json.loads(told.stdout)["tables"]}
    assert (told.exit_code, list(found)) == (0, sorted(OF_DATABASE + OTHERS))
    assert {found[key]["state"] for key in found} == {"NOT_STARTED"}
    for key in OF_DATABASE:
        assert found[key]["wrong"] == "set SHOP_DATABASE: it is to hold the address of its database"
    assert [found[key]["wrong"] for key in OTHERS] == [None] * len(OTHERS)
    assert below(place.elsewhere) == {}
    with place.instance() as instance:
        tables, _ = tables_of(shop)
        page = status_of_tables(instance, tables, {}, now_utc=_now())
    assert [key for key, text in page.items() if "Set `SHOP_DATABASE`" in text] == OF_DATABASE


@pytest.mark.prove
def test_gaps_of_all_tables_are_those_of_the_others(place, shop):
    """They are mentioned and no gap; who asks for one of them is told what is missing."""
    told = place.run("gaps", "--json", definitions=shop)
    found = {one["table"]: one for one in json.loads(told.stdout)["tables"]}
    assert (told.exit_code, [key for key in found if found[key]["problem"]]) == (0, OF_DATABASE)
    assert "`SHOP_DATABASE`" in found["bronze/customers"]["problem"]
    asked = place.run("gaps", "bronze/customers", definitions=shop)
    assert (asked.exit_code, "`SHOP_DATABASE`" in asked.stderr, "Traceback" in asked.stderr) == (2, True, False)


@pytest.mark.prove
def test_the_nightly_reconciliation_only_warns(place, shop):
    """Its checks of them are neither green nor an alarm; those of the others are as ever."""
    with place.instance() as instance:
        result = shop.resolve_job_def(RECONCILIATION_JOB).execute_in_process(instance=instance, raise_on_error=False)
    found = {
        e.check_name: e for e in result.get_asset_check_evaluations() if e.asset_key == dg.AssetKey(RECONCILIATION)
    }
    assert result.success
    assert {key for key in OF_DATABASE + OTHERS if found[check_name(key)].passed} == set(OTHERS)
    for key in OF_DATABASE:
        check = found[check_name(key)]
        assert (check.severity, "`SHOP_DATABASE`" in check.description) == (dg.AssetCheckSeverity.WARN, True)


@pytest.mark.parametrize(
    "command",
    [
        ["plan", "bronze/customers", "--partition-range", "2025-01-01...2025-01-03"],
        ["live", "bronze/customers", "--once"],
        ["capture", "shop", "--once"],
    ],
    ids=" ".join,
)
def test_whoever_needs_the_database_is_told_what_to_set(place, shop, command):
    """One message that names the variable, and no stack trace."""
    told = place.run(*command, definitions=shop)
    assert (told.exit_code, "Traceback" in told.output) == (2, False)
    assert "the environment variable `SHOP_DATABASE` is to hold the address" in told.stderr


@pytest.mark.prove
def test_a_launch_says_what_to_set(place, shop):
    """The run fails with the message; of the table that is never loaded it says that."""
    for key, words in (("bronze/customers", "SHOP_DATABASE"), ("bronze/audit_log", "backfill: excluded")):
        with place.instance() as instance:
            asset = dg.AssetKey(key.split("/"))
            job = shop.resolve_implicit_global_asset_job_def().get_subset(asset_selection={asset})
            tags = {
                "dagster/asset_partition_range_start": "2025-01-01",
                "dagster/asset_partition_range_end": "2025-01-02",
            }
            result = job.execute_in_process(instance=instance, tags=tags, raise_on_error=False)
        assert not result.success
        assert any(words in str(event.event_specific_data) for event in result.all_events if event.is_step_failure)


def _now() -> datetime:
    return datetime.now(UTC)


@pytest.mark.prove
def test_of_a_table_that_is_published_it_is_no_warning(place, tmp_path):
    """Somebody uses it: whoever looks is told, by the exit code and a red check, and not that it was never begun."""
    spec = orders_spec(source={"kind": "jdbc", "connection": "SHOP_DATABASE", "table": "orders"})
    definitions = lakehouse_definitions(build_lakehouse_table(spec), lakehouse=Lakehouse(root=str(place.lake.root)))
    table = Lakehouse(root=str(place.lake.root)).table(spec, print)
    table.create()
    (day,) = spec.grid.between("2024-01-01", "2024-01-01")
    rows = frame_of(table.spark, spec, orders(day.key, 3))
    table.overwrite(StagedChunk(rows, {}, {}, None, lambda: None), [day], receipt_for(table, [day]))

    told = place.run("gaps", "--json", definitions=definitions)
    assert told.exit_code == 2, told.output
    told = json.loads(place.run("status", "--json", definitions=definitions).stdout)["tables"]
    assert told[0]["state"] is None
    assert "1 partitions of the table are published" in told[0]["wrong"]
    with place.instance() as instance:
        job = definitions.resolve_job_def(RECONCILIATION_JOB)
        result = job.execute_in_process(instance=instance, raise_on_error=False)
    checks = {
        e.check_name: e for e in result.get_asset_check_evaluations() if e.asset_key == dg.AssetKey(RECONCILIATION)
    }
    assert checks[check_name(spec.key)].severity == dg.AssetCheckSeverity.ERROR
