"""Which partitions a table with a change feed loads by itself, and what a spec with one may say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.guards import ALL_KEYS
from backfill_assets.core.history.outcomes import Published
from backfill_assets.core.history.undo import carry_out
from backfill_assets.core.history.undo_plan import Undo, of_launch, plan_undo
from backfill_assets.core.spec.changes import ChangeFeed
from backfill_assets.core.state.receipts import Run
from backfill_assets.lake.table import LakeTable
from backfill_assets.live.changes.refresh import launched_next
from tests.live.changes.world import DAYS, World, customers_spec, new_world
from tests.support import postgres
from tests.support.docstring_tables import table_of
from tests.support.shop import launch, opened, published_keys, refusals


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
    undo = Undo("", of_launch(launched.receipt.run.id, []), Run("undo"))
    list(carry_out(world.spec, world.lake, undo, plan_undo(world.spec, world.lake, undo), Effects()))


@pytest.mark.prove
def test_changes_are_not_folded_into_what_is_taken_back_meanwhile(spark, tmp_path, monkeypatch):
    """A refresh has found what lacks changes, and an undo comes: what it put back stays as it is, others are brought up."""
    world = new_world(spark, tmp_path)
    world.land()
    with world.capturing():
        (kept,) = world.launch_now(world.partitions[1:2])
        (undone,) = world.launch_now(world.partitions[:1], run_id="undone")
    world.execute(f"UPDATE customers SET balance = 7 WHERE signed_up < '{DAYS[2]}Z' AND id % 3 = 0")
    world.land()
    as_before = LakeTable.overwrite

    def undone_first(*arguments: Any, **how: Any) -> Any:
        monkeypatch.undo()
        take_back(world, undone)
        return as_before(*arguments, **how)

    monkeypatch.setattr(LakeTable, "overwrite", undone_first)
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


def as_rows(world: World) -> list[Any]:
    with world.server.connected(world.name) as connection:
        return postgres.rows_of(connection, "customers")


@pytest.mark.parametrize("case", table_of(launched_next), ids=lambda case: f"{case['launched']} in {case['seconds']} s")
def test_the_past_is_loaded_in_ever_larger_pieces(case):
    """As the docstring's table says."""
    pieces = launched_next(int(case["launched"]), float(case["seconds"]), float(case["refresh_seconds"]))
    assert pieces == int(case["next"])


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
