"""What Dagster is told of a change feed, and who is told when a table falls behind its database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.assets.factory import tables_of
from backfill_assets.assets.feed import SIGN_OF_LIFE_SECONDS, FeedReporter
from backfill_assets.assets.live import REPORT_SECONDS
from backfill_assets.assets.reconciliation import unreconciled
from backfill_assets.assets.status import status_of_tables
from backfill_assets.core.history.outcomes import Published
from backfill_assets.core.history.ports import Commit
from backfill_assets.core.spec.lakehouse import check_together
from backfill_assets.core.state.partition_status import PartitionStatus, State
from backfill_assets.core.state.receipts import PartitionReceipt, PublishedPartition, Receipt, Run
from backfill_assets.core.state.surveys import Survey
from backfill_assets.live.changes.landed import FeedState
from backfill_assets.live.changes.refresh import BY, Refreshed
from backfill_assets.runs.table_status import TableStatus
from tests.assets.test_alerts import later
from tests.live.changes.world import DAYS, customers_spec
from tests.support.alert_office import Office
from tests.support.alert_receiver import Receiver

KEY = "bronze/customers"
LIVE = dg.AssetKey(["bronze", "customers_live"])
LOST = "The capture `shop`: there is no such slot any more."


class Follower:
    """What `backfill-assets live` tells of a feed that is folded in, by a clock of its own."""

    def __init__(self, office: Office):
        self.definitions = office.definitions = lakehouse_definitions(
            build_lakehouse_table(customers_spec("SHOP_DATABASE", "shop"))
        )
        self.office, self.seconds, self.said = office, 0.0, list[str]()
        table = tables_of(self.definitions)[0][KEY]
        assert table.spec.changes is not None
        self.table, self.feed = table, table.spec.changes
        self.reporter = self.new_reporter(office.instance)

    def new_reporter(self, instance: dg.DagsterInstance) -> FeedReporter:
        needed = {"needed_from": lambda: 0x1AF0000, "clock": lambda: self.seconds}
        return FeedReporter(instance, self.table, self.feed, self.said.append, **needed)

    def sees(self, *days: str, lag: float = 1.0, stopped: str = "") -> None:
        now = datetime.now(UTC)
        outcomes = [self.published(*days)] if days else []
        self.reporter.saw(Refreshed(0x1AF61B0, outcomes), FeedState(now - timedelta(seconds=lag), stopped), now)

    def published(self, *days: str) -> Published:
        partitions = tuple(self.table.spec.grid.partition(day) for day in days)
        parts = {day: PartitionReceipt(10, "", None, None, "") for day in days}
        receipt = Receipt("r", KEY, Run("run"), 0, {}, parts)
        return Published(1, 1, partitions, receipt, Commit(3, {}, {}, None, {}), {})

    @property
    def told(self) -> list[dict[str, object]]:
        """The metadata of every event of the feed, the oldest first."""
        found = self.office.instance.fetch_materializations(LIVE, limit=100).records
        events = [record.asset_materialization for record in reversed(found)]
        return [{name: value.value for name, value in event.metadata.items()} for event in events if event]


@pytest.fixture
def follower(office: Office) -> Follower:
    return Follower(office)


def test_a_table_that_falls_behind_its_database_is_told(follower: Follower, receiver: Receiver):
    """As soon as it is, and when it is not any more; not again while it falls further behind."""
    follower.office.tick()
    for lag in (1.0, 901.0, 950.0):
        follower.sees(lag=lag)
        follower.office.tick()
    assert receiver.bodies[0]["what"] == f"`{KEY}` is more than `max_lag_seconds`, 900 s, behind."
    follower.sees()
    follower.office.tick()
    assert receiver.news() == [("stream_lags", "open", KEY), ("stream_lags", "over", KEY)]


def test_changes_that_wait_with_the_past_are_behind(follower: Follower):
    """What has landed is one thing; that a partition still lacks what was committed ten minutes ago is another."""
    now = datetime.now(UTC)
    done = Refreshed(0x1AF61B0, lacking_since=now - timedelta(minutes=10))
    follower.reporter.saw(done, FeedState(now - timedelta(seconds=1)), now)
    assert follower.told[-1]["lag_seconds"] == 600.0


def test_a_table_that_its_capture_does_not_have_is_behind(follower: Follower, receiver: Receiver):
    """By how long that has been so, and not by what the capture has landed of others; the page does not call it complete."""
    now, not_captured = datetime.now(UTC), FeedState(None, has_table=False)
    follower.office.tick()
    for passed in (0, 901):
        follower.reporter.saw(Refreshed(0x1AF61B0), not_captured, now + timedelta(seconds=passed))
        follower.office.tick()
    assert receiver.bodies[0]["what"] == f"`{KEY}` is more than `max_lag_seconds`, 900 s, behind."
    page = status_of_tables(follower.office.instance, {KEY: follower.table}, {}, now_utc=now)[KEY]
    assert "the capture shop does not have this table" in page
    assert not_captured.comes_no_more
    follower.sees()
    follower.office.tick()
    assert receiver.news() == [("stream_lags", "open", KEY), ("stream_lags", "over", KEY)]


def test_a_capture_that_has_stopped_is_told_at_once(follower: Follower, receiver: Receiver):
    """With why: nothing will be up to date until somebody does something about it."""
    follower.sees()
    follower.office.tick()
    follower.sees(stopped=LOST)
    follower.office.tick()
    assert receiver.bodies[0]["what"].endswith(f"its capture has stopped. {LOST}")
    follower.sees()
    follower.office.tick()
    assert receiver.news() == [("stream_lags", "open", KEY), ("stream_lags", "over", KEY)]


def test_a_table_whose_capture_has_stopped_is_not_complete(follower: Follower):
    """The page says so, and why."""
    now = datetime(2024, 1, 3, tzinfo=UTC)
    for partition in follower.table.spec.grid.until(now):
        follower.office.instance.report_runless_asset_event(
            dg.AssetMaterialization(follower.table.asset_key, partition=partition.key)
        )

    def page() -> str:
        return status_of_tables(follower.office.instance, {KEY: follower.table}, {}, now_utc=now)[KEY]

    follower.sees()
    assert "**COMPLETED**" in page()
    follower.sees(stopped=LOST)
    assert "**PARTIAL**" in page()
    assert LOST in page()


def test_what_waits_for_the_next_refresh_is_no_alarm():
    """A change of a minute ago is folded in soon; one that waits for an hour, and whatever differs besides, is named."""
    now, grid = datetime.now(UTC), customers_spec("SHOP_DATABASE", "shop").grid
    states = {
        DAYS[0]: (State.PUBLISHED,),
        DAYS[1]: (State.STALE_SOURCE,),
        DAYS[2]: (State.STALE_SOURCE,),
        DAYS[3]: (State.DIFFERS, State.STALE_SOURCE),
        DAYS[4]: (State.STALE_SOURCE,),
    }
    minutes = {DAYS[1]: 1, DAYS[2]: 60, DAYS[3]: 1}
    surveys = {day: Survey("", changed_utc=now - timedelta(minutes=n)) for day, n in minutes.items()}
    complete = tuple(
        PartitionStatus(grid.partition(day), found, ("why",) * len(found)) for day, found in states.items()
    )
    looked_at = TableStatus(complete, surveys={DAYS[4]: Survey(""), **surveys})
    waiting = unreconciled(looked_at, timedelta(minutes=15))
    assert [each.partition.key for each in waiting] == [DAYS[2], DAYS[3], DAYS[4]]
    assert [each.partition.key for each in unreconciled(looked_at)] == list(DAYS[1:])


def test_a_writer_that_ended_is_silence(follower: Follower, receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    """Where nothing changes a sign of life comes every five minutes; one that fails to come is an outage."""
    follower.sees()
    later(monkeypatch, 900 - 30 - SIGN_OF_LIFE_SECONDS - 10)
    follower.office.tick()
    assert receiver.news() == []
    later(monkeypatch, 900 - 30 - SIGN_OF_LIFE_SECONDS + 10)
    follower.office.tick()
    assert receiver.news() == [("stream_silent", "open", KEY)]


def test_dagster_is_told_now_and_then(follower: Follower):
    """Of each partition at once; of the feed every 30 s while anything changes, and every five minutes while not."""
    follower.sees(DAYS[0])
    follower.seconds = REPORT_SECONDS - 1
    follower.sees(DAYS[0], DAYS[1])
    assert len(follower.told) == 1
    assert follower.office.instance.get_materialized_partitions(follower.table.asset_key) == {DAYS[0], DAYS[1]}
    follower.seconds += 1
    follower.sees()
    assert [(one["partitions"], one["rows"]) for one in follower.told] == [(1, 10), (2, 20)]
    assert (follower.told[-1]["position"], follower.told[-1]["lag_seconds"]) == ("0/1AF61B0", 1.0)
    assert follower.told[-1]["files_needed_from"] == "0/1AF0000"
    follower.seconds += SIGN_OF_LIFE_SECONDS - 1
    follower.sees()
    assert len(follower.told) == 2
    follower.seconds += 1
    follower.sees()
    assert [one["partitions"] for one in follower.told] == [1, 2, 0]


def test_what_dagster_does_not_take_is_told_later(follower: Follower, monkeypatch: pytest.MonkeyPatch):
    """The table does not wait for a database that is away; nothing is told twice, and nothing left out."""
    instance, take, refused = follower.office.instance, follower.office.instance.report_runless_asset_event, [1, 3]
    asked: list[None] = []

    def flaky(event: dg.AssetMaterialization) -> None:
        asked.append(None)
        if len(asked) in refused:
            raise ConnectionError
        take(event)

    monkeypatch.setattr(instance, "report_runless_asset_event", flaky)
    for _ in range(3):
        follower.sees(*DAYS[:2] if not asked else ())
    assert [said.split(":")[0] for said in follower.said] == [
        "Dagster could not be told, and will be with the next refresh"
    ] * 2
    assert len(instance.fetch_materializations(follower.table.asset_key, limit=10).records) == 2
    assert [one["partitions"] for one in follower.told] == [2]


def test_what_a_process_before_did_not_tell_is_told(follower: Follower):
    """It was killed, or Dagster's database was away until it ended: what follows the table has to hear of it."""
    outcome = follower.published(*DAYS[:3])
    receipt = replace(outcome.receipt, run=replace(outcome.receipt.run, by=BY))
    newest = {day: PublishedPartition(3, receipt, receipt.partitions[day]) for day in DAYS[:3]}
    newest[DAYS[2]] = PublishedPartition(3, outcome.receipt, receipt.partitions[DAYS[2]])  # a launch tells of its own
    instance, key = follower.office.instance, follower.table.asset_key
    for metadata, day in ((None, DAYS[0]), ({"left_out": "there already"}, DAYS[1])):
        told = {"receipt": receipt.receipt_id, **(metadata or {})}
        instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=day, metadata=told))
    follower.reporter.catch_up(lambda: newest)
    follower.sees()
    events = [record.asset_materialization for record in instance.fetch_materializations(key, limit=10).records]
    assert [event.partition for event in events if event] == [DAYS[1], DAYS[1], DAYS[0]]
    found = {"receipt": receipt.receipt_id, "identical": "as it would be written"}
    instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=DAYS[0], metadata=found))
    follower.reporter = follower.new_reporter(instance)
    follower.reporter.catch_up(lambda: newest)
    follower.sees()
    assert len(instance.fetch_materializations(key, limit=10).records) == 4


def test_the_page_says_how_a_feed_stands(follower: Follower):
    """How far behind the table is, or that its capture has stopped and why."""

    def said() -> str:
        tables = {KEY: follower.table}
        page = status_of_tables(follower.office.instance, tables, {}, now_utc=datetime.now(UTC))
        return page[KEY].split("  \n")[-1]

    assert said() == "Changes: not followed yet"
    follower.sees(lag=4.2)
    assert said().startswith("Changes: newest refresh told at ")
    assert said().endswith(", 4 s behind the database")
    follower.sees(stopped=LOST)
    assert LOST in said()


@pytest.mark.parametrize("key", ["bronze/customers_live", "bronze/customers_changes"])
def test_no_table_may_have_the_name_of_a_feed(key: str):
    """Its asset, and the folder of its changes, are taken."""
    specs = [customers_spec("SHOP_DATABASE", "shop"), customers_spec("SHOP_DATABASE", "other", key=key)]
    reports: list[str] = []
    check_together({spec.key: spec for spec in specs}, lambda _, sentence: reports.append(sentence))
    assert [sentence.endswith("under this name; choose another one") for sentence in reports] == [True]
