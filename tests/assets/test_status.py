"""The page with the status of every table: what Dagster knows, renewed when something has changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus
from dagster._core.remote_origin import RemoteJobOrigin
from dagster._core.storage.dagster_run import RunOpConcurrency
from dagster._core.utils import make_new_run_id
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.assets.status import STATUS
from backfill_assets.runs.check_history import PUT_BACK, RECONCILED
from backfill_assets.runs.killed import RUN
from tests.support.launching import ORDERS, RANGE_END, RANGE_START, key_of
from tests.support.shop import orders_spec
from tests.support.under_way import HERE, requested

SPEC = orders_spec(latest_wins_by=["ordered_at"], live={"path": "events", "starts": "2024-01-04"})
DAYS = ["2024-01-01", "2024-01-02", "2024-01-03"]


class Page:
    """The sensor, tick after tick, and the page that it renews."""

    def __init__(self, instance: dg.DagsterInstance):
        self.instance, self.cursor = instance, None
        self.definitions = lakehouse_definitions(build_lakehouse_table(SPEC))

    def tick(self) -> str:
        sensor = self.definitions.resolve_sensor_def("status")
        data = sensor.evaluate_tick(dg.build_sensor_context(self.instance, cursor=self.cursor))
        self.cursor = data.cursor
        return str(data.skip_message)

    @property
    def lines(self) -> list[str]:
        """What is said of the one table."""
        event = self.instance.get_latest_materialization_event(dg.AssetKey(STATUS))
        assert event is not None
        assert list(event.asset_materialization.metadata) == [ORDERS]
        return str(event.asset_materialization.metadata[ORDERS].value).split("  \n")

    def publish(self, *days: str) -> None:
        for day in days:
            self.instance.report_runless_asset_event(dg.AssetMaterialization(key_of(ORDERS), partition=day))

    def checked(self, *days: str, passed: bool) -> None:
        """What a launch says of what it has compared, and an undo of what it has not."""
        self.evaluated(*days, passed=passed, metadata={"table_rows": 3} if passed else {PUT_BACK: "It was undone."})

    def evaluated(self, *days: str, passed: bool, metadata: dict[str, Any]) -> None:
        for day in days:
            told = dg.AssetCheckEvaluation(
                asset_key=key_of(ORDERS),
                check_name=RECONCILED,
                passed=passed,
                severity=dg.AssetCheckSeverity.WARN,
                metadata=metadata,
                partition=day,
            )
            kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION.value
            self.instance.report_dagster_event(
                dg.DagsterEvent(event_type_value=kind, job_name="launch", event_specific_data=told),
                run_id=make_new_run_id(),
            )

    def launch(self, **tags: str) -> dg.DagsterRun:
        job = self.definitions.resolve_job_def("launch_bronze_orders")
        return self.instance.create_run_for_job(
            job, tags=tags, asset_selection=job.asset_selection, status=dg.DagsterRunStatus.STARTED
        )


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield Page(instance)


def test_it_is_renewed_when_something_has_changed(page: Page):
    """Before the first launch, while one goes on, as far as it is, and when it has ended; not in between."""
    assert page.tick() == "The page was renewed."
    assert page.lines == ["**NOT_STARTED**: 0 of 3 partitions", "Live: no batch"]
    assert page.tick() == "Nothing has changed."
    run = page.launch(partitions="2024-01-01...2024-01-03", reason="history\nmissing", user="ann")
    page.tick()
    assert page.lines[0].startswith("**ACTIVE**")
    link = f"[started](/runs/{run.run_id})"
    assert page.lines[1] == f"Launch {link} 2024-01-01...2024-01-03, by ann: history missing"
    page.publish(*DAYS[:2])
    page.instance.add_run_tags(run.run_id, {ORDERS: "2 of 3 published", RUN: run.run_id})
    page.tick()
    assert page.lines[0] == "**ACTIVE**: 2 of 3 partitions"
    assert page.lines[1] == f"Launch {link} 2024-01-01...2024-01-03: 2 of 3 published, by ann: history missing"
    page.instance.report_run_failed(run)
    page.tick()
    assert page.lines[0] == "**FAILED**: 2 of 3 partitions"
    page.publish(DAYS[2])
    page.tick()
    assert page.lines[0] == "**COMPLETED**: 3 of 3 partitions"


def test_requested_backfill_waits_on_the_page(page: Page):
    """Dagster's daemon has not made a run of it yet; its own page is linked, and a canceled one has gone."""
    page.tick()
    backfill_id = requested(page.instance, key_of(ORDERS))
    assert page.tick() == "The page was renewed."
    assert page.lines[0] == "**PENDING**: 0 of 3 partitions"
    assert page.lines[1].startswith(f"Launch [queued](/runs/b/{backfill_id})")
    backfill = page.instance.get_backfill(backfill_id)
    assert backfill is not None
    page.instance.update_backfill(backfill.with_status(BulkActionStatus.CANCELED))
    assert page.tick() == "The page was renewed."
    assert page.lines[0] == "**NOT_STARTED**: 0 of 3 partitions"


def queued(instance: dg.DagsterInstance, count: int) -> None:
    """Launches in the daemon's queue, as Dagster notes them when it makes a run of an asset in a pool."""
    pool = RunOpConcurrency(root_key_counts={"launches": 1}, has_unconstrained_root_nodes=False, all_pools={"launches"})
    for _ in range(count):
        run = dg.DagsterRun("launch", make_new_run_id(), run_op_concurrency=pool)
        origin = RemoteJobOrigin(HERE, "launch")
        instance.add_run(run._replace(remote_job_origin=origin, status=dg.DagsterRunStatus.QUEUED))


def dequeued(instance: dg.DagsterInstance) -> int:
    """How many runs the daemon's next tick takes from the queue."""
    with QueuedRunCoordinatorDaemon(interval_seconds=1) as daemon:
        return len(daemon._get_runs_to_dequeue(instance, instance.get_concurrency_config(), None))


@pytest.mark.parametrize("limit", [1, 2])
def test_first_launches_of_a_new_home_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int):
    """The sensor gives the pool its limit before the daemon's first look at the queue, and keeps a limit that is set."""
    settings = (Path(__file__).parents[2] / "dagster.yaml").read_text()
    (tmp_path / "dagster.yaml").write_text(settings.replace("default_limit: 1", f"default_limit: {limit}"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with dg.DagsterInstance.get() as instance:
        page = Page(instance)
        page.tick()
        queued(instance, 4)
        assert dequeued(instance) == limit
        instance.event_log_storage.set_concurrency_slots("launches", 3)
        page.tick()
        assert dequeued(instance) == 3, "somebody has set it in the UI"


def test_home_without_default_limit_has_no_limit(page: Page):
    """Dagster's own defaults hold no launch back."""
    page.tick()
    assert page.instance.event_log_storage.get_concurrency_keys() == set()


def test_what_was_put_back_is_not_published(page: Page):
    """Dagster cannot forget that it was; the undo says of its check that it was not compared, until a launch compares it."""
    page.publish(*DAYS)
    page.tick()
    assert page.lines[0] == "**COMPLETED**: 3 of 3 partitions"
    page.checked(*DAYS[:2], passed=False)
    page.publish(*DAYS[:2])
    page.tick()
    assert page.lines[:2] == [
        "**PARTIAL**: 1 of 3 partitions",
        "2 were put back, and not compared since: 2024-01-01...2024-01-02",
    ]
    page.checked(DAYS[0], passed=True)
    page.publish(DAYS[0])
    page.tick()
    assert page.lines[0] == "**PARTIAL**: 2 of 3 partitions"


def test_what_was_put_back_is_not_published_by_a_launch_that_compares_nothing(page: Page):
    """Dagster plans its checks when it is made; if it is killed before them, that is the newest that they have."""
    page.publish(*DAYS)
    page.checked(DAYS[0], passed=True)
    page.checked(DAYS[0], passed=False)
    page.instance.report_run_failed(page.launch(**{RANGE_START: DAYS[0], RANGE_END: DAYS[2]}))
    page.tick()
    assert page.lines[:2] == [
        "**FAILED**: 2 of 3 partitions",
        "1 were put back, and not compared since: 2024-01-01",
    ]


def test_what_was_left_out_of_a_comparison_was_not_put_back(page: Page):
    """Its source is not complete for it any more, so that nothing was compared: what came before counts."""
    page.publish(*DAYS)
    page.checked(*DAYS, passed=True)
    page.evaluated(DAYS[0], passed=False, metadata={})
    page.tick()
    assert page.lines[0] == "**COMPLETED**: 3 of 3 partitions"
    assert "put back" not in "".join(page.lines)


def test_a_launch_that_waits_has_published_nothing(page: Page):
    """Dagster copies the tags of a run that it executes again, and how far that one came with them."""
    page.launch(**{ORDERS: "3 of 3 published"})
    page.tick()
    assert "3 of 3" not in " ".join(page.lines)
    run = page.launch()
    page.instance.add_run_tags(run.run_id, {ORDERS: "2 of 3 published", RUN: run.run_id})
    page.tick()
    assert "2 of 3 published" in " ".join(page.lines)
