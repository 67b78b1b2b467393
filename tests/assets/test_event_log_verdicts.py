"""Verdicts of checks in our event log, which stores them all at once, against Dagster's default one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationPlanned,
    AssetCheckEvaluationTargetMaterializationData,
)
from dagster._core.events import DagsterEvent, DagsterEventType

from backfill_assets.assets.event_log import BatchingSqliteEventLogStorage
from tests.assets.test_event_log import DAYS, FIRST, LAST, history, rows_of

VERDICTS = {
    "planned, and given twice": ([FIRST, LAST], [(FIRST, False, None), (FIRST, True, 7), (LAST, True, None)]),
    "some of each": ([LAST, None], [(FIRST, True, None), (LAST, True, 7), (None, False, None)]),
}


EVERY = (
    "SELECT id, asset_key, check_name, partition, run_id, execution_status, evaluation_event, "
    "evaluation_event_timestamp, evaluation_event_storage_id, materialization_event_storage_id "
    "FROM asset_check_executions ORDER BY id"
)


def entry(run_id: str, kind: DagsterEventType, said: Any) -> dg.EventLogEntry:
    event = DagsterEvent(kind.value, "job", event_specific_data=said)
    return dg.EventLogEntry(None, "debug", "", run_id, 1_700_000_000.0, dagster_event=event)


@pytest.mark.parametrize(("planned", "verdicts"), VERDICTS.values(), ids=VERDICTS)
def test_verdicts_take_the_place_of_what_was_planned(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    planned: Sequence[str | None],
    verdicts: Sequence[tuple[str | None, bool, int | None]],
):
    """As Dagster's default does it, one by one; also for verdicts that nobody planned, and of several runs."""
    asset, name, found = dg.AssetKey("table"), "reconciled", []
    left_to_dagster: list[str] = []
    one_by_one = BatchingSqliteEventLogStorage.store_asset_check_event

    def noting(log: BatchingSqliteEventLogStorage, event: dg.EventLogEntry, number: int | None) -> None:
        said = event.dagster_event and event.dagster_event.event_specific_data
        if isinstance(said, dg.AssetCheckEvaluation):
            left_to_dagster.append(str(said.partition))
        one_by_one(log, event, number)

    monkeypatch.setattr(BatchingSqliteEventLogStorage, "store_asset_check_event", noting)

    for ours in (False, True):
        home = tmp_path / ("ours" if ours else "default")
        with history(home, ours=ours) as instance:
            for run_id in ("a-run", "another"):
                for key in planned:
                    subset = None if key is None else DAYS.subset_with_partition_keys([key]).to_serializable_subset()
                    said = AssetCheckEvaluationPlanned(asset_key=asset, check_name=name, partitions_subset=subset)
                    instance.event_log_storage.store_event(
                        entry(run_id, DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED, said)
                    )
            instance.event_log_storage.store_event_batch(
                [
                    entry(
                        "a-run",
                        DagsterEventType.ASSET_CHECK_EVALUATION,
                        dg.AssetCheckEvaluation(
                            asset_key=asset,
                            check_name=name,
                            passed=passed,
                            partition=key,
                            target_materialization_data=None
                            if number is None
                            else AssetCheckEvaluationTargetMaterializationData(
                                storage_id=number, run_id="a-run", timestamp=1.0
                            ),
                        ),
                    )
                    for key, passed, number in verdicts
                ]
            )
        found.append(rows_of(home / "history/runs/index.db", EVERY))
    assert found[0] == found[1]
    assert sorted(left_to_dagster) == sorted(str(key) for key, _, _ in verdicts if key not in planned)
    assert len(found[1]) >= len(verdicts) - 1
