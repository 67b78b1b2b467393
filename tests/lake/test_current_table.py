"""`_current`: of two switches at once one is saved, and readers of several names see what fits together."""

from __future__ import annotations

import threading

import deltalake
import pytest

from backfill_assets.core import sql
from backfill_assets.core.state.current_versions import CurrentVersions, Switch
from backfill_assets.errors import ConfigurationError
from backfill_assets.lake.current_table import COLUMNS, CurrentTable, read_current, refuse_retired
from tests.live.test_schedules import without_locks


@pytest.mark.prove
def test_of_two_switches_at_once_one_is_saved(spark, tmp_path, monkeypatch):
    """Decided on the same map, with no lock between them: the other is told, and the map is whole."""
    without_locks(monkeypatch)
    table = CurrentTable(spark, str(tmp_path))
    made = Switch("made", {"silver/a": "silver/a__v2"}, {}, {"silver/a__v2": "/a"}, "2024-01-01", "", "")
    table.switch(made)  # two that make one table on a local disk at once need the lock
    for round_ in range(3):
        now = table.read().key_of("bronze/orders")
        to = ["bronze/orders__v2", "bronze/orders"][now != "bronze/orders"]
        ended: list[str] = []

        def switch(name: str, to: str = to, now: str = now, ended: list[str] = ended) -> None:
            asked = Switch(name, {"bronze/orders": to}, {"bronze/orders": now}, {to: f"/{to}"}, "2024-01-01", name, "")
            try:
                table.switch(asked)
                ended.append(name)
            except Exception as error:  # noqa: BLE001 (whatever it is, it did not switch)
                ended.append(type(error).__name__)

        generation = table.read().generation
        threads = [threading.Thread(target=switch, args=(f"{name}{round_}",)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        after = table.read()
        assert after.generation == generation + 1
        assert [name for name in ended if not name.endswith("Error") and not name.endswith("Exception")] == [
            after.switch_id
        ], ended
        assert after.by_name["bronze/orders"].by == after.switch_id


@pytest.mark.prove
def test_readers_never_see_a_mixture(spark, tmp_path):
    """Of two tables that are switched together, while they are switched to and fro, names that are read together fit."""
    names, numbers = ("bronze/orders", "silver/totals"), ("", "__v2")
    for name in names:
        for suffix in numbers:
            rows = spark.range(1).selectExpr(f"'{suffix}' AS version")
            rows.write.format("delta").save(f"{tmp_path}/tables/{name}{suffix}")
    table = CurrentTable(spark, str(tmp_path))
    done = threading.Event()

    def to_and_fro() -> None:
        for number in range(6):
            was, to = numbers[number % 2], numbers[(number + 1) % 2]
            keys = {name: f"{name}{to}" for name in names}
            paths = {key: f"{tmp_path}/tables/{key}" for key in keys.values()}
            table.switch(Switch(f"s{number}", keys, {n: f"{n}{was}" for n in names}, paths, "2024-01-01", "", ""))
        done.set()

    switching = threading.Thread(target=to_and_fro)
    switching.start()
    seen: list[tuple[str, ...]] = []
    while not done.is_set():
        frames = read_current(table, names, lambda key: f"{tmp_path}/tables/{key}")
        seen.append(tuple(frame.collect()[0]["version"] for frame in frames))
    switching.join()
    assert {*seen} == {("", ""), ("__v2", "__v2")}, seen


ORDERS, ORDERS_V2 = "bronze/orders", "bronze/orders__v2"


def switch(table: CurrentTable, name: str) -> CurrentVersions:
    """Switch the orders to whichever version is not current."""
    now = table.read().key_of(ORDERS)
    to = ORDERS_V2 if now == ORDERS else ORDERS
    return table.switch(Switch(name, {ORDERS: to}, {ORDERS: now}, {to: f"/{to}"}, "2024-01-01", "", ""))


@pytest.mark.prove
def test_a_map_that_was_restored_is_switched_again(spark, tmp_path):
    """Somebody put an earlier one back, or changed the table otherwise: that is what is current, and what is decided on."""
    table = CurrentTable(spark, str(tmp_path))
    for name in ("first", "second", "third"):
        switch(table, name)
    for round_ in range(2):
        deltalake.DeltaTable(table.path).restore(1)
        assert (table.read().switch_id, table.read().key_of(ORDERS)) == ("first", ORDERS_V2)
        after = switch(table, f"after {round_}")
        assert (after.switch_id, after.key_of(ORDERS)) == (f"after {round_}", ORDERS)
    deltalake.DeltaTable(table.path).alter.set_table_properties({"delta.logRetentionDuration": "interval 90 days"})
    assert switch(table, "last").key_of(ORDERS) == ORDERS_V2


@pytest.mark.prove
def test_a_map_without_rows_is_an_error(spark, tmp_path):
    """Once something was switched: else retired versions would be current again. What the message says puts them back."""
    table = CurrentTable(spark, str(tmp_path))
    spark.sql(sql.create_table(table.path, COLUMNS))
    assert table.read() == CurrentVersions(), "whoever made it was killed before the first switch"
    was = switch(table, "first")
    deltalake.DeltaTable(table.path).delete()
    remedy = f"RESTORE TABLE delta.`{table.path}` TO VERSION AS OF 1"
    said = (
        f"`{table.path}` says which version of each table is current, and somebody has removed all of its rows. "
        f"Nothing was read by a table's name, nothing was switched, and nothing was written. Put them back: `{remedy}`."
    )
    asked = Switch("second", {ORDERS: ORDERS}, {ORDERS: ORDERS_V2}, {ORDERS: "/"}, "2024-01-01", "", "")
    for look in (table.read, lambda: table.switch(asked), lambda: refuse_retired(table, ORDERS)):
        with pytest.raises(ConfigurationError) as caught:
            look()
        assert str(caught.value) == said
    spark.sql(remedy)
    assert table.read() == was
    assert switch(table, "second").key_of(ORDERS) == ORDERS
