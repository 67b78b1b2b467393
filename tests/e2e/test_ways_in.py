"""Every way in: the UI's dialog in a real browser, GraphQL, a schedule, Dagster's commands; over one lakehouse and one history.

The fixtures are one story, told in order: each test looks at one step of it.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import deltalake
import pytest
import yaml

from tests.e2e.browser import Screen, browsing, chromium
from tests.e2e.scene import DAYS, Scene, Step
from tests.e2e.server import LAUNCH_RUN, REPOSITORY, serving
from tests.e2e.world import MODULE, ORDERS, expected, new_world, shop_orders

pytestmark = [pytest.mark.e2e, pytest.mark.long]

DAY_1, DAY_2, DAY_3, DAY_4, DAY_5, DAY_6, DAY_7, DAY_8, DAY_9, DAY_10 = DAYS
ONLY_MISSING = "ops:\n  bronze__orders:\n    config:\n      only: MISSING\n      reason: export was corrected\n"
SCHEDULE, JOB = "catch_up_bronze_orders", "launch_bronze_orders"


@dataclass(frozen=True)
class Seen(Scene):
    """And the screen."""

    screen: Screen


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, warm_server: dict[str, str]) -> Iterator[Seen]:
    chromium()
    world = new_world(tmp_path_factory.mktemp("ways"), warm_server)
    for day in DAYS[:7]:
        world.export(day, shop_orders(day, status="old"))
    with serving(world) as server, browsing(server.url, world.root / "screenshots") as screen:
        yield Seen(world, server, screen)


# -- the dialog --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def by_dialog(scene: Seen) -> Step:
    """Five days, typed into the dialog; watched on the page until they are green; then the checks tab."""
    screen = scene.screen
    with screen.kept("checks"):
        with screen.kept("green"):
            backfill = screen.launch(ORDERS, f"[{DAY_1}...{DAY_5}]")
            screen.page.get_by_text("Materialized (5)").wait_for()
        page = scene.server.ended(backfill)
        screen.show(f"/assets/{ORDERS}?view=checks")
        screen.page.get_by_text("Passed", exact=True).first.wait_for()
        screen.page.get_by_text("Succeeded", exact=True).first.wait_for()  # in the list, which another query fills
        shown = screen.page.locator("body").inner_text()
    with screen.kept("partitions of the check"):
        screen.show(f"/assets/{ORDERS}?view=checks&checkDetail=reconciled")
        screen.page.get_by_role("tab", name="Partitions").nth(1).click()
        screen.page.get_by_text("Passed (5)").wait_for()
    return scene.step(page, {}, sent=screen.sent[-1], screen=shown)


@pytest.fixture(scope="module")
def with_config(scene: Seen, by_dialog: Step) -> Step:
    """A corrected day, and a range that is published in part, with a hole between them and YAML in the dialog's config editor."""
    scene.world.export(DAY_1, shop_orders(DAY_1, status="corrected"))
    before = scene.world.files()
    with scene.screen.kept("config"):
        backfill = scene.screen.launch(ORDERS, f"{DAY_1}, [{DAY_4}...{DAY_7}]", ONLY_MISSING)
    return scene.step(scene.server.ended(backfill), before, sent=scene.screen.sent[-1])


def test_the_dialog_launches_a_range(by_dialog: Step):
    """A range that is typed into the dialog is one run over exactly that range; its days are there, and green on the page."""
    assert by_dialog.ranges == [(DAY_1, DAY_5)]
    assert by_dialog.page.status == "COMPLETED_SUCCESS"
    assert by_dialog.content == expected(*DAYS[:5], status="old")
    assert by_dialog.shown == dict.fromkeys(DAYS[:5], "materialized") | dict.fromkeys(DAYS[5:], "missing")


def test_the_checks_tab_is_green(by_dialog: Step):
    """The asset's checks tab shows `reconciled` as passed, with the counts of both sides."""
    shown = by_dialog.screen
    assert "reconciled\nSucceeded" in shown
    assert re.search(r"Evaluation result\s+Passed", shown)
    assert re.search(r"source_rows\s+3", shown)
    assert re.search(r"table_rows\s+3", shown)


@pytest.mark.prove
def test_the_dialog_takes_run_config(with_config: Step):
    """`only: MISSING`, typed as YAML, reaches every run: what is published already is left out, and its files are the same."""
    assert yaml.safe_load(with_config.sent["backfillParams"]["runConfigData"]) == yaml.safe_load(ONLY_MISSING)
    assert with_config.page.status == "COMPLETED_SUCCESS"
    assert with_config.changed == [DAY_1, DAY_6, DAY_7]
    assert with_config.content == expected(DAY_1, status="corrected") + expected(*DAYS[1:7], status="old")


@pytest.mark.prove
def test_a_hole_in_the_dialog_is_a_run_for_each_piece(with_config: Step):
    """Ranges with a hole between are one run each; the days in the hole are not touched."""
    assert with_config.ranges == [(DAY_1, DAY_1), (DAY_4, DAY_7)]
    assert with_config.page.counts[ORDERS] == (5, 5, 0)


# -- the schedule ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def caught_up(scene: Seen, with_config: Step) -> dict[str, Any]:
    """Two more days land; the schedule is tried in the night, its run launched, and it is tried again meanwhile and later."""
    for day in (DAY_8, DAY_9):
        scene.world.export(day, shop_orders(day, status="old"))
    before = scene.world.files()
    _, (request,) = scene.server.tick(SCHEDULE, datetime(2023, 1, 11, 1, tzinfo=UTC))
    run_id = scene.server.launch(
        LAUNCH_RUN,
        selector={**REPOSITORY, "jobName": JOB},
        runConfigData=request["runConfigYaml"],
        executionMetadata={"tags": request["tags"]},
    )
    meanwhile = scene.server.tick(SCHEDULE, datetime(2023, 1, 11, 1, 30, tzinfo=UTC))
    status = scene.server.run_ended(run_id)
    return {
        "tags": {tag["key"].rpartition("/")[2]: tag["value"] for tag in request["tags"]},
        "meanwhile": meanwhile[0],
        "status": status,
        "changed": scene.changed(before),
        "later": scene.server.tick(SCHEDULE, datetime(2023, 1, 11, 2, tzinfo=UTC))[0],
        "shown": scene.world.shown(*DAYS),
    }


@pytest.mark.prove
def test_the_schedule_launches_what_is_missing(caught_up: dict[str, Any]):
    """In its hours the schedule asks for one run over the missing days; those that the source lacks are left out, and nothing fails."""
    assert (caught_up["tags"]["asset_partition_range_start"], caught_up["tags"]["asset_partition_range_end"]) == (
        DAY_8,
        DAY_10,
    )
    assert (caught_up["status"], caught_up["changed"]) == ("SUCCESS", [DAY_8, DAY_9])
    assert caught_up["shown"] == dict.fromkeys(DAYS[:9], "materialized") | {DAY_10: "missing"}


@pytest.mark.prove
def test_the_schedule_rests(caught_up: dict[str, Any]):
    """While its run is in progress it asks for none; afterwards it does not ask again for what the source lacks, that night."""
    assert "is in progress" in caught_up["meanwhile"]
    assert "requested in the last 12 hours" in caught_up["later"]


# -- checks alone, by Dagster's commands -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checked(scene: Seen, caught_up: Any) -> dict[str, subprocess.CompletedProcess[str]]:
    """A row is taken out of a day behind everybody's back; the checks run alone over days without and with it, and over all."""
    deltalake.DeltaTable(str(scene.world.path())).delete(f"dt = '{DAY_4}' AND customer_id = 1")

    def execute(first: str, last: str) -> subprocess.CompletedProcess[str]:
        tags = f'{{"dagster/asset_partition_range_start": "{first}", "dagster/asset_partition_range_end": "{last}"}}'
        return scene.world.run(
            "dagster", "job", "execute", "-m", MODULE, "-j", "reconcile_bronze_orders", "--tags", tags
        )

    with ThreadPoolExecutor(2) as at_once:
        equal, differing = at_once.submit(execute, DAY_1, DAY_3), at_once.submit(execute, DAY_3, DAY_5)
        whole = at_once.submit(scene.world.run, "dg", "launch", "-m", MODULE, "--job", "reconcile_bronze_orders")
        return {"equal": equal.result(), "differing": differing.result(), "whole": whole.result()}


@pytest.mark.prove
def test_checks_alone_pass_in_ci(checked: dict[str, subprocess.CompletedProcess[str]]):
    """`dagster job execute` of the checks over days that equal their source exits with 0."""
    assert checked["equal"].returncode == 0, checked["equal"].stderr[-3000:]
    assert "ASSET_CHECK_EVALUATION" in checked["equal"].stderr


@pytest.mark.prove
@pytest.mark.parametrize("way", ["differing", "whole"])
def test_checks_alone_fail_in_ci(checked: dict[str, subprocess.CompletedProcess[str]], way: str):
    """Where a day differs from its source the exit code is not 0, and the day and the row are named: over a range, and over all."""
    ran = checked[way]
    assert ran.returncode != 0
    assert f"{DAY_4}: rows_match_source: the table has 2 rows, 1 fewer than its source (3)" in ran.stderr, ran.stderr[
        -3000:
    ]
    assert f"order_id={shop_orders(DAY_4)[1]['order_id']}" in ran.stderr
    assert f"{DAY_3}: rows_match_source" not in ran.stderr
