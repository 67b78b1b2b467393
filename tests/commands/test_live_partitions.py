"""Partitions that a live stream has written, in Dagster: seen as long as the stream owns them, and published for nobody."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from backfill_assets.assets import event_log
from tests.commands.places import Place, new_place
from tests.support.follow_office import FOLLOWING, Office
from tests.support.launching import ORDERS, key_of
from tests.support.shop import json_line, orders, rows_in

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAY_1, DAY_2, DAY_3, DAY_4, DAY_5 = DAYS = [f"2024-01-0{n}" for n in range(1, 6)]
CATCH_UP = {"cron": "0 1 * * *", "max_partitions": 31}
SPEC = {"latest_wins_by": ["ordered_at"], "live": {"path": "events", "starts": DAY_3}, "catch_up": CATCH_UP}
SEALED = ("fence", ORDERS, "--at", "2024-01-05T00:00:00Z")


@pytest.fixture
def place(tmp_path) -> Place:
    """Two days of history, and a stream that owns the days after them."""
    place = new_place(tmp_path, **SPEC)
    for day in (DAY_1, DAY_2):
        place.lake.export(day, orders(day))
    (place.lake.root / "landing" / "events").mkdir(parents=True)
    return place


def land(place: Place, name: str, *rows: Any) -> None:
    text = "".join(f"{json_line(row)}\n" for row in rows)
    (place.lake.root / "landing" / "events" / f"{name}.json").write_text(text)


def write(place: Place, name: str, *rows: Any) -> str:
    """Let events land, and the command write them; return what it says."""
    land(place, name, *rows)
    done = place.run("live", ORDERS, "--once")
    assert done.exit_code == 0, done.output
    return done.output


def seal(place: Place) -> None:
    """Move the fence past the third and the fourth day."""
    done = place.run(*SEALED)
    assert done.exit_code == 0, done.output


def shown(place: Place) -> str:
    """Each day as Dagster's partitions page shows it: `M`aterialized, or missing."""
    with place.instance() as instance:
        found = replace(place.lake, instance=instance).shown(*DAYS)
    return "".join({"materialized": "M", "missing": "."}.get(state, state) for state in found.values())


def events(place: Place) -> dict[str, list[dict[str, Any]]]:
    """The metadata of every materialization of the table, the newest first, by partition."""
    found: dict[str, list[dict[str, Any]]] = {}
    with place.instance() as instance:
        for record in instance.fetch_materializations(key_of(ORDERS), limit=100).records:
            told = record.asset_materialization
            assert told is not None
            metadata = {name: value.value for name, value in told.metadata.items()}
            found.setdefault(str(told.partition), []).append(metadata)
    return found


@pytest.mark.prove
def test_live_days_that_are_over_are_seen(place):
    """They are materialized, marked as live, with their rows; the day that goes on is none of Dagster's partitions yet."""
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    write(place, "a", *orders(DAY_3), *orders(today))
    assert shown(place) == "..M.."
    ((told,),) = events(place).values()
    assert (told["live"], told["dagster/partition_row_count"]) == (True, 3)
    assert "it is not published" in told["description"]


def test_a_live_day_is_recorded_once(place, monkeypatch):
    """Later writers record what is new alone; other rows of a day not before an hour has passed."""
    write(place, "a", *orders(DAY_3))
    write(place, "b", *orders(DAY_4), orders(DAY_3, 1, order_id=7)[0])
    assert {day: len(told) for day, told in events(place).items()} == {DAY_3: 1, DAY_4: 1}
    later = datetime.now(UTC) + timedelta(hours=2)
    monkeypatch.setattr("backfill_assets.assets.live.datetime", type("Later", (), {"now": lambda _: later}))
    write(place, "c", orders(DAY_4, 1, order_id=8)[0])
    assert {day: told[0]["dagster/partition_row_count"] for day, told in events(place).items()} == {DAY_3: 4, DAY_4: 4}


def test_live_days_launch_nothing_below(place):
    """The sensor of a table that follows asks for nothing, before the seal and by it, and for the day when it is launched."""
    with place.instance() as instance:
        office = Office(instance, FOLLOWING)
        office.tick()
        write(place, "a", *orders(DAY_3), *orders(DAY_4))
        assert shown(place) == "..MM."
        assert office.tick() == "Nothing is new."
        seal(place)
        assert office.tick() == "Nothing is new."
        place.lake.export(DAY_3, orders(DAY_3))
        assert replace(place.lake, instance=instance).launch(DAY_3).succeeded
        assert office.asked() == [(DAY_3, DAY_3)]


def test_sealed_days_are_missing_again(place):
    """Until they are launched: for the pages of Dagster, `gaps`, `only: MISSING` and catch-up; the days after keep theirs."""
    write(place, "a", *orders(DAY_3), *orders(DAY_4), *orders(DAY_5))
    assert shown(place) == "..MMM"
    seal(place)
    assert shown(place) == "....M"
    for day in (DAY_3, DAY_4):
        place.lake.export(day, orders(day))
    (table,) = json.loads(place.run("gaps", ORDERS, "--json").stdout)["tables"]
    assert [gap["partition"] for gap in table["gaps"]] == [DAY_1, DAY_2, DAY_3, DAY_4]
    with place.instance() as instance:
        lake = replace(place.lake, instance=instance)
        (request,) = caught_up(lake)
        assert request.tags["dagster/asset_partition_range_end"] == DAY_4
        assert lake.launch(DAY_1, DAY_4, only="MISSING").succeeded
        assert "is missing" in str(caught_up(lake))
    assert shown(place) == "MMMMM"
    assert "live" not in events(place)[DAY_3][0]
    assert len(rows_in(place.lake.path())) == 15


def caught_up(lake: Any) -> Any:
    """What the schedule that catches up asks for, or why it asks for nothing."""
    (schedule,) = [s for s in lake.definitions.schedules or [] if s.name == "catch_up_bronze_orders"]
    at = datetime(2024, 1, 11, 1, tzinfo=UTC)
    ticked = schedule.evaluate_tick(dg.build_schedule_context(instance=lake.instance, scheduled_execution_time=at))
    return list(ticked.run_requests or ()) or ticked.skip_message


def test_live_days_are_no_history(place):
    """Nobody counts them as published: neither `status`, nor the nightly look, nor a launch that names them."""
    write(place, "a", *orders(DAY_3))
    (table,) = json.loads(place.run("status", ORDERS, "--json").stdout)["tables"]
    assert (table["by_state"], table["partitions"]) == ({"missing": 2}, 2)
    with place.instance() as instance:
        nightly = dg.build_schedule_context(instance=instance, scheduled_execution_time=datetime.now(UTC))
        (schedule,) = [s for s in place.lake.definitions.schedules or [] if s.name == "reconciliation_nightly"]
        assert schedule.evaluate_tick(nightly).skip_message == "Nothing was published yet."
        ran = replace(place.lake, instance=instance).launch(DAY_3, only="MISSING")
    assert "are live: the fence is at" in ran.failure


@pytest.mark.prove
def test_no_event_reuses_the_id_of_one_that_was_withdrawn(place):
    """SQLite gives a deleted newest id away again; a cursor that has seen it would pass over the next event."""
    write(place, "a", *orders(DAY_3))
    with place.instance() as instance:
        (before,) = instance.fetch_materializations(key_of(ORDERS), limit=1).records
        seal(place)
        assert instance.fetch_materializations(key_of(ORDERS), limit=1).records == []
        instance.report_runless_asset_event(dg.AssetMaterialization(key_of(ORDERS), partition=DAY_1))
        (after,) = instance.fetch_materializations(key_of(ORDERS), limit=1).records
        (sealed,) = instance.fetch_observations(key_of(ORDERS), limit=1).records
    assert after.storage_id > sealed.storage_id > before.storage_id
    assert sealed.asset_observation.description.startswith(f"Sealed: {DAY_3}.")


@pytest.mark.prove
def test_a_seal_that_dagster_missed_is_made_up_for(place):
    """The command that moved the fence could not reach Dagster; the stream's next batch withdraws the days."""
    write(place, "a", *orders(DAY_3))
    settings = place.home / "dagster.yaml"
    text = settings.read_text()
    settings.write_text("storage: {nonsense: {}}")
    done = place.run(*SEALED)
    assert done.exit_code == 0
    assert "Dagster could not be told of it" in done.stderr
    settings.write_text(text)
    assert shown(place) == "..M.."
    write(place, "b", *orders(DAY_5))
    assert shown(place) == "....M"


@pytest.mark.prove
def test_a_stream_needs_no_dagster(place):
    """An instance that cannot be opened keeps no batch from being written; the next writer records its days."""
    settings = place.home / "dagster.yaml"
    text = settings.read_text()
    settings.write_text("storage: {nonsense: {}}")
    said = write(place, "a", *orders(DAY_3))
    assert "is written, but could not be reported" in said
    assert len(rows_in(place.lake.path())) == 3
    settings.write_text(text)
    write(place, "b", *orders(DAY_4))
    assert shown(place) == "..MM."


@pytest.mark.prove
def test_a_locked_history_holds_no_stream_up(place, monkeypatch):
    """Batches are written while another process holds Dagster's database; what it missed is recorded later."""
    monkeypatch.setattr(event_log, "SQLITE_BUSY_TIMEOUT_SECONDS", 1)
    write(place, "a", *orders(DAY_3))
    index = next(place.home.rglob("index.db"))
    with closing(sqlite3.connect(index, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        said = write(place, "b", *orders(DAY_4))
        other.execute("ROLLBACK")
    assert said.count("database is locked") == 2, "one wait for the batch, and one when the writer ends"
    assert len(rows_in(place.lake.path())) == 6
    assert shown(place) == "..M.."
    write(place, "c", *orders(DAY_5))
    assert shown(place) == "..MMM"
