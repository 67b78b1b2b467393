"""The steps of a version: when it may be made, what its history waits for, what is noted, and the views of it."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import deltalake
import duckdb
import pytest

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.commands.version import deploy as deploying
from backfill_assets.lake import definition
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.sources import version
from tests.commands.places import copied, new_place
from tests.commands.versions import DAYS, V2, amounts, both, run, second, stream, streamed, totals
from tests.support.launching import ORDERS, daily_totals
from tests.support.live_shop import event

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.prove
def test_history_before_the_boundary_is_waited_for(spark, tmp_path, monkeypatch):
    """It may be made until ten minutes before; then `deploy` says where the boundary is, and what is to be drained to it."""
    place, shop, definitions = streamed(spark, tmp_path)
    landed(shop.land(event(11, "2024-01-31T23:59:59.999999")), datetime(2024, 1, 19, tzinfo=UTC))
    stream(place, ORDERS, definitions)
    five_minutes_before, before = datetime(2024, 1, 31, 23, 55, tzinfo=UTC), datetime(2024, 1, 20, tzinfo=UTC)
    with monkeypatch.context() as patch:
        patch.setattr(definition, "utc_now", lambda: five_minutes_before)
        assert "has passed" in run(place, "deploy", V2, "--empty", code=2, definitions=definitions)
        patch.setattr(definition, "utc_now", lambda: before)
        run(place, "deploy", V2, "--empty", definitions=definitions)
        patch.setattr(version, "datetime", SimpleNamespace(now=lambda _: before))
        (waiting,) = run(place, "deploy", V2, code=1, definitions=definitions)["waiting"]
        assert waiting["waits_for"] == (
            f"{V2}: 1 partition before its boundary waits. The boundary is at 2024-02-01 00:00 UTC, which is 288.0 h "
            f"ahead; then its version {ORDERS} has to drain to it."
        )
    unread = shop.land(event(12, "2024-01-31T23:59:59.999999"))
    landed(unread, datetime(2024, 1, 25, tzinfo=UTC))  # and it belongs to January
    (waiting,) = run(place, "deploy", V2, code=1, definitions=definitions)["waiting"]
    assert (
        "which has passed; its version bronze/orders is complete until 2024-01-25 00:00:00 UTC" in waiting["waits_for"]
    )
    waited: list[float] = []

    def drained(seconds: float) -> None:
        waited.append(seconds)
        stream(place, ORDERS, definitions)

    monkeypatch.setattr(deploying, "time", SimpleNamespace(sleep=drained))
    done = run(place, "deploy", V2, "--wait", definitions=definitions)
    assert ([one["table"] for one in done["runs"]], done["waiting"], waited) == ([V2], [], [10.0])
    assert run(place, "deploy", V2, definitions=definitions)["runs"] == []


def landed(file: Path, at: datetime) -> None:
    """Let a file have landed at an instant."""
    os.utime(file, (at.timestamp(), at.timestamp()))


@pytest.mark.prove
def test_views_are_made_of_what_is_there(shop_brought_up, tmp_path, spark):
    """Both dialects run as they are printed; a table that was never made is left out, and takes no other with it."""
    place = copied(shop_brought_up, tmp_path / "place")
    never = build_lakehouse_table(
        totals(key="silver/never", source={"kind": "delta", "tables": [V2]}, version_of=None),
        daily_totals,
        inputs={V2: second()},
    )
    definitions = both(place, never)
    text = run(place, "views", definitions=definitions)
    assert "-- silver/never has no view: no launch has made it yet" in text.splitlines()
    statements = [line for line in text.splitlines() if line.startswith("CREATE")]
    try:
        for statement in statements:
            spark.sql(statement.rstrip(";"))
        assert (spark.table("bronze.orders").count(), spark.table("silver.daily_totals").count()) == (16, len(DAYS))
    finally:
        for schema in ("bronze", "silver"):
            spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    for_duckdb = run(place, "views", "--dialect", "duckdb", definitions=definitions)
    assert for_duckdb.splitlines()[0] == "INSTALL delta; LOAD delta;"
    with duckdb.connect() as database:  # the extension is fetched over a network; this reads the same files
        database.execute("CREATE MACRO delta_scan(path) AS TABLE SELECT * FROM read_parquet(path || '/*/*.parquet')")
        database.execute(for_duckdb.partition("\n")[2])
        assert database.execute("SELECT count(*), sum(amount) FROM bronze.orders").fetchone() == (
            16,
            sum(amounts(place, ORDERS)),
        )
        assert database.execute("SELECT count(*) FROM silver.daily_totals").fetchone() == (len(DAYS),)


@pytest.mark.prove
def test_columns_that_are_computed_dropped_and_new(shop_with_totals, tmp_path):
    """What is computed is compared as its new value; what is dropped or new is said not to be, and decides nothing."""
    place = copied(shop_with_totals, tmp_path)
    spec = second(
        columns={"order_id": "bigint", "doubled": "decimal(20,2)", "channel": "string", "ordered_at": "timestamp"},
        version_of={
            "table": ORDERS,
            "computed": {"doubled": "CAST(amount * 2 AS decimal(20,2))"},
            "dropped": ["customer", "amount"],
            "new": ["channel"],
        },
    )
    definitions = lakehouse_definitions(
        build_lakehouse_table(place.lake.spec),
        build_lakehouse_table(spec, inputs={ORDERS: place.lake.spec}),
        lakehouse=Lakehouse(root=str(place.lake.root)),
    )
    run(place, "deploy", V2, "--empty", definitions=definitions)
    run(place, "deploy", V2, definitions=definitions)
    path = f"{place.lake.root}/tables/{V2}"
    rows = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
    assert sorted(row["doubled"] for row in rows) == [2 * amount for amount in amounts(place, ORDERS)]
    assert {row["channel"] for row in rows} == {None}
    deltalake.DeltaTable(path).update(updates={"channel": "'web'"})
    (found,) = run(place, "deploy", V2, "--check", definitions=definitions)["compared"]
    said = ["`channel` is new", f"`customer` of `{ORDERS}` is dropped", f"`amount` of `{ORDERS}` is dropped"]
    assert found["not_compared"][:3] == said
    deltalake.DeltaTable(path).update(updates={"doubled": "doubled + 1"}, predicate="doubled = 0.50")
    (found,) = run(place, "deploy", V2, "--check", code=1, definitions=definitions)["compared"]
    assert {(day["only_before"], day["only_new"]) for day in found["differing"]} == {(1, 1)}


@pytest.mark.prove
def test_what_is_computed_of_other_rows_is_refused(shop_with_totals, tmp_path):
    """A running number would begin anew wherever a later copy brings one partition alone."""
    place = copied(shop_with_totals, tmp_path)
    computed = {
        "table": ORDERS,
        "computed": {"number": "row_number() over (order by ordered_at)"},
        "dropped": ["amount"],
    }
    columns = {"order_id": "bigint", "customer": "string", "number": "int", "ordered_at": "timestamp"}
    spec = second(columns=columns, version_of=computed, grain="daily", start=DAYS[0])
    definitions = lakehouse_definitions(
        build_lakehouse_table(place.lake.spec),
        build_lakehouse_table(spec, inputs={ORDERS: place.lake.spec}),
        lakehouse=Lakehouse(root=str(place.lake.root)),
    )
    (failed,) = run(place, "deploy", V2, code=1, definitions=definitions)["runs"]
    assert "is another one when it is made by itself" in failed["failure"]
    assert "`computed` may use the values of its row alone" in failed["failure"]


@pytest.mark.prove
@pytest.mark.parametrize("wait", [[], ["--wait"]], ids=["once", "waiting"])
def test_nothing_is_copied_of_a_version_that_was_never_made(tmp_path, monkeypatch, wait):
    """It is said at once, also to whoever would wait: no copy can come of it, and the exit code is not that of a whole one."""
    monkeypatch.setattr(
        deploying, "time", SimpleNamespace(sleep=lambda _: pytest.fail("it waits for what cannot come"))
    )
    place = new_place(tmp_path)
    looked_at = place.run("gaps", V2, definitions=both(place))
    assert looked_at.exit_code == 0, looked_at.output
    told = run(place, "deploy", V2, *wait, code=1)
    assert (told["runs"], told["waiting"]) == (
        [],
        [
            {
                "table": V2,
                "partitions": 0,
                "waits_for": f"{V2}: nothing is copied. {ORDERS}, the version before, was never made: launch it first, or "
                "name the lakehouse that has it.",
            }
        ],
    )
