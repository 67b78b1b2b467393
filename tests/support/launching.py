"""A lakehouse of its own with its own Dagster history, launched in this process as Dagster's command line does it."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from sqlalchemy import event
from sqlalchemy.engine import Engine

from backfill_assets import TableSpec, build_lakehouse_table, lakehouse_definitions
from backfill_assets.assets.undo import UNDO_JOB, UNDO_OP
from backfill_assets.runs.resources import Lakehouse
from tests.support.shop import Row, content, files_by_partition, folder_of, orders_spec, write_parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDERS, TOTALS = "bronze/orders", "silver/daily_totals"
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"

WITHOUT_CAPTURE = {
    "compute_logs": {
        "module": "dagster._core.storage.noop_compute_log_manager",
        "class": "NoOpComputeLogManager",
    }
}
"""Of an instance: a run would start four processes that copy what it prints, for the UI; nobody reads that here."""

TOTALS_SPEC = TableSpec.model_validate(
    {
        "key": TOTALS,
        "columns": {"day": "date not null", "orders": "bigint not null", "amount": "decimal(28,2)"},
        "key_columns": ["day"],
        "event_time": "day",
        "grain": "daily",
        "start": "2024-01-01",
        "source": {"kind": "delta", "tables": [ORDERS]},
    }
)


def daily_totals(orders: DataFrame) -> DataFrame:
    """Return one row a day."""
    from pyspark.sql import functions as F

    by_day = orders.groupBy(F.to_date("ordered_at").alias("day"))
    return by_day.agg(F.count(F.lit(1)).alias("orders"), F.sum("amount").cast("decimal(28,2)").alias("amount"))


@event.listens_for(Engine, "connect")
def _without_waiting_for_the_disk(connection: Any, _: Any) -> None:
    """Let the histories of these tests be written without a sync: they need not survive a power failure."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


def key_of(table: str) -> dg.AssetKey:
    return dg.AssetKey(table.split("/"))


@dataclass(frozen=True)
class Ran:
    """One run, as Dagster's history has it."""

    run: dg.DagsterRun
    entries: tuple[dg.EventLogEntry, ...]

    @property
    def succeeded(self) -> bool:
        return self.run.status == dg.DagsterRunStatus.SUCCESS

    def materializations(self, table: str = ORDERS) -> list[dg.AssetMaterialization]:
        found = [e.asset_materialization for e in self.entries]
        return [m for m in found if m is not None and m.asset_key == key_of(table)]

    def recorded(self, table: str = ORDERS) -> list[str | None]:
        """The partition of each materialization event, in order."""
        return [m.partition for m in self.materializations(table)]

    def metadata(self, key: str, table: str = ORDERS) -> dict[str, Any]:
        """What the one event of a partition says."""
        (event,) = [m for m in self.materializations(table) if m.partition == key]
        return {name: value.value for name, value in event.metadata.items()}

    def evaluations(self, name: str = "reconciled", table: str = ORDERS) -> dict[str, dg.AssetCheckEvaluation]:
        """The one evaluation of a check for each partition."""
        found = [e.dagster_event.asset_check_evaluation_data for e in self._events("ASSET_CHECK_EVALUATION")]
        mine = [e for e in found if e.check_name == name and e.asset_key == key_of(table)]
        by_key = {str(e.partition): e for e in mine}
        assert len(by_key) == len(mine), "a partition was evaluated twice in one run"
        return by_key

    def verdicts(self, name: str = "reconciled", table: str = ORDERS) -> dict[str, bool]:
        return {key: evaluation.passed for key, evaluation in self.evaluations(name, table).items()}

    @property
    def steps(self) -> dict[str, str]:
        """How each step that began ended."""
        return {
            str(e.step_key): e.dagster_event_type.value.removeprefix("STEP_").lower()
            for e in self.entries
            if e.dagster_event_type and e.dagster_event_type.value in ("STEP_SUCCESS", "STEP_FAILURE", "STEP_SKIPPED")
        }

    @property
    def failure(self) -> str:
        """What the failed step says: the words of our Failure, or of the error."""
        (failed,) = [e.dagster_event.step_failure_data for e in self._events("STEP_FAILURE")]
        if failed.user_failure_data and failed.user_failure_data.description:
            return failed.user_failure_data.description
        return failed.error.to_string()

    @property
    def launch(self) -> str:
        """The launch in Markdown, as the asset's page shows it."""
        (observed, *_) = [e.asset_observation for e in self.entries if e.asset_observation]
        return str(observed.metadata["launch"].value)

    @property
    def log(self) -> str:
        """What was logged for people."""
        return "\n".join(e.user_message for e in self.entries if not e.is_dagster_event)

    def _events(self, kind: str) -> Iterator[Any]:
        return (e for e in self.entries if e.dagster_event_type and e.dagster_event_type.value == kind)


@dataclass
class Lake:
    """The tables `bronze/orders` and `silver/daily_totals`, their source and their history."""

    root: Path
    instance: dg.DagsterInstance
    changes: Mapping[str, Any] = field(default_factory=dict)
    transform: Any = daily_totals

    @property
    def spec(self) -> TableSpec:
        return orders_spec(**self.changes)

    @property
    def definitions(self) -> dg.Definitions:
        return lakehouse_definitions(
            build_lakehouse_table(self.spec),
            build_lakehouse_table(TOTALS_SPEC, self.transform, inputs={ORDERS: self.spec}),
            lakehouse=Lakehouse(root=str(self.root)),
        )

    # -- the source --------------------------------------------------------------------------------------------------

    def export(self, day: str, rows: list[Row]) -> None:
        """What the old system has of one day, and nothing else."""
        folder = folder_of(self.root / "landing/orders", day)
        for file in folder.glob("*"):
            file.unlink()
        write_parquet(folder, rows)

    # -- runs --------------------------------------------------------------------------------------------------------

    def launch(
        self,
        first: str,
        last: str | None = None,
        *,
        tables: tuple[str, ...] = (ORDERS,),
        again: Ran | None = None,
        tags: Mapping[str, str] | None = None,
        **config: Any,
    ) -> Ran:
        """Materialize a range of some tables, with their checks.

        Args:
            again: A run that this one repeats, as Dagster's re-execution does.
            tags: Of the run, besides its range.
            config: Of the launch of `bronze/orders`; `may_find_nothing` is that of all tables.
        """
        job = self.definitions.resolve_implicit_global_asset_job_def()
        part = job.get_subset(asset_selection=frozenset(map(key_of, tables)))
        by_table = {table: config if table == ORDERS else {} for table in tables}
        if may_skip := config.get("may_find_nothing"):
            by_table = {table: {**own, "may_find_nothing": may_skip} for table, own in by_table.items()}
        run_config = {"ops": {table.replace("/", "__"): {"config": own} for table, own in by_table.items() if own}}
        return self._execute(part, first, last or first, run_config, again, tags)

    def reconcile(self, first: str, last: str | None = None, table: str = ORDERS) -> Ran:
        """Run a table's checks alone."""
        job = self.definitions.resolve_job_def(f"reconcile_{table.replace('/', '_')}")
        return self._execute(job, first, last or first, {}, None)

    def watch(self) -> Ran:
        """Evaluate the checks that watch over whole tables."""
        return self._execute(self.definitions.resolve_job_def("reconciliation_job"), None, None, {}, None)

    def undo(self, launch: str, **config: Any) -> Ran:
        """Run the job that takes a launch back."""
        job = self.definitions.resolve_job_def(UNDO_JOB)
        return self._execute(job, None, None, {"ops": {UNDO_OP: {"config": {"launch": launch, **config}}}}, None)

    def _execute(
        self,
        job: dg.JobDefinition,
        first: str | None,
        last: str | None,
        run_config: Any,
        again: Ran | None,
        tags: Mapping[str, str] | None = None,
    ) -> Ran:
        tags = {**(tags or {}), **({RANGE_START: first, RANGE_END: last} if first and last else {})}
        run = self.instance.create_run_for_job(
            job_def=job,
            run_config=run_config,
            tags=tags,
            parent_run_id=again.run.run_id if again else None,
            root_run_id=(again.run.root_run_id or again.run.run_id) if again else None,
            asset_selection=job.asset_selection,
        )
        return self.execute(job, run)

    def execute(self, job: dg.JobDefinition, run: dg.DagsterRun) -> Ran:
        """Execute a run that was created."""
        execute_run(InMemoryJob(job), run, self.instance)
        return self.ran(run.run_id)

    def ran(self, run_id: str) -> Ran:
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        return Ran(run, tuple(self.instance.all_logs(run_id)))

    # -- what is there afterwards --------------------------------------------------------------------------------------

    def path(self, table: str = ORDERS) -> Path:
        return self.root / "tables" / table

    def content(self, table: str = ORDERS) -> Counter[tuple[Any, ...]]:
        return content(self.path(table), self.spec.columns if table == ORDERS else TOTALS_SPEC.columns)

    def files(self, table: str = ORDERS) -> dict[str, set[str]]:
        return files_by_partition(self.path(table))

    def shown(self, *keys: str, table: str = ORDERS) -> dict[str, str]:
        """How Dagster shows each partition: `materialized`, `failed`, `in_progress` or `missing`."""
        definition = self.definitions.resolve_asset_graph().get(key_of(table)).partitions_def
        assert definition is not None
        found = self.instance.get_status_by_partition(key_of(table), list(keys), definition) or {}
        return {key: status.value.lower() if (status := found.get(key)) else "missing" for key in keys}

    def shown_of_check(self, *keys: str, table: str = ORDERS) -> dict[str, str]:
        """How Dagster shows each partition of the check `reconciled`: `succeeded`, `failed`, ..., or `missing`, in grey."""
        check = dg.AssetCheckKey(key_of(table), "reconciled")
        definition = self.definitions.resolve_asset_graph().get(key_of(table)).partitions_def
        state = self.instance.event_log_storage.get_asset_check_state([(check, definition)])[check]
        by_key = {
            key: status.value.lower()
            for status, some in state.subsets.items()
            for key in some.subset_value.get_partition_keys()
        }
        return {key: by_key.get(key, "missing") for key in keys}


def new_lake(root: Path, *, transform: Any = daily_totals, **changes: Any) -> Lake:
    """Return an empty lakehouse with an empty history."""
    logging.getLogger("dagster").setLevel(logging.ERROR)
    (root / "history").mkdir(parents=True, exist_ok=True)
    return Lake(root, _history(root), changes, transform)


def copied(lake: Lake, root: Path) -> Lake:
    """Return a lakehouse that is as another one is now, with files and a history of its own."""
    shutil.copytree(lake.root, root)
    return replace(lake, root=root, instance=_history(root))


def _history(root: Path) -> dg.DagsterInstance:
    return dg.DagsterInstance.local_temp(
        str(root / "history"),
        overrides={
            "event_log_storage": {
                "module": "backfill_assets.assets.event_log",
                "class": "BatchingSqliteEventLogStorage",
                "config": {"base_dir": str(root / "history" / "events")},
            },
            **WITHOUT_CAPTURE,
            "run_coordinator": {"module": "dagster._core.run_coordinator", "class": "DefaultRunCoordinator"},
            "telemetry": {"enabled": False},
        },
    )
