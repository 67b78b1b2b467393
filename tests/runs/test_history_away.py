"""Dagster's own database fails in the middle of a launch: the run says so in our words, and can be told the rest later."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from sqlalchemy.exc import OperationalError

from backfill_assets.errors import HistoryUnavailableError
from backfill_assets.runs.check_history import compared_since
from backfill_assets.runs.recording import failures_for_dagster, history_translated, recording
from backfill_assets.runs.table import Table
from tests.support.launching import ORDERS, new_lake
from tests.support.shop import orders

FULL = "CREATE TRIGGER {name} BEFORE INSERT ON event_logs BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END"


def change(home: Path, statement: str) -> None:
    with closing(sqlite3.connect(home / "index.db")) as database:
        database.execute(statement.format(name="disk"))
        database.commit()


def test_a_database_that_fails_is_translated(tmp_path: Path):
    """An event that the database does not take fails the run with three sentences; what comes after is not held back."""
    instance, home = new_lake(tmp_path).instance, tmp_path / "history/events"

    @dg.asset
    def orders(context: dg.AssetExecutionContext) -> None:
        with failures_for_dagster("bronze/orders"):
            with recording(instance, context.run.run_id):
                context.log_event(dg.AssetMaterialization("orders", metadata={"rows": 1}))
            change(home, FULL)
            try:
                with recording(instance, context.run.run_id):
                    context.log_event(dg.AssetMaterialization("orders", metadata={"rows": 2}))
            finally:
                change(home, "DROP TRIGGER {name}")

    ran = dg.materialize([orders], instance=instance, raise_on_error=False)
    assert not ran.success
    (failed,) = [event.step_failure_data for event in ran.get_step_failure_events()]
    assert failed.user_failure_data is not None
    assert failed.user_failure_data.description == (
        "`bronze/orders`: Dagster's database failed: database or disk is full. Every chunk is whole in the table or absent; of the last one "
        "Dagster may not have been told. The next launch of the table records what is in its log. Put the database right, and launch "
        "again with `only: MISSING`."
    )
    with recording(instance, ran.run_id):
        instance.report_runless_asset_event(dg.AssetMaterialization("orders", metadata={"rows": 3}))
    records = instance.fetch_materializations(dg.AssetKey("orders"), limit=9).records
    rows: list[Any] = [r.asset_materialization.metadata["rows"].value for r in records if r.asset_materialization]
    assert rows == [3, 1]


def test_a_database_that_fails_when_comparisons_are_looked_up(tmp_path: Path):
    """That question is our own, and its failure is told in the same words."""
    lake = new_lake(tmp_path)
    change(tmp_path / "history/events", "ALTER TABLE asset_check_executions RENAME TO away")
    with pytest.raises(HistoryUnavailableError, match="database failed: no such table"), history_translated(ORDERS):
        compared_since(lake.instance, Table(lake.spec), ["2024-01-01"], "2024-01-01T00:00:00+00:00")


def test_a_database_of_a_sources_own_is_not_dagsters():
    """A source that reads from a database may lose it; that says nothing of Dagster's, and passes as it is."""
    with pytest.raises(OperationalError), history_translated("bronze/orders"):
        raise OperationalError("SELECT 1", {}, Exception("server closed the connection unexpectedly"))


def test_a_database_that_is_asked_in_other_ways():
    """PostgreSQL's storage wraps what its driver said."""
    wrapped = RuntimeError("too many retries for DB connection")
    wrapped.__cause__ = OperationalError("SELECT 1", {}, Exception("connection refused\nIs the server running?"))
    with (
        pytest.raises(HistoryUnavailableError, match="database failed: connection refused. Every chunk") as caught,
        history_translated("bronze/orders"),
    ):
        exec("raise error", {"__name__": "dagster_postgres.utils", "error": wrapped})
    assert caught.value.retry_helps


@pytest.mark.prove
def test_what_a_database_did_not_take_is_not_noted_as_told(tmp_path: Path):
    """A stream may commit any number of batches before the next launch looks for it in the log: the copy still lacks it."""
    lake = new_lake(tmp_path)
    for day in ("2024-01-01", "2024-01-02"):
        lake.export(day, orders(day))
    full = FULL.replace("ON event_logs", "ON event_logs WHEN NEW.dagster_event_type = 'ASSET_MATERIALIZATION'")
    change(tmp_path / "history/events", full)
    failed = lake.launch("2024-01-01")
    assert not failed.succeeded
    assert "Dagster's database failed" in failed.failure
    assert lake.content()
    assert not Path(f"{lake.path()}_history").exists()
    change(tmp_path / "history/events", "DROP TRIGGER {name}")
    assert lake.launch("2024-01-02").succeeded
    assert lake.shown("2024-01-01", "2024-01-02") == {"2024-01-01": "materialized", "2024-01-02": "materialized"}
