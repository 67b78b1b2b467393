"""Runs and backfills of which a part failed, executed again from the UI's own calls; over one lakehouse and one history.

The fixtures are one story, told in order: each test looks at one step of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.scene import DAYS, Scene, Step
from tests.e2e.server import EXECUTE_AGAIN, LAUNCH, LAUNCH_AGAIN, serving
from tests.e2e.world import ORDERS, SALES, expected, new_world, shop_orders

pytestmark = [pytest.mark.e2e, pytest.mark.prove]

DAY_1, DAY_2, DAY_3, DAY_4, DAY_5, DAY_6, DAY_7, *_ = DAYS


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, warm_server: dict[str, str]) -> Iterator[Scene]:
    world = new_world(tmp_path_factory.mktemp("again"), warm_server)
    for day in DAYS[:7]:
        world.export(day, shop_orders(day, status="old"))
    with serving(world) as server:
        yield Scene(world, server)


@pytest.fixture(scope="module")
def loaded(scene: Scene) -> Step:
    """Seven days are in the first table."""
    selection = [{"path": ORDERS.split("/")}]
    return scene.step(scene.server.backfill(LAUNCH, assetSelection=selection, partitionNames=DAYS[:7], title="all"), {})


@pytest.fixture(scope="module")
def with_bad_days(scene: Scene, loaded: Step) -> Step:
    """Two pieces of both tables, of which each has a bad day; the second table has none yet."""
    for day in (DAY_2, DAY_3, DAY_5, DAY_6):
        scene.world.export(day, shop_orders(day, status="new", **({"amount": None} if day in (DAY_3, DAY_6) else {})))
    before = scene.world.files()
    selection = [{"path": key.split("/")} for key in (ORDERS, SALES)]
    names = [DAY_2, DAY_3, DAY_5, DAY_6]
    page = scene.server.backfill(LAUNCH, assetSelection=selection, partitionNames=names, title="two pieces")
    return scene.step(page, before)


@pytest.fixture(scope="module")
def run_again(scene: Scene, with_bad_days: Step) -> dict[str, Any]:
    """One piece's bad day is put right, and its run executed again: from failure, then whole."""
    scene.world.export(DAY_3, shop_orders(DAY_3, status="new"))
    before = scene.world.files()
    parent, found = with_bad_days.page.run_ids[DAY_2], {}
    for strategy in ("FROM_FAILURE", "ALL_STEPS"):
        parent = scene.server.launch(EXECUTE_AGAIN, parentRunId=parent, strategy=strategy)
        found[strategy] = (scene.server.run_ended(parent), scene.changed(before))
        before = scene.world.files()
    return found | {"content": scene.world.content(), "sales": scene.world.shown(*DAYS, table=SALES)}


@pytest.fixture(scope="module")
def backfill_again(scene: Scene, run_again: Any, with_bad_days: Step) -> Step:
    """The other bad day is put right, and the backfill launched again from failure."""
    scene.world.export(DAY_6, shop_orders(DAY_6, status="new"))
    before = scene.world.files()
    page = scene.server.backfill(LAUNCH_AGAIN, parentRunId=with_bad_days.page.backfill_id, strategy="FROM_FAILURE")
    return scene.step(page, before)


def test_a_bad_day_fails_alone_in_its_piece(with_bad_days: Step):
    """Each piece publishes its good day and fails for its bad one; days outside the pieces keep their files; the next table waits."""
    assert with_bad_days.ranges == [(DAY_2, DAY_3), (DAY_5, DAY_6)]
    assert with_bad_days.page.status == "COMPLETED_FAILED"
    assert with_bad_days.page.counts[ORDERS] == (4, 2, 2)
    assert with_bad_days.page.counts[SALES][1] == 0
    assert with_bad_days.changed == [DAY_2, DAY_5]
    assert {day for day, how in with_bad_days.shown.items() if how == "failed"} == {DAY_3, DAY_6}


def test_a_run_executed_again_publishes_the_rest(run_again: dict[str, Any]):
    """From failure only the day that failed is published, and then the table made from it; again in all steps, nothing is."""
    assert run_again["FROM_FAILURE"] == ("SUCCESS", [DAY_3])
    assert run_again["ALL_STEPS"] == ("SUCCESS", [])
    assert {day for day, how in run_again["sales"].items() if how == "materialized"} == {DAY_2, DAY_3}


def test_a_backfill_launched_again_publishes_what_failed(scene: Scene, backfill_again: Step):
    """A backfill repeated from failure launches the days that failed, and those of the next table that never ran."""
    assert backfill_again.page.status == "COMPLETED_SUCCESS"
    assert DAY_6 in backfill_again.changed
    assert set(backfill_again.changed) <= {DAY_3, DAY_6}
    new = expected(DAY_2, DAY_3, DAY_5, DAY_6, status="new")
    assert backfill_again.content == new + expected(DAY_1, DAY_4, DAY_7, status="old")
    sales = scene.world.shown(*DAYS, table=SALES)
    assert {day for day, how in sales.items() if how == "materialized"} == {DAY_2, DAY_3, DAY_5, DAY_6}
