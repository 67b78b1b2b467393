"""Which partitions' newest comparison failed, as Dagster's history has it: no JVM, and no rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from dagster._core.events import DagsterEvent, DagsterEventType
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from backfill_assets.assets.factory import tables_of
from backfill_assets.runs.check_history import RECONCILED, failed_comparisons
from backfill_assets.runs.evaluations import left_out_evaluations
from backfill_assets.runs.table import Table
from tests.support.launching import ORDERS, RANGE_END, RANGE_START, key_of, new_lake


@dataclass
class History:
    """Dagster's history of one table. Each test takes days of its own, so one history is enough for all."""

    instance: dg.DagsterInstance
    table: Table
    job: dg.JobDefinition
    days_taken: int = 0

    def days(self, count: int) -> list[str]:
        first = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=self.days_taken)
        self.days_taken += count
        return [f"{first + timedelta(days=n):%Y-%m-%d}" for n in range(count)]

    def planned(self, first: str, last: str) -> dg.DagsterRun:
        """A run with the table's checks before its first step: Dagster has planned a check for each partition."""
        return self.instance.create_run_for_job(
            job_def=self.job, tags={RANGE_START: first, RANGE_END: last}, asset_selection=self.job.asset_selection
        )

    def compared(self, day: str, *, passed: bool) -> None:
        """A comparison of one day."""
        found = {"table_rows": dg.MetadataValue.int(3)}
        evaluation = dg.AssetCheckEvaluation(
            asset_key=key_of(ORDERS), check_name=RECONCILED, passed=passed, metadata=found, partition=day
        )
        self.evaluated([evaluation])

    def evaluated(self, evaluations: Sequence[dg.AssetCheckEvaluation]) -> None:
        run = self.planned(str(evaluations[0].partition), str(evaluations[-1].partition))
        for evaluation in evaluations:
            kind = DagsterEventType.ASSET_CHECK_EVALUATION.value
            event = DagsterEvent(kind, job_name=run.job_name, event_specific_data=evaluation)
            self.instance.report_dagster_event(event, run.run_id)

    def failing(self, *days: str) -> set[str]:
        return set(failed_comparisons(self.instance, self.table)) & set(days)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    lake = new_lake(tmp_path_factory.mktemp("history"))
    definitions = lake.definitions
    job = definitions.resolve_implicit_global_asset_job_def()
    part = job.get_subset(asset_selection=frozenset({key_of(ORDERS)}))
    return History(lake.instance, tables_of(definitions)[0][ORDERS], part)


def test_the_newest_comparison_counts(history: History):
    """A partition fails if its newest comparison did, whatever those before it found; one never compared does not."""
    worse, better, never = history.days(3)
    for day, outcomes in {worse: (True, False), better: (False, True)}.items():
        for passed in outcomes:
            history.compared(day, passed=passed)
    assert history.failing(worse, better, never) == {worse}


def test_a_launch_sees_what_failed_before_it(history: History):
    """The checks that Dagster plans when a launch begins hide no failure from that launch: it has to repair it."""
    good, bad, never = history.days(3)
    history.compared(good, passed=True)
    history.compared(bad, passed=False)
    history.planned(good, never)
    assert history.failing(good, bad, never) == {bad}


def test_a_run_that_ended_before_its_check_hides_no_failure(history: History):
    """A run that was killed compared nothing: what failed before it still fails."""
    mended, bad = history.days(2)
    for passed in (False, True):
        history.compared(mended, passed=passed)
    history.compared(bad, passed=False)
    history.instance.report_run_failed(history.planned(mended, bad))
    assert history.failing(mended, bad) == {bad}


@pytest.mark.parametrize("storage", ["a database's", "another"])
def test_a_failure_is_seen_behind_any_number_of_others(history: History, monkeypatch: pytest.MonkeyPatch, storage: str):
    """However many partitions were compared after it, as all hours of some years are by one run, or left out."""
    monkeypatch.setattr("backfill_assets.runs.check_history.MOST_RECORDS", 3)
    monkeypatch.setattr("backfill_assets.runs.check_history._MOST_NAMED", 3)
    if storage == "another":
        monkeypatch.setattr("backfill_assets.runs.check_history.SqlEventLogStorage", type(None))
    bad, planned, *good = history.days(8)
    for day in (bad, planned):
        history.compared(day, passed=False)
    for day in good:
        history.compared(day, passed=True)
    for _ in range(4):
        history.evaluated(list(left_out_evaluations(history.table, [history.table.spec.grid.partition(bad)])))
    history.planned(planned, planned)
    assert history.failing(bad, planned, *good) == {bad, planned}


def test_no_evaluation_is_read_but_of_what_fails(history: History, monkeypatch: pytest.MonkeyPatch):
    """A hundred thousand evaluations above some that never pass would take a minute to read; a run has planned others."""
    first, second, mended, *good = history.days(9)
    for day in (first, second, mended, *good):
        history.compared(day, passed=day not in (first, second, mended))
    history.compared(mended, passed=True)
    history.planned(mended, good[-1])
    read, read_row = list[str | None](), AssetCheckExecutionRecord.from_db_row

    def counted(row: Mapping[str, Any], key: dg.AssetCheckKey) -> AssetCheckExecutionRecord:
        read.append(row["partition"])
        return read_row(row, key)

    monkeypatch.setattr(AssetCheckExecutionRecord, "from_db_row", counted)
    days = [first, second, mended, *good]
    assert history.failing(*days) == {first, second}
    assert sorted(day for day in read if day in days) == [first, second]


def test_it_is_said_since_when(history: History):
    """A partition fails since the first failure after its last pass."""
    (day,) = history.days(1)
    for passed in (False, True):
        history.compared(day, passed=passed)
    began = datetime.now(UTC)
    history.compared(day, passed=False)
    ended = datetime.now(UTC)
    history.compared(day, passed=False)
    since = failed_comparisons(history.instance, history.table)[day]
    assert began - timedelta(seconds=1) <= since <= ended


def test_what_was_left_out_was_not_compared(history: History):
    """A partition that was left out, because its source was not complete for it yet, does not differ from it."""
    never, bad = history.days(2)
    history.compared(bad, passed=False)
    partitions = [history.table.spec.grid.partition(day) for day in (never, bad)]
    history.evaluated(list(left_out_evaluations(history.table, partitions)))
    assert history.failing(never, bad) == {bad}
