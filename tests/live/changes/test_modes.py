"""Which partitions a table with a change feed loads by itself, and what a spec with one may say."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.guards import ALL_KEYS
from backfill_assets.core.history.outcomes import Published
from backfill_assets.core.history.undo import carry_out
from backfill_assets.core.history.undo_plan import Undo, of_launch, plan_undo
from backfill_assets.core.spec.changes import ChangeFeed
from backfill_assets.core.spec.pace import LaunchPace, OffPeak
from backfill_assets.errors import SourceRefusedError
from backfill_assets.lake.evolution import evolve
from backfill_assets.lake.table import LakeTable
from backfill_assets.live.changes.history_pace import HistoryPace
from backfill_assets.live.changes.refresh import Refreshed, launched_next
from backfill_assets.live.changes.source import ChangedSource
from tests.live.changes.world import COLUMNS, DAYS, World, customers_spec, new_world
from tests.support import postgres
from tests.support.docstring_tables import table_of
from tests.support.shop import launch, multiset, opened, published_keys, refusals


def test_automatic_loads_the_past_by_itself(spark, tmp_path):
    """Once the feed runs; afterwards the table follows."""
    world = new_world(spark, tmp_path, changes={"backfill": "automatic"}, start=DAYS[3])
    refresh = world.refresh()
    assert refresh.once().published == []
    world.execute("UPDATE customers SET balance = 1 WHERE id = 1")
    world.land()
    world.execute("UPDATE customers SET balance = 2 WHERE id = 1")
    world.land()
    with world.capturing():
        refresh.now = lambda: world.spec.grid.partition(DAYS[3]).window.start_utc + timedelta(hours=1)
        refresh.source.now = refresh.now
        done = refresh.once()
    assert done.launched == len(published_keys(done.outcomes)) == 1
    world.execute(f"UPDATE customers SET balance = 9 WHERE signed_up >= '{DAYS[3]}Z' AND signed_up < '{DAYS[4]}Z'")
    world.land()
    assert published_keys(refresh.once().outcomes) == [DAYS[3]]
    loaded = Counter({row: n for row, n in world.rows().items() if f"{row[5]:%Y-%m-%d}" == DAYS[3]})
    assert world.content() == loaded, "no row is missing, and none is there twice"


def take_back(world: World, launched: Published) -> None:
    undo = Undo("", of_launch(launched.receipt.run_id, []), "undo")
    list(carry_out(world.spec, world.lake, undo, plan_undo(world.spec, world.lake, undo), Effects()))


@pytest.mark.parametrize("when", [(ChangedSource, "behind"), (LakeTable, "overwrite")], ids=["found", "staged"])
def test_changes_are_not_folded_into_what_is_taken_back_meanwhile(spark, tmp_path, monkeypatch, when):
    """A refresh has found what lacks changes, and an undo comes: what it put back stays as it is, others are brought up."""
    world = new_world(spark, tmp_path)
    world.land()
    with world.capturing():
        (kept,) = world.launch_now(world.partitions[1:2])
        (undone,) = world.launch_now(world.partitions[:1], run_id="undone")
    world.execute(f"UPDATE customers SET balance = 7 WHERE signed_up < '{DAYS[2]}Z' AND id % 3 = 0")
    world.land()
    of, name = when
    as_before = getattr(of, name)

    def and_then_undone(*arguments: Any, **how: Any) -> Any:
        monkeypatch.undo()
        if name == "overwrite":
            take_back(world, undone)
        found = as_before(*arguments, **how)
        if name == "behind":
            take_back(world, undone)
        return found

    monkeypatch.setattr(of, name, and_then_undone)
    done = world.refresh().once()
    assert (published_keys(done.outcomes), done.refused) == ([DAYS[1]], [])
    assert {*published_keys([kept])} == {f"{row[5]:%Y-%m-%d}" for row in world.content()}
    assert all(world.rows()[row] for row in world.content())


@pytest.mark.prove
def test_what_was_taken_back_stays_until_it_is_launched(spark, tmp_path):
    """`automatic` loads what was never launched; that an undo put back is somebody's decision, also after restarts."""
    world = new_world(spark, tmp_path, changes={"backfill": "automatic"})
    world.land()
    refresh = world.refresh()
    refresh.now = refresh.source.now = lambda: world.spec.grid.partition(DAYS[1]).window.start_utc
    with world.capturing():
        (launched,) = refresh.once().published
    assert published_keys([launched]) == [DAYS[0]]
    take_back(world, launched)
    world.execute("UPDATE customers SET balance = 2 WHERE id = 1")
    with world.capturing():
        world.capture_has_landed()
        for settled in (refresh, world.refresh()):
            settled.now = settled.source.now = refresh.now
            assert (settled.once().outcomes, world.content()) == ([], Counter())
        assert published_keys(world.launch_now(world.partitions[:1])) == [DAYS[0]]


@pytest.mark.prove
def test_changes_that_wait_with_the_past_are_lacking(spark, tmp_path, monkeypatch):
    """A partition with other columns than the spec can only be read again, off-peak: until then the table lags behind."""

    def away(*_: Any, **__: Any) -> None:
        raise SourceRefusedError("The database is away.", state="", remedy="")

    world = new_world(spark, tmp_path)
    world.land()
    world.launch(world.partitions[:2])
    world.execute("ALTER TABLE customers ADD COLUMN city text")
    spec = customers_spec(world.spec.source.connection, world.name, columns={**COLUMNS, "city": "string"})
    grown = replace(world, spec=spec, lake=LakeTable(spark, spec, world.lake.path, world.log.append))
    evolve(grown.lake)
    began = datetime.now(UTC)
    grown.execute(f"UPDATE customers SET balance = 3 WHERE signed_up < '{DAYS[1]}Z'")
    grown.land()
    refresh = grown.refresh()
    refresh.pace = HistoryPace(
        LaunchPace(off_peak=OffPeak(cron="0 22 * * *", hours=8)), lambda now: now + timedelta(hours=1)
    )
    with grown.capturing():
        waiting = [refresh.once() for _ in range(2)]
        assert [(each.published, each.launched) for each in waiting] == [([], 0), ([], 0)]
        assert all(began <= each.lacking_since <= datetime.now(UTC) for each in waiting if each.lacking_since)
        assert all(each.lacking_since for each in waiting)
        refresh.pace = HistoryPace()
        with monkeypatch.context() as patch:
            patch.setattr(type(refresh), "_launch", away)
            with pytest.raises(SourceRefusedError):
                refresh.once(failed := Refreshed())
        assert failed.lacking_since == waiting[-1].lacking_since, "it could not be read, so it lacks what it lacked"
        done = refresh.once()
    assert (published_keys(done.outcomes), done.lacking_since) == ([DAYS[0]], None)
    assert grown.content() == multiset(
        [row for row in as_rows(grown) if row["signed_up"] < datetime(2024, 1, 3, tzinfo=UTC)], COLUMNS
    )


def as_rows(world: World) -> list[Any]:
    with world.server.connected(world.name) as connection:
        return postgres.rows_of(connection, "customers")


@pytest.mark.parametrize("case", table_of(launched_next), ids=lambda case: f"{case['launched']} in {case['seconds']} s")
def test_the_past_is_loaded_in_ever_larger_pieces(case):
    """As the docstring's table says."""
    pieces = launched_next(int(case["launched"]), float(case["seconds"]), float(case["refresh_seconds"]))
    assert pieces == int(case["next"])


@pytest.mark.prove
def test_what_is_refused_is_asked_for_last_and_ends_the_rest_of_a_load(spark, tmp_path):
    """A partition that cannot be published keeps no other from being loaded, and nobody waits for it."""
    world = new_world(
        spark, tmp_path, changes={"backfill": "automatic"}, columns={**COLUMNS, "note": "string not null"}
    )
    world.execute(f"UPDATE customers SET note = 'x' WHERE signed_up >= '{DAYS[1]}Z'")
    world.land()
    refresh, done = world.refresh(), []
    refresh.now = refresh.source.now = lambda: world.spec.grid.partition(DAYS[-1]).window.end_utc
    refresh._launched_at_once = 1
    with world.capturing():
        while not done or done[-1].launched:
            done.append(refresh.once())
            refresh._launched_at_once = 1
            assert len(done) < 9
    assert [[one.verdict.partition.key for one in each.refused] for each in done] == [
        [DAYS[0]], [], [], [], [], [DAYS[0]],
    ]  # fmt: skip
    assert [key for each in done for key in published_keys(each.outcomes)] == list(DAYS[1:])
    assert done[-1].lacking_since is None, "the past is no lag"


@pytest.mark.prove
def test_changes_do_not_wait_until_the_past_is_loaded(spark, tmp_path):
    """Between two pieces of an automatic load what has changed is folded in, and no piece takes long."""
    world = new_world(spark, tmp_path, changes={"backfill": "automatic"}, start="2023-06-01")
    world.execute("INSERT INTO customers VALUES (5000, 'first', 0, NULL, NULL, '2023-06-01 05:00Z')")
    world.land()
    refresh, rounds = world.refresh(), 0
    refresh._launched_at_once = 20
    refresh.source.now = refresh.now = lambda: world.spec.grid.partition(DAYS[-1]).window.end_utc
    with world.capturing():
        while (began := time.monotonic()) and refresh.once().launched:
            assert time.monotonic() - began < 2 * 2 * world.spec.changes.refresh_seconds
            found = {row[0]: row[2] for row in world.content()}
            assert found[5000] == rounds, "it was changed after the piece before this one"
            rounds += 1
            world.execute(f"UPDATE customers SET balance = {rounds} WHERE id = 5000")
            world.capture_has_landed()
    assert rounds > 2
    assert world.content() == world.rows()


@pytest.mark.prove
def test_what_no_launch_has_copied_outlives_the_log(spark, tmp_path):
    """A table that only follows: Delta cleans its log after 30 days, and up to where changes are in a partition is still known."""
    world = new_world(spark, tmp_path)
    world.land()
    world.launch()
    refresh = world.refresh()
    refresh.once()
    refresh.now = lambda: datetime.now(UTC) + timedelta(days=2)
    world.execute("UPDATE customers SET balance = 1 WHERE id = 1")
    world.land()
    assert published_keys(refresh.once().outcomes) == [DAYS[0]]
    log = opened(world.lake.path)
    log.create_checkpoint()
    for version in range(log.version()):
        (Path(world.lake.path) / "_delta_log" / f"{version:020d}.json").unlink()
    assert world.lake.published().keys() == set(DAYS)
    world.execute(f"UPDATE customers SET signed_up = '{DAYS[0]} 05:00Z' WHERE id = 30")
    assert published_keys(world.bring_up().outcomes) == [DAYS[0], DAYS[1]]
    assert world.content() == world.rows()


def test_manual_starts_nothing_and_automatic_is_the_default(spark, tmp_path):
    """With `manual`, partitions from before the feed wait for a launch, and changes of them too; else they are loaded."""
    world = new_world(spark, tmp_path, start=DAYS[3])
    world.land()
    world.execute("UPDATE customers SET balance = 9")
    assert world.bring_up().published == []
    assert not world.lake.exists()
    spec = world.spec.model_copy(update={"changes": ChangeFeed(capture=world.name)})
    by_itself = replace(world, spec=spec, lake=LakeTable(spark, spec, world.lake.path, world.log.append))
    refresh = by_itself.refresh()
    refresh.now = refresh.source.now = lambda: spec.grid.partition(DAYS[3]).window.end_utc
    with by_itself.capturing():
        assert published_keys(refresh.once().outcomes) == [DAYS[3]]


@pytest.mark.prove
def test_what_the_feed_says_is_deleted_is_no_lost_key(spark, tmp_path):
    """`keep_keys` refuses what nobody said of: here somebody emptied a day of the table's database unseen."""
    world = new_world(spark, tmp_path)
    world.land()
    world.launch()
    world.execute(f"DELETE FROM customers WHERE signed_up >= '{DAYS[0]}Z' AND signed_up < '{DAYS[0]} 12:00Z'")
    assert DAYS[0] in published_keys(world.launch(world.partitions[:1], guards=(ALL_KEYS,)))
    assert world.content() == world.rows()
    copied = replace(world, lake=replace(world.lake, path=f"{world.lake.path}_copy"))
    assert published_keys(launch(copied.lake, world.source.database, world.partitions[:2])) == list(DAYS[:2])
    world.execute(f"DELETE FROM customers WHERE signed_up >= '{DAYS[1]}Z' AND signed_up < '{DAYS[1]} 12:00Z'")
    again = launch(copied.lake, world.source.database, world.partitions[:2], guards=(ALL_KEYS,))
    assert published_keys(again) == [DAYS[0]]
    assert list(refusals(again)) == [DAYS[1]]


@pytest.mark.prove
def test_what_the_feed_says_of_one_key_says_nothing_of_others(spark, tmp_path):
    """The table alone has one row, of which nobody told that it has left: `keep_keys` keeps it, and then somebody does."""
    world = new_world(spark, tmp_path)
    world.land()
    world.launch(world.partitions[:1])
    (first, *_) = opened(world.lake.path).to_pyarrow_table().to_pylist()
    alone = pa.Table.from_pylist([{**first, "id": 9999}], schema=opened(world.lake.path).to_pyarrow_table().schema)
    deltalake.write_deltalake(world.lake.path, alone, mode="append")
    world.execute(f"DELETE FROM customers WHERE id = {first['id']}")
    refused = refusals(world.launch(world.partitions[:1], guards=(ALL_KEYS,)))
    assert "id=9999" in refused[DAYS[0]]
    assert f"id={first['id']} " not in refused[DAYS[0]]
    world.execute(f"INSERT INTO customers SELECT 9999, name, 0, '', true, '{DAYS[0]} 01:00Z' FROM customers LIMIT 1", "DELETE FROM customers WHERE id = 9999")  # fmt: skip
    assert published_keys(world.launch(world.partitions[:1], guards=(ALL_KEYS,))) == [DAYS[0]]
    assert world.content() == Counter({row: n for row, n in world.rows().items() if f"{row[5]:%Y-%m-%d}" == DAYS[0]})


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"source": {"kind": "files", "path": "x", "format": "parquet"}}, "changes: need `source.kind: jdbc`"),
        ({"key_columns": []}, "changes: need `key_columns`"),
        ({"latest_wins_by": ["id"]}, "changes: and `latest_wins_by` do not go together"),
        ({"live": {"path": "x", "starts": "2024-01-01", "late": "keep"}}, "changes: and `live` do not go together"),
        ({"changes": {"capture": "a b"}}, "it names a slot"),
        ({"source": None}, "source: is missing; only with `changes: {backfill: excluded}`"),
        ({"source": None, "changes": {"capture": "a", "backfill": "excluded"}}, "changes: say `connection`"),
    ],
)
def test_what_does_not_go_with_a_feed(changes: dict[str, Any], what: str):
    """The message names the field, and what it needs."""
    with pytest.raises(ValueError, match=what):
        customers_spec("SHOP", "shop", **changes)
