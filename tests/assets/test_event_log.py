"""Our event log against Dagster's default one: the same rows, whatever way they were written."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from backfill_assets.assets.event_log import BatchingSqliteEventLogStorage
from backfill_assets.errors import ConfigurationError
from backfill_assets.runs.recording import recording

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
FIRST, LAST, BAD = "2024-01-01", "2024-01-06", "2024-01-04"
RANGE = {"dagster/asset_partition_range_start": FIRST, "dagster/asset_partition_range_end": LAST}


@dg.asset(key="table", partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
def table(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    """Two chunks of three partitions, recorded as a launch does it; other events come between."""
    for chunk in (context.partition_keys[:3], context.partition_keys[3:]):
        with recording(context.instance, context.run.run_id):
            for key in chunk:
                tags = {"dagster/data_version": f"v{key}", "dagster/data_version_is_user_provided": "true"}
                context.log_event(dg.AssetMaterialization("table", partition=key, metadata={"rows": 3}, tags=tags))
        context.log.info(f"chunk up to {chunk[-1]}")
    context.log_event(dg.AssetObservation("table", metadata={"launch": "done"}))
    return dg.MaterializeResult(metadata={"__source_asset_observation__": True})


@dg.asset(key="below", deps=[table], partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
def below() -> dg.MaterializeResult:
    """A table that Dagster itself records."""
    return dg.MaterializeResult(data_version=dg.DataVersion("1"))  # else it is made of the run's id


@dg.multi_asset_check(specs=[dg.AssetCheckSpec("reconciled", asset="table", partitions_def=DAYS)])
def reconciled(context: dg.AssetCheckExecutionContext) -> Any:
    """One verdict for each partition."""
    with recording(context.instance, context.run.run_id):
        for key in context.partition_keys:
            yield dg.AssetCheckEvaluation(
                asset_key=dg.AssetKey("table"),
                check_name="reconciled",
                passed=key != BAD,
                partition=key,
                metadata={"rows": 3},
            )
    for name in context.op_execution_context.selected_output_names:
        yield dg.Output(None, output_name=name)


DEFINITIONS = dg.Definitions(assets=[table, below], asset_checks=[reconciled], executor=dg.in_process_executor)


def history(home: Path, *, ours: bool) -> dg.DagsterInstance:
    """An instance on a folder, with our event log or with Dagster's own."""
    overrides: dict[str, Any] = {"telemetry": {"enabled": False}}
    if ours:
        config = {"base_dir": str(home / "history" / "runs")}
        overrides["event_log_storage"] = {
            "module": "backfill_assets.assets.event_log", "class": "BatchingSqliteEventLogStorage", "config": config,
        }  # fmt: skip
    home.mkdir(exist_ok=True)
    return dg.DagsterInstance.local_temp(str(home), overrides=overrides)


def launch(instance: dg.DagsterInstance) -> str:
    result = DEFINITIONS.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance, tags=RANGE)
    assert result.success
    return result.run_id


# -- the same rows -----------------------------------------------------------------------------------------------------


def rows_of(database: Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(database)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def without_what_differs(text: str | None, run_id: str) -> Any:
    """An event's JSON without run, times, durations, process and storage ids: these differ from run to run."""
    if text is None:
        return None
    text = re.sub(r"\(pid: \d+\)|\d+(\.\d+)?(ms|s)\b", "#", text.replace(run_id, "RUN"))

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            differs = (
                "timestamp",
                "pid",
                "duration_ms",
                "storage_id",
                "batch_id",
                "file_key",
                "last_materialization_storage_id",
                "log_key",
            )
            return {k: "#" if k in differs or k.endswith("_timestamp") else walk(v) for k, v in value.items()}
        return [walk(v) for v in value] if isinstance(value, list) else "#" if isinstance(value, float) else value

    return walk(json.loads(text))


EVENTS = "SELECT event, dagster_event_type, step_key, asset_key, partition FROM event_logs ORDER BY id"


def everything(home: Path, run_id: str) -> Mapping[str, list[Any]]:
    """Every row that a run left in the two databases of its history."""
    index, shard = home / "history/runs/index.db", home / f"history/runs/{run_id}.db"
    return {
        "index": [(without_what_differs(row[0], run_id), *row[1:]) for row in rows_of(index, EVENTS)],
        "run": [(without_what_differs(row[0], run_id), *row[1:]) for row in rows_of(shard, EVENTS)],
        "assets": [
            (key, without_what_differs(newest, run_id), run == run_id)
            for key, newest, run in rows_of(
                index, "SELECT asset_key, last_materialization, last_run_id FROM asset_keys ORDER BY 1"
            )
        ],
        "tags": rows_of(
            index,
            "SELECT e.dagster_event_type, e.partition, t.asset_key, t.key, t.value FROM asset_event_tags t "
            "JOIN event_logs e ON e.id = t.event_id ORDER BY 1, 2, 3, 4",
        ),
        "checks": [
            (*row[:-1], without_what_differs(row[-1], run_id))
            for row in rows_of(
                index,
                "SELECT c.asset_key, c.check_name, c.partition, c.execution_status, e.dagster_event_type, e.partition, m.partition, "
                "c.evaluation_event FROM asset_check_executions c LEFT JOIN event_logs e ON e.id = c.evaluation_event_storage_id "
                "LEFT JOIN event_logs m ON m.id = c.materialization_event_storage_id ORDER BY 1, 2, 3",
            )
        ],
    }


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Mapping[str, list[Any]], Mapping[str, list[Any]]]:
    """What the same launch leaves in Dagster's default event log, and in ours."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for ours in (False, True):
            patch.delenv("DAGSTER_EVENT_BATCH_SIZE", raising=False)
            home = tmp_path_factory.mktemp("ours" if ours else "default")
            with history(home, ours=ours) as instance:
                run_id = launch(instance)
            found.append(everything(home, run_id))
    default, ours_ = found
    return default, ours_


@pytest.mark.parametrize("what", ["assets", "tags", "checks"])
def test_the_same_rows_as_dagsters_default(both: tuple[Mapping[str, list[Any]], Mapping[str, list[Any]]], what: str):
    """Row by row our event log holds what the default holds: newest events, tags and check verdicts."""
    default, ours = both
    assert len(default[what]) > 1
    assert ours[what] == default[what]


@pytest.mark.parametrize("what", ["index", "run"])
def test_the_same_events_as_dagsters_default(both: tuple[Mapping[str, list[Any]], Mapping[str, list[Any]]], what: str):
    """Event by event, in the same order within each step and kind, our event log holds what the default holds."""
    default, ours = both

    def ordered(rows: list[Any]) -> list[str]:
        return sorted(json.dumps(row, sort_keys=True) for row in rows)

    assert len(default[what]) > 12
    assert ordered(ours[what]) == ordered(default[what])
    assert [row[1:] for row in ours[what] if row[1] == "ASSET_MATERIALIZATION"] == [
        row[1:] for row in default[what] if row[1] == "ASSET_MATERIALIZATION"
    ]


def test_an_evaluation_for_each_key_leaves_no_planned_row(
    both: tuple[Mapping[str, list[Any]], Mapping[str, list[Any]]],
):
    """Every planned evaluation of a ranged run got its verdict; none stays planned, and none lacks a partition."""
    _, ours = both
    assert [(row[2], row[3]) for row in ours["checks"]] == [
        (key, "FAILED" if key == BAD else "SUCCEEDED")
        for key in DAYS.get_partition_keys_in_range(dg.PartitionKeyRange(FIRST, LAST))
    ]


# -- what else it must hold --------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
sys.path.insert(0, {root!r})
from pathlib import Path
import dagster as dg
from tests.assets.test_event_log import DAYS, RANGE, history
from backfill_assets.runs.recording import recording

@dg.asset(key="table", partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
def table(context) -> dg.MaterializeResult:
    with recording(context.instance, context.run.run_id):
        for key in context.partition_keys[:3]:
            context.log_event(dg.AssetMaterialization("table", partition=key))
    with recording(context.instance, context.run.run_id):
        for key in context.partition_keys[3:]:
            context.log_event(dg.AssetMaterialization("table", partition=key))
        os.kill(os.getpid(), signal.SIGKILL)

dg.materialize([table], instance=history(Path({home!r}), ours=True), tags=RANGE)
"""


def test_a_killed_process_keeps_the_chunks_it_recorded(tmp_path: Path):
    """What was recorded before a process is killed is there; of the batch it was killed in there is nothing, and the log can be used."""
    code = KILLED.format(root=str(Path(__file__).parents[2]), home=str(tmp_path / "home"))
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with history(tmp_path / "home", ours=True) as instance:
        assert instance.get_materialized_partitions(dg.AssetKey("table")) == {"2024-01-01", "2024-01-02", "2024-01-03"}
        launch(instance)
        assert len(instance.get_materialized_partitions(dg.AssetKey("table"))) == 6


def test_it_continues_where_dagsters_own_left_off(tmp_path: Path):
    """Our event log and the default one can take turns over the same files."""
    runs = []
    for ours in (False, True, False):
        with history(tmp_path / "home", ours=ours) as instance:
            runs.append(launch(instance))
            for run_id in runs:
                events = [e for e in instance.all_logs(run_id) if e.is_dagster_event]
                assert sum(e.dagster_event_type == dg.DagsterEventType.ASSET_MATERIALIZATION for e in events) == 12
            assert instance.get_run_by_id(runs[-1]).status == dg.DagsterRunStatus.SUCCESS


def test_a_forked_process_does_not_use_its_parents_connections(tmp_path: Path):
    """After a fork, parent and child both write, each over connections of its own."""
    with history(tmp_path / "home", ours=True) as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization("table", partition="2024-01-01"))
        child = os.fork()
        if child == 0:
            try:
                instance.report_runless_asset_event(dg.AssetMaterialization("table", partition="2024-01-02"))
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        instance.report_runless_asset_event(dg.AssetMaterialization("table", partition="2024-01-03"))
        assert instance.get_materialized_partitions(dg.AssetKey("table")) == {"2024-01-01", "2024-01-02", "2024-01-03"}


def test_without_a_home_it_says_so(monkeypatch: pytest.MonkeyPatch):
    """Without DAGSTER_HOME there is one clear error, and no history in some other place."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with pytest.raises(ConfigurationError, match="DAGSTER_HOME is not set"):
        BatchingSqliteEventLogStorage()


def test_it_is_what_the_projects_settings_name():
    """`dagster.yaml` loads this event log, with the files where the default has them."""
    import yaml

    settings = yaml.safe_load((Path(__file__).parents[2] / "dagster.yaml").read_text())["event_log_storage"]
    assert (settings["module"], settings["class"]) == (
        BatchingSqliteEventLogStorage.__module__,
        BatchingSqliteEventLogStorage.__name__,
    )
