"""What a launch does, and what Dagster is told of it: real runs on a real table, in this process.

Each scenario is launched once, in a fixture; the tests beneath it look at what it left behind.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg
import deltalake
import pyarrow as pa
import pytest

from backfill_assets.core.history.publish import Published
from backfill_assets.runs import killed as runs
from backfill_assets.runs import launch as launches
from backfill_assets.runs.resources import Lakehouse
from tests.support.launching import ORDERS, TOTALS, Lake, Ran, new_lake
from tests.support.shop import launch as publish_directly
from tests.support.shop import multiset, opened, orders
from tests.support.under_way import GONE, under_way

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAY_1, DAY_2, DAY_3, DAY_4, DAY_5 = (f"2024-01-0{n}" for n in range(1, 6))
ONE_SPEC = ["keys_are_unique", "rows_inside_partition", "rows_match_source", "schema_matches"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Callable[..., Lake]:
    """Make a lakehouse; it uses the one session that all tests share."""

    def make(name: str, **changes: Any) -> Lake:
        return new_lake(tmp_path_factory.mktemp(name), **changes)

    return make


@dataclass(frozen=True)
class Scene:
    """A lakehouse as it was right after a run."""

    lake: Lake
    ran: Ran
    content: Any
    files: dict[str, set[str]]
    shown: dict[str, str]
    totals_shown: dict[str, str]


def scene(lake: Lake, ran: Ran) -> Scene:
    days = (DAY_1, DAY_2, DAY_3, DAY_4, DAY_5)
    return Scene(lake, ran, lake.content(), lake.files(), lake.shown(*days), lake.shown(*days, table=TOTALS))


def same_keys(*days: str, count: int = 3, **same: Any) -> Any:
    """The rows of some days, as they should be in the table."""
    return multiset(row for day in days for row in orders(day, count, **same))


# -- a launch that goes well -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good(made: Callable[..., Lake]) -> Scene:
    """Five days are launched, of which the source has three."""
    lake = made("good")
    for count, day in enumerate((DAY_1, DAY_2, DAY_3), start=2):
        lake.export(day, orders(day, count))
    return scene(
        lake, lake.launch(DAY_1, DAY_5, tables=(ORDERS, TOTALS), reason="first load", max_partitions_per_chunk=2)
    )


def test_the_table_has_the_sources_rows(good: Scene):
    """After a launch the table holds exactly the rows of its source."""
    assert good.ran.succeeded, good.ran.failure
    assert good.content == same_keys(DAY_1, count=2) + same_keys(DAY_2, count=3) + same_keys(DAY_3, count=4)


def test_each_partition_has_one_event(good: Scene):
    """Each published partition has one materialization event: ours, and none that Dagster adds at the end."""
    assert good.ran.recorded() == [DAY_1, DAY_2, DAY_3]
    assert good.ran.recorded(TOTALS) == [DAY_1, DAY_2, DAY_3]


def test_an_event_says_what_was_published(good: Scene):
    """An event names rows, bytes, version, checksum, seconds and reason of its own partition."""
    for rows, (day, version) in enumerate(((DAY_1, 1), (DAY_2, 1), (DAY_3, 2)), start=2):
        metadata = good.ran.metadata(day)
        assert metadata["dagster/partition_row_count"] == rows
        assert metadata["table_version"] == version
        assert metadata["size_bytes"] == sum((good.lake.path() / file).stat().st_size for file in good.files[day])
        assert len(metadata["checksum"]) == 16
        assert metadata["seconds"] >= 0
        assert metadata["reason"] == "first load"
        assert metadata["event_times"] == f"{day} 00:00:00 to {day} {rows - 1:02}:00:00 UTC"


def test_the_data_version_is_the_checksum(good: Scene):
    """Dagster knows each partition's content by its checksum, so equal content is never stale."""
    for event in good.ran.materializations():
        assert event.tags is not None
        assert event.tags["dagster/data_version"] == event.metadata["checksum"].value


def test_partitions_beyond_the_source_stay_missing(good: Scene):
    """Partitions for which the source is not complete have no event, stay missing, and are named in the launch."""
    done = dict.fromkeys((DAY_1, DAY_2, DAY_3), "materialized")
    assert good.shown == {**done, DAY_4: "missing", DAY_5: "missing"}
    assert good.totals_shown == good.shown
    assert (
        f"**Left out:** 2 from `{DAY_4}` to `{DAY_5}`: the source is not complete for them yet; they stay missing."
        in good.ran.launch
    )


def test_every_partition_is_reconciled(good: Scene):
    """Each published partition has a green evaluation of every rule, in the run that published it."""
    evaluations = good.ran.evaluations()
    for day in (DAY_1, DAY_2, DAY_3):
        assert evaluations[day].passed
        assert {name: evaluations[day].metadata[name].value for name in ONE_SPEC} == dict.fromkeys(ONE_SPEC, "holds")
    assert good.ran.verdicts(table=TOTALS)[DAY_3]


def test_partitions_that_were_left_out_are_a_warning(good: Scene):
    """A partition that was left out is not green and does not fail the run: its evaluation is a warning that says why."""
    for day in (DAY_4, DAY_5):
        left_out = good.ran.evaluations()[day]
        assert (left_out.passed, left_out.severity) == (False, dg.AssetCheckSeverity.WARN)
        assert "the source is not complete" in (left_out.description or "")


def test_the_launch_is_summed_up(good: Scene):
    """An observation of the table has one line of numbers for the whole launch."""
    head, _, numbers, *_ = good.ran.launch.splitlines()
    found = dict(zip(*([cell.strip() for cell in line.strip("|").split("|")] for line in (head, numbers)), strict=True))
    assert {name: found[name] for name in ("published", "rows", "commits", "refused", "left out")} == {
        "published": "3", "rows": "9", "commits": "2", "refused": "0", "left out": "2",
    }  # fmt: skip


def test_progress_is_logged_for_each_chunk(good: Scene):
    """Each chunk says in the log how far the launch is."""
    assert (
        f"Chunk 1 of 2 is version 1: {DAY_1} to {DAY_2}, 2 partitions, 5 rows; 2 of 3 partitions done" in good.ran.log
    )


def test_a_run_is_signed_by_its_process(good: Scene):
    """A run is tagged with the process it lives in, so that its death can be found out."""
    assert good.ran.run.tags[runs.PID] == str(os.getpid())
    assert good.ran.run.tags[runs.HOST] == socket.gethostname()


def test_receipts_can_be_queried(good: Scene):
    """`<table>_receipts` has a row for each partition and publish, with the run that made it."""
    receipts = deltalake.DeltaTable(f"{good.lake.path()}_receipts").to_pyarrow_table().to_pylist()
    assert sorted((row["version"], row["partition"], row["rows"], row["run_id"]) for row in receipts) == [
        (1, DAY_1, 2, good.ran.run.run_id),
        (1, DAY_2, 3, good.ran.run.run_id),
        (2, DAY_3, 4, good.ran.run.run_id),
    ]


# -- a bad day among good ones -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def before(made: Callable[..., Lake]) -> Scene:
    """Three days are in the table."""
    lake = made("bad")
    for day in (DAY_1, DAY_2, DAY_3):
        lake.export(day, orders(day, customer="old"))
    return scene(lake, lake.launch(DAY_1, DAY_3))


@pytest.fixture(scope="module")
def bad(before: Scene) -> Scene:
    """All three days are corrected at the source, and the second has two rows with one key."""
    lake = before.lake
    for day in (DAY_1, DAY_2, DAY_3):
        lake.export(day, orders(day, customer="new") + (orders(day, 1, customer="again") if day == DAY_2 else []))
    return scene(lake, lake.launch(DAY_1, DAY_3, tables=(ORDERS, TOTALS), max_partitions_per_chunk=3))


@pytest.fixture(scope="module")
def repeated(bad: Scene) -> Scene:
    """The second day is put right, and Dagster executes the failed run again."""
    bad.lake.export(DAY_2, orders(DAY_2, customer="new"))
    return scene(bad.lake, bad.lake.launch(DAY_1, DAY_3, tables=(ORDERS, TOTALS), again=bad.ran))


@pytest.fixture(scope="module")
def only_missing(repeated: Scene) -> Scene:
    """The third day changes once more, a fourth arrives, and a launch asks for `MISSING` only."""
    repeated.lake.export(DAY_3, orders(DAY_3, customer="newest"))
    repeated.lake.export(DAY_4, orders(DAY_4))
    return scene(repeated.lake, repeated.lake.launch(DAY_1, DAY_4, only="MISSING"))


@pytest.fixture(scope="module")
def reprocessed(only_missing: Scene) -> Scene:
    """Every day changes at the source, and the range is launched as it was the first time."""
    for day in (DAY_1, DAY_2, DAY_3, DAY_4):
        only_missing.lake.export(day, orders(day, 2, customer="corrected"))
    return scene(only_missing.lake, only_missing.lake.launch(DAY_1, DAY_4))


def test_good_days_are_published_and_green(bad: Scene):
    """The days beside a bad one are published, recorded and shown as materialized."""
    assert bad.ran.recorded() == [DAY_1, DAY_3]
    assert bad.shown == {
        DAY_1: "materialized",
        DAY_2: "failed",
        DAY_3: "materialized",
        DAY_4: "missing",
        DAY_5: "missing",
    }


def test_a_bad_day_keeps_its_rows_and_files(before: Scene, bad: Scene):
    """The refused day has the rows it had, in the very files it had; its neighbours have new ones."""
    assert bad.content == same_keys(DAY_2, customer="old") + same_keys(DAY_1, DAY_3, customer="new")
    assert bad.files[DAY_2] == before.files[DAY_2]
    assert not bad.files[DAY_1] & before.files[DAY_1]


def test_the_run_fails_and_says_why(bad: Scene):
    """The run fails with the number of refused days, which, the rule, and what the table has there now."""
    assert not bad.ran.succeeded
    assert (
        f"`{ORDERS}`: 1 of 3 partitions were refused ({DAY_2}); the table keeps what it had there. 2 were published."
        in bad.ran.failure
    )
    assert "keys_are_unique: 1 row repeats a key" in bad.ran.failure
    assert f"| {DAY_2} | keys_are_unique" in bad.ran.launch  # the observation is there although the launch failed


def test_every_partition_of_a_failed_run_is_evaluated(bad: Scene):
    """The check has a verdict for every day: green for the published, red with the reason and a row for the refused."""
    assert bad.ran.verdicts() == {DAY_1: True, DAY_2: False, DAY_3: True}
    refused = bad.ran.evaluations()[DAY_2]
    assert refused.severity == dg.AssetCheckSeverity.ERROR
    assert "Refused, the table keeps what it had." in (refused.description or "")
    assert "order_id=" in refused.metadata["keys_are_unique"].value


def test_what_is_made_of_a_bad_day_does_not_run(bad: Scene):
    """Downstream of a failed table nothing is started in that run."""
    assert bad.ran.recorded(TOTALS) == []
    assert set(bad.totals_shown.values()) <= {"missing", "failed"}
    assert "silver__daily_totals" not in {step for step, end in bad.ran.steps.items() if end == "success"}


def test_a_repeated_run_does_the_rest(bad: Scene, repeated: Scene):
    """Executed again, a run leaves out what it published of the same content and publishes the rest; downstream runs."""
    assert repeated.ran.succeeded, repeated.ran.failure
    assert repeated.content == same_keys(DAY_1, DAY_2, DAY_3, customer="new")
    assert (repeated.files[DAY_1], repeated.files[DAY_3]) == (bad.files[DAY_1], bad.files[DAY_3])
    assert "an earlier attempt of this run published the same content" in repeated.ran.launch
    assert repeated.totals_shown[DAY_2] == "materialized"


def test_what_a_repeated_run_left_out_is_green(repeated: Scene):
    """A day that was left out since it is published already has an event with its receipt, and is green."""
    assert sorted(filter(None, repeated.ran.recorded())) == [DAY_1, DAY_2, DAY_3]
    assert "left_out" in repeated.ran.metadata(DAY_1)
    assert repeated.ran.metadata(DAY_1)["table_version"] < repeated.ran.metadata(DAY_2)["table_version"]
    assert [repeated.shown[day] for day in (DAY_1, DAY_2, DAY_3)] == ["materialized"] * 3


def test_only_missing_writes_what_changed_or_is_not_there(repeated: Scene, only_missing: Scene):
    """With `only: MISSING` a launch writes the days whose source changed and those never published; others keep their files."""
    assert only_missing.ran.succeeded, only_missing.ran.failure
    assert only_missing.content == (
        same_keys(DAY_1, DAY_2, customer="new") + same_keys(DAY_3, customer="newest") + same_keys(DAY_4)
    )
    assert (only_missing.files[DAY_1], only_missing.files[DAY_2]) == (repeated.files[DAY_1], repeated.files[DAY_2])
    assert only_missing.files[DAY_3] != repeated.files[DAY_3]
    assert (
        f"**Left out:** 2 from `{DAY_1}` to `{DAY_2}`: their receipt names the source's content as it is now."
        in only_missing.ran.launch
    )


def test_a_plain_launch_writes_everything(only_missing: Scene, reprocessed: Scene):
    """A launch writes every day that it names, whatever was there: that is how a corrected source is reprocessed."""
    assert reprocessed.ran.succeeded, reprocessed.ran.failure
    assert reprocessed.content == same_keys(DAY_1, DAY_2, DAY_3, DAY_4, count=2, customer="corrected")
    for day in (DAY_1, DAY_2, DAY_3, DAY_4):
        assert not reprocessed.files[day] & only_missing.files[day]
    assert reprocessed.ran.verdicts() == dict.fromkeys((DAY_1, DAY_2, DAY_3, DAY_4), True)


# -- after runs that died ----------------------------------------------------------------------------------------------

DEAD, ALIVE, ELSEWHERE = "run of a process that is gone", "run of a process that lives", "run of another machine"


@dataclass(frozen=True)
class Aftermath:
    """A launch of one day after another day was committed without Dagster's knowledge."""

    lake: Lake
    ran: Ran
    direct: Published
    unfinished: dict[str, str]


@pytest.fixture(scope="module")
def aftermath(made: Callable[..., Lake], spark: Any) -> Aftermath:
    """A run published two days and was killed before it could say so; two other runs are under way; then a third day is launched."""
    lake = made("aftermath")
    for day in (DAY_1, DAY_2, DAY_3):
        lake.export(day, orders(day))
    unfinished = {
        DEAD: under_way(lake.instance, GONE),
        ALIVE: under_way(lake.instance, os.getpid()),
        ELSEWHERE: under_way(lake.instance, GONE, **{runs.HOST: "another-machine"}),
    }
    lakehouse = Lakehouse(root=str(lake.root))
    table = lakehouse.table(lake.spec, lambda _: None)
    table.create()
    source = lakehouse.source(lake.spec, {}, None, lambda _: None)
    (direct,) = publish_directly(table, source, lake.spec.grid.between(DAY_1, DAY_2), run_id=unfinished[DEAD])
    assert isinstance(direct, Published)
    return Aftermath(lake, lake.launch(DAY_3), direct, unfinished)


def test_a_commit_that_dagster_missed_is_recorded(aftermath: Aftermath):
    """The next launch records, from the commit's receipt, what a killed run published and could not say."""
    assert aftermath.ran.succeeded, aftermath.ran.failure
    assert sorted(filter(None, aftermath.ran.recorded())) == [DAY_1, DAY_2, DAY_3]
    for day in (DAY_1, DAY_2):
        metadata = aftermath.ran.metadata(day)
        assert metadata["recorded_from"] == f"receipt of version {aftermath.direct.commit.version}"
        assert metadata["checksum"] == aftermath.direct.receipt.partitions[day].checksum
        assert metadata["dagster/partition_row_count"] == 3
    assert aftermath.lake.shown(DAY_1, DAY_2, DAY_3) == dict.fromkeys((DAY_1, DAY_2, DAY_3), "materialized")


def test_a_commit_is_recorded_once(aftermath: Aftermath):
    """A launch after that finds nothing more to record."""
    again = aftermath.lake.launch(DAY_3)
    assert again.recorded() == [DAY_3]


def test_dead_runs_are_reported_as_failed(aftermath: Aftermath):
    """A run whose process is gone is marked as failed; runs of living processes and of other machines are left alone."""
    status = {name: aftermath.lake.ran(run_id).run.status.value for name, run_id in aftermath.unfinished.items()}
    assert status == {DEAD: "FAILURE", ALIVE: "STARTED", ELSEWHERE: "STARTED"}
    assert f"Run {aftermath.unfinished[DEAD]} was killed on this machine; it is marked as failed" in aftermath.ran.log


def test_a_run_that_is_under_way_speaks_for_itself(made: Callable[..., Lake], spark: Any):
    """What a living run has committed and is about to record is not recorded by another launch."""
    lake = made("under_way")
    for day in (DAY_1, DAY_2):
        lake.export(day, orders(day))
    living = under_way(lake.instance, os.getpid())
    lakehouse = Lakehouse(root=str(lake.root))
    table = lakehouse.table(lake.spec, lambda _: None)
    table.create()
    publish_directly(
        table,
        lakehouse.source(lake.spec, {}, None, lambda _: None),
        lake.spec.grid.between(DAY_1, DAY_1),
        run_id=living,
    )
    ran = lake.launch(DAY_2)
    assert ran.recorded() == [DAY_2]


def test_what_was_put_back_is_not_recorded(made: Callable[..., Lake], spark: Any):
    """A run whose first publish had to be put back published nothing: no later launch says so, and its day stays missing."""
    lake = made("put_back")
    for day in (DAY_1, DAY_2):
        lake.export(day, orders(day))
    lakehouse = Lakehouse(root=str(lake.root))
    table = lakehouse.table(lake.spec, lambda _: None)
    table.create()
    named = lake.spec.grid.between(DAY_1, DAY_1)
    source = lakehouse.source(lake.spec, {}, None, lambda _: None)
    (wrong,) = publish_directly(table, source, named, run_id=under_way(lake.instance, GONE))
    assert isinstance(wrong, Published)
    back = replace(
        wrong.receipt,
        receipt_id="back",
        kind="put_back",
        staged_from_version=1,
        source={"kind": "version", "version": 0},
    )
    table.restore(named, version=0, receipt=back)

    assert lake.launch(DAY_2).recorded() == [DAY_2]
    assert lake.shown(DAY_1, DAY_2) == {DAY_1: "missing", DAY_2: "materialized"}
    assert table.published().keys() == {DAY_2}
    assert lake.launch(DAY_1, DAY_2, only="MISSING").metadata(DAY_1)["table_version"] == 4


# -- what nobody foresaw -----------------------------------------------------------------------------------------------


def test_an_unforeseen_error_fails_the_run_with_its_own_words(made: Callable[..., Lake]):
    """An error that is none of ours fails the run with its own text; nothing is written and nothing recorded."""

    def broken(orders: Any) -> Any:
        raise ZeroDivisionError("a mistake in somebody's transform")

    lake = made("unforeseen", transform=broken)
    lake.export(DAY_1, orders(DAY_1))
    ran = lake.launch(DAY_1, tables=(ORDERS, TOTALS))
    assert (ran.steps["bronze__orders"], ran.steps["silver__daily_totals"]) == ("success", "failure")
    assert "ZeroDivisionError: a mistake in somebody's transform" in ran.failure
    assert ran.recorded(TOTALS) == []
    assert not lake.path(TOTALS).exists()
    assert lake.shown(DAY_1, table=TOTALS) == {DAY_1: "failed"}


# -- checks ------------------------------------------------------------------------------------------------------------


def add_a_row(lake: Lake, day: str, **values: Any) -> None:
    """Write a row into the table behind everybody's back, with another writer."""
    (row,) = orders(day, 1, **values)
    schema = opened(lake.path()).to_pyarrow_table().schema
    columns = {**row, "dt": row["ordered_at"].date()}
    deltalake.write_deltalake(str(lake.path()), pa.Table.from_pylist([columns], schema=schema), mode="append")


@pytest.fixture
def a_writer_in_between(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Let something happen after a launch and before its checks."""

    def happens(what: Callable[[], None]) -> None:
        launch = launches.run

        def run_then(*args: Any) -> Any:
            result = launch(*args)
            what()
            return result

        monkeypatch.setattr(launches, "run", run_then)

    return happens  # type: ignore[return-value]


def test_checks_inside_a_launch_compare_with_the_receipt(made: Callable[..., Lake], a_writer_in_between: Any):
    """The checks of a launch hold what was committed against its receipt: a row of somebody else is found, the source is not read again."""
    lake = made("receipt")
    for day in (DAY_1, DAY_2):
        lake.export(day, orders(day))

    def behind_our_back() -> None:
        add_a_row(lake, DAY_2, order_id=1, customer="nobody")
        lake.export(DAY_1, orders(DAY_1, 1, customer="changed since"))

    a_writer_in_between(behind_our_back)
    ran = lake.launch(DAY_1, DAY_2, tables=(ORDERS, TOTALS))

    assert ran.verdicts() == {DAY_1: True, DAY_2: False}
    assert (
        ran.evaluations()[DAY_2].metadata["rows_match_source"].value
        == "the table has 4 rows, 1 more than its source (3)."
    )
    assert not ran.succeeded
    assert ran.recorded() == [DAY_1, DAY_2]  # it was published; that is not what is wrong
    assert ran.recorded(TOTALS) == []


@dataclass(frozen=True)
class Checked:
    """The same table, changed behind our back, under checks that only warn and under checks that stop."""

    warn: Ran
    error: Ran


@pytest.fixture(scope="module")
def checked(made: Callable[..., Lake]) -> Checked:
    found = {}
    for severity in ("warn", "error"):
        lake = made(severity, checks={"severity": severity, "separate": ["keys_are_unique", "rows_match_source"]})
        for day in (DAY_1, DAY_2):
            lake.export(day, orders(day))
        assert lake.launch(DAY_1, DAY_2).succeeded
        add_a_row(lake, DAY_2, customer="nobody")
        found[severity] = lake.reconcile(DAY_1, DAY_3)
    return Checked(**found)


def test_a_check_alone_finds_what_changed_behind_our_back(checked: Checked):
    """Run alone, the check reads both sides afresh, finds the difference and names the row on the side that has it."""
    found = checked.error.evaluations()[DAY_2]
    assert not found.passed
    (difference,) = [d for d in found.metadata["differences"].value if d["rule"] == "rows_match_source"]
    assert (difference["rows"], len(difference["examples"])) == (1, 1)
    assert difference["examples"][0].startswith("only in the table: order_id=")
    assert "customer=nobody" in difference["examples"][0]
    assert "customer=nobody" in checked.error.log


def test_a_check_alone_writes_nothing(checked: Checked):
    """Comparing leaves no materialization."""
    assert checked.error.recorded() == []


def test_rules_can_be_checks_of_their_own(checked: Checked):
    """A rule that the spec separates has its own verdict for each partition, beside `reconciled`."""
    assert checked.error.verdicts("keys_are_unique") == {DAY_1: True, DAY_2: False}
    assert checked.error.verdicts("rows_match_source") == {DAY_1: True, DAY_2: False}
    assert checked.error.verdicts() == {DAY_1: True, DAY_2: False, DAY_3: False}
    assert checked.error.evaluations()[DAY_3].severity == dg.AssetCheckSeverity.WARN


def test_severity_decides_whether_a_difference_stops(checked: Checked):
    """With `severity: error` a difference fails the run; with `warn` it shows, and the run goes on."""
    assert (checked.error.succeeded, checked.warn.succeeded) == (False, True)
    assert checked.warn.evaluations()[DAY_2].severity == dg.AssetCheckSeverity.WARN
    assert checked.warn.verdicts() == checked.error.verdicts()
