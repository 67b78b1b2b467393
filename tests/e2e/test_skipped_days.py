"""What Dagster's backfills say of days that a launch skips, and of days before a table's start: real daemon, real runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.scene import DAYS, Scene, Step
from tests.e2e.server import LAUNCH, RUN, serving
from tests.e2e.world import ORDERS, new_world, shop_orders

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.prove]

BEFORE = "2022-12-31"
"""A day before the start of the orders, and after that of another daily table of the shop."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, warm_server: dict[str, str]) -> Iterator[Scene]:
    world = new_world(tmp_path_factory.mktemp("skipped"), warm_server)
    for day in DAYS[:2]:
        world.export(day, shop_orders(day))
    with serving(world) as server:
        yield Scene(world, server)


@pytest.fixture(scope="module")
def around_start(scene: Scene) -> Step:
    """A backfill over the day before the start, and two days that are complete."""
    return _launched(scene, [BEFORE, *DAYS[:2]])


@pytest.fixture(scope="module")
def skipping(scene: Scene, around_start: Step) -> Step:
    """A backfill over the same two days, and one for which the source is not complete."""
    return _launched(scene, DAYS[:3])


def _launched(scene: Scene, days: list[str]) -> Step:
    selection = [{"path": ORDERS.split("/")}]
    return scene.step(scene.server.backfill(LAUNCH, assetSelection=selection, partitionNames=days, title="skips"), {})


def _runs(scene: Scene, step: Step) -> set[str]:
    return {scene.server.ask(RUN, id=run_id)["runOrError"]["status"] for run_id in step.page.run_ids.values()}


def test_days_before_a_start_fail_no_backfill(scene: Scene, around_start: Step):
    """Run and backfill succeed, and the days from the start on are published."""
    assert (around_start.page.status, around_start.page.counts[ORDERS]) == ("COMPLETED_SUCCESS", (3, 3, 0))
    assert _runs(scene, around_start) == {"SUCCESS"}
    assert scene.world.files().keys() == set(DAYS[:2])


def test_a_skipped_day_fails_run_and_backfill(scene: Scene, skipping: Step):
    """Both say the same: the day without a complete source failed, and the others did not."""
    assert (skipping.page.status, skipping.page.counts[ORDERS]) == ("COMPLETED_FAILED", (3, 2, 1))
    assert _runs(scene, skipping) == {"FAILURE"}
    assert skipping.shown[DAYS[2]] == "failed"
