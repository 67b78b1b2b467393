"""Which partitions' newest comparison failed, as Dagster's history has it: no JVM, and no rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as db
from dagster._core.events import DagsterEvent, DagsterEventType
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable as RECORDS  # noqa: N814 (a table, as below)

from backfill_assets.assets.factory import tables_of
from backfill_assets.runs.check_history import PUT_BACK, RECONCILED, compared_since, failed_comparisons, not_passed
from backfill_assets.runs.evaluations import left_out_evaluations
from backfill_assets.runs.table import Table
from tests.support.launching import ORDERS, RANGE_END, RANGE_START, key_of, new_lake


def evaluation(
    day: str, *, passed: bool, of: str = ORDERS, check: str = RECONCILED, told: str = "table_rows"
) -> dg.AssetCheckEvaluation:
    """What a comparison of one day has found."""
    found = {told: dg.MetadataValue.int(3)}
    return dg.AssetCheckEvaluation(asset_key=key_of(of), check_name=check, passed=passed, metadata=found, partition=day)


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

    def compared(self, day: str, *, passed: bool, of: str = ORDERS, **how: Any) -> None:
        """A comparison of one day by a new run."""
        self.evaluated([evaluation(day, passed=passed, of=of, **how)])

    def left_out(self, day: str) -> None:
        self.evaluated(list(left_out_evaluations(self.table, [self.table.spec.grid.partition(day)])))

    def happened(self, what: str, day: str) -> None:
        """One thing of those that can happen to a day, by the word for it."""
        match what:
            case "passed" | "failed":
                self.compared(day, passed=what == "passed")
            case "put back":
                self.compared(day, passed=False, told=PUT_BACK)
            case "left out":
                self.left_out(day)
            case "planned":
                self.planned(day, day)
            case "other table":
                self.compared(day, passed=False, of="bronze/others")
            case "other check":
                self.compared(day, passed=False, check="keys_are_unique")

    def second_by_second(self) -> None:
        """Let the records be a second apart, in their order: the column has whole seconds."""
        with self.instance.event_log_storage.index_connection() as connection:
            at = db.func.datetime("2024-01-01", db.cast(RECORDS.c.id, db.String) + " seconds")
            connection.execute(db.update(RECORDS).values(create_timestamp=at))
            connection.commit()

    def evaluated(
        self,
        evaluations: Sequence[dg.AssetCheckEvaluation],
        run: dg.DagsterRun | None = None,
        at: datetime | None = None,
    ) -> None:
        """Evaluations by a new run, or by one that has waited; now, or at an instant."""
        run = run or self.planned(str(evaluations[0].partition), str(evaluations[-1].partition))
        for each in evaluations:
            kind = DagsterEventType.ASSET_CHECK_EVALUATION.value
            event = DagsterEvent(kind, job_name=run.job_name, event_specific_data=each)
            self.instance.report_dagster_event(event, run.run_id, timestamp=at.timestamp() if at else None)

    def newest(self) -> int:
        """The id of the newest record of any check."""
        with self.instance.event_log_storage.index_connection() as connection:
            return int(connection.execute(db.select(db.func.max(RECORDS.c.id))).scalar_one())

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


HAPPENS = ("passed", "failed", "failed", "put back", "left out", "planned", "other table", "other check")


@pytest.mark.prove
def test_since_when_is_what_the_history_says(history: History):
    """A day differs since its oldest failure without a pass or a put-back after it; others' failures are not its own."""
    dice, days = random.Random(1), history.days(5)
    happened = [(dice.choice(HAPPENS), dice.choice(days)) for _ in range(40)]
    records: list[tuple[str, str, int]] = []
    for what, day in happened:
        history.happened(what, day)
        records.append((what, day, history.newest()))
    history.second_by_second()
    expected: dict[str, datetime | None] = {}
    for what, day, at in records:
        if what == "passed":
            expected.pop(day, None)
        elif what == "put back":
            expected[day] = None
        elif what == "failed" and expected.get(day) is None:
            expected[day] = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=at)
    found = not_passed(history.instance, history.table)
    assert {day: found[day] for day in days if day in found} == expected, happened


def test_what_was_compared_since_is_told_by_when_it_was_evaluated(history: History):
    """One that was planned first and evaluated last is later; what was left out since was not compared."""
    slow, quick, never, before = history.days(4)
    history.compared(before, passed=True)
    waiting = history.planned(slow, slow)
    history.compared(slow, passed=True)
    history.compared(quick, passed=False)
    made_at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    asked = [slow, quick, never, before]
    assert compared_since(history.instance, history.table, asked, made_at) == set()
    later = datetime.now(UTC) + timedelta(hours=2)
    history.evaluated([evaluation(slow, passed=False)], waiting, later)
    history.left_out(never)
    assert compared_since(history.instance, history.table, asked, made_at) == {slow}


def test_what_lies_before_a_start_that_was_moved_is_no_open_failure(history: History):
    """It can neither be launched nor compared any more, so nothing could ever close it."""
    first, second = history.days(2)
    for day in (first, second):
        history.compared(day, passed=False)
    assert {first, second} <= failed_comparisons(history.instance, history.table).keys()
    spec = history.table.spec.model_copy(update={"start": date.fromisoformat(second)})
    found = failed_comparisons(history.instance, Table(spec))
    assert (first in found, second in found) == (False, True)


def test_what_was_left_out_was_not_compared(history: History):
    """A partition that was left out, because its source was not complete for it yet, does not differ from it."""
    never, bad = history.days(2)
    history.compared(bad, passed=False)
    partitions = [history.table.spec.grid.partition(day) for day in (never, bad)]
    history.evaluated(list(left_out_evaluations(history.table, partitions)))
    assert history.failing(never, bad) == {bad}
