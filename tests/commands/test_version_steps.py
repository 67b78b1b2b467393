"""The steps of a version: when it may be made, what its history waits for, what is noted, and the views of it."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import duckdb
import pytest

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.commands.version import make as making
from backfill_assets.lake import definition
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.sources import version
from tests.commands.places import copied, new_place
from tests.commands.versions import DAYS, TOTALS_V2, V2, amounts, both, run, second, steps, stream, streamed, totals
from tests.support.launching import ORDERS, daily_totals
from tests.support.live_shop import event, live_spec

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.prove
def test_history_before_the_boundary_is_waited_for(spark, tmp_path, monkeypatch):
    """It may be made until some minutes before; then `copy` says where the boundary is, and what is to be drained to it."""
    place, shop, definitions = streamed(spark, tmp_path)
    landed(shop.land(event(11, "2024-01-31T23:59:59.999999")), datetime(2024, 1, 19, tzinfo=UTC))
    stream(place, ORDERS, definitions)
    five_minutes_before, before = datetime(2024, 1, 31, 23, 55, tzinfo=UTC), datetime(2024, 1, 20, tzinfo=UTC)
    with monkeypatch.context() as patch:
        patch.setattr(definition, "utc_now", lambda: five_minutes_before)
        assert "has passed" in run(place, "make", V2, code=2, definitions=definitions)
        run(place, "make", V2, "--margin-minutes", "4", definitions=definitions)
        patch.setattr(definition, "utc_now", lambda: before)
        patch.setattr(version, "datetime", SimpleNamespace(now=lambda _: before))
        (waiting,) = run(place, "copy", V2, code=1, definitions=definitions)["waiting"]
        assert waiting["waits_for"] == (
            f"{V2}: 1 partition before its boundary waits. The boundary is at 2024-02-01 00:00 UTC, which is 288.0 h "
            f"ahead; then its version {ORDERS} has to drain to it."
        )
    unread = shop.land(event(12, "2024-01-31T23:59:59.999999"))
    landed(unread, datetime(2024, 1, 25, tzinfo=UTC))  # and it belongs to January
    (waiting,) = run(place, "copy", V2, code=1, definitions=definitions)["waiting"]
    assert (
        "which has passed; its version bronze/orders is complete until 2024-01-25 00:00:00 UTC" in waiting["waits_for"]
    )
    waited: list[float] = []

    def drained(seconds: float) -> None:
        waited.append(seconds)
        stream(place, ORDERS, definitions)

    monkeypatch.setattr(making, "time", SimpleNamespace(sleep=drained))
    done = run(place, "copy", V2, "--wait", "--every", "7", definitions=definitions)
    assert ([one["table"] for one in done["runs"]], done["waiting"], waited) == ([V2], [], [7.0])
    assert run(place, "copy", V2, definitions=definitions)["runs"] == []


def landed(file: Path, at: datetime) -> None:
    """Let a file have landed at an instant."""
    os.utime(file, (at.timestamp(), at.timestamp()))


@pytest.mark.prove
def test_what_is_killed_leaves_a_trace(shop_with_totals, tmp_path, monkeypatch):
    """Who began to make and to copy is noted before anything is there; what was made is noted by the next `make`."""
    place = copied(shop_with_totals, tmp_path)

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    told = making.record

    def killed_when_made(*arguments: Any, **more: Any) -> None:
        if any(step.what == "made" for step in arguments[1:]):
            raise KeyboardInterrupt
        told(*arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(making, "record", killed_when_made)
        run(place, "make", V2, code=130)
    assert sorted((one["what"], one["key"]) for one in steps(place)) == [("making", V2), ("making", TOTALS_V2)]
    assert run(place, "make", V2)["made"] == {}
    run(place, "make", V2)
    assert sorted(one["key"] for one in steps(place) if one["what"] == "made") == [V2, TOTALS_V2]
    with monkeypatch.context() as patch:
        patch.setattr(making, "launch_range", killed)
        run(place, "copy", V2, code=130)
    (begun,) = [one for one in steps(place) if one["what"] == "copying"]
    assert (begun["key"], begun["detail"], bool(begun["by"])) == (V2, "2024-01-01...2024-02-01", True)


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
    assert "-- silver/never is left out: no launch has made it yet" in text.splitlines()
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
    run(place, "make", V2, definitions=definitions)
    run(place, "copy", V2, definitions=definitions)
    path = f"{place.lake.root}/tables/{V2}"
    rows = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
    assert sorted(row["doubled"] for row in rows) == [2 * amount for amount in amounts(place, ORDERS)]
    assert {row["channel"] for row in rows} == {None}
    deltalake.DeltaTable(path).update(updates={"channel": "'web'"})
    (found,) = run(place, "compare", V2, definitions=definitions)["tables"]
    said = ["`channel` is new", f"`customer` of `{ORDERS}` is dropped", f"`amount` of `{ORDERS}` is dropped"]
    assert found["not_compared"][:3] == said
    deltalake.DeltaTable(path).update(updates={"doubled": "doubled + 1"}, predicate="doubled = 0.50")
    (found,) = run(place, "compare", V2, code=1, definitions=definitions)["tables"]
    assert {(day["only_before"], day["only_new"]) for day in found["differing"]} == {(1, 1)}


@pytest.mark.prove
def test_a_copy_that_was_put_back_is_copied_again(shop_brought_up, tmp_path):
    """Whatever Delta remembers of the writes before: by its own restore, and by our undo."""
    place = copied(shop_brought_up, tmp_path / "place")
    table = deltalake.DeltaTable(f"{place.lake.root}/tables/{V2}")
    table.restore(0)
    assert amounts(place, V2) == []
    (first, *_) = run(place, "copy", V2)["runs"]
    assert (first["table"], amounts(place, V2)) == (V2, amounts(place, ORDERS))
    done = place.run("undo", first["run_id"], "--table", V2, "--reason", "a doubt", definitions=both(place))
    assert done.exit_code == 0, done.output
    assert amounts(place, V2) == []
    run(place, "copy", V2)
    assert amounts(place, V2) == amounts(place, ORDERS)
    run(place, "compare", V2)


@pytest.mark.prove
def test_what_cannot_be_computed_of_a_row_is_said_in_words(shop_with_totals, tmp_path):
    """A divisor of zero in one row: what Spark said of it, where the expression stands, and what makes NULL of it."""
    place = copied(shop_with_totals, tmp_path)
    computed = {"table": ORDERS, "computed": {"share": "1 / (amount - 0.25)"}, "dropped": ["amount"]}
    columns = {"order_id": "bigint", "customer": "string", "share": "double", "ordered_at": "timestamp"}
    definitions = lakehouse_definitions(
        build_lakehouse_table(place.lake.spec),
        build_lakehouse_table(second(columns=columns, version_of=computed), inputs={ORDERS: place.lake.spec}),
        lakehouse=Lakehouse(root=str(place.lake.root)),
    )
    (failed,) = run(place, "copy", V2, code=1, definitions=definitions)["runs"]
    assert failed["failure"] == (
        f"`{V2}`: what is computed of its rows cannot be computed of one of them: [DIVIDE_BY_ZERO] Division by zero. Use "
        "`try_divide` to tolerate divisor being 0 and return NULL instead. Nothing was written. Correct the expression in "
        "`computed` of its `version_of`, or in its transform: `try_divide`, `try_cast` and the like make NULL of what "
        "cannot be computed. Or put the row right."
    )
    assert deltalake.DeltaTable(f"{place.lake.root}/tables/{V2}").to_pyarrow_table().num_rows == 0


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
    (failed,) = run(place, "copy", V2, code=1, definitions=definitions)["runs"]
    assert "is another one when it is made by itself" in failed["failure"]
    assert "`computed` may use the values of its row alone" in failed["failure"]


def test_late_rows_that_no_partition_has_are_told_of(spark, tmp_path):
    """The next version has a source of its own, and may lack them: they are not thrown away with the first one's folders."""
    place, shop, _ = streamed(spark, tmp_path)
    own = live_spec(key=V2, live=None, version_of={"table": ORDERS})
    definitions = lakehouse_definitions(
        build_lakehouse_table(live_spec()),
        build_lakehouse_table(own, inputs={ORDERS: live_spec()}),
        lakehouse=Lakehouse(root=str(place.lake.root)),
    )
    shop.land(event(12, "2024-01-02T12:00:00"))
    stream(place, ORDERS, definitions)
    run(place, "make", V2, definitions=definitions)
    run(place, "cutover", V2, "--wait", "0", "--except", "it begins empty", definitions=definitions)
    todo = run(place, "retire", ORDERS, "--yes", ORDERS, definitions=definitions)["left_to_do"]
    assert any(one.startswith("Copy 1 late rows that are in no partition") for one in todo)


def test_nothing_is_copied_of_a_version_that_was_never_made(tmp_path):
    """It is said, and the exit code is not that of a copy that is whole; whoever looks finds nothing to be done yet."""
    place = new_place(tmp_path)
    looked_at = place.run("gaps", V2, definitions=both(place))
    assert looked_at.exit_code == 0, looked_at.output
    told = run(place, "copy", V2, code=1)
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
