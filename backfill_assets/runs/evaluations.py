"""Evaluations of checks: one for each partition that was compared or refused, as Dagster records them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData as Target,
)
from dagster._core.storage.event_log.sql_event_log import get_max_event_records_limit

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import Verdict
from backfill_assets.core.history.comparison import Comparison, RuleVerdict
from backfill_assets.core.spec.checks import Severity
from backfill_assets.runs.check_history import RECONCILED
from backfill_assets.runs.recording import measures_metadata

if TYPE_CHECKING:
    from backfill_assets.runs.table import Table

MAX_FAILURES_IN_LOG = 20
_EVENTS_AT_ONCE = 1_000
TOLERATED = "tolerated"
"""Metadata that says what differs and was let pass by `checks.tolerance`."""

OUTSIDE = "rows_outside_of_any_partition"
"""Metadata that says which values of the partition column are no partition, and how many rows they have."""


def newest_ids(instance: dg.DagsterInstance, asset_key: dg.AssetKey) -> Mapping[str, int]:
    """Return the storage id of each partition's newest materialization, by key."""
    return instance.event_log_storage.get_latest_storage_id_by_partition(
        asset_key, dg.DagsterEventType.ASSET_MATERIALIZATION
    )


def newest_materializations(
    instance: dg.DagsterInstance,
    asset_key: dg.AssetKey,
    partitions: Sequence[Partition],
    newest: Mapping[str, int] | None = None,
) -> dict[str, Target]:
    """Return which materialization of each partition is the newest, by key: what an evaluation from now on is about.

    Dagster shows a partition's evaluation as its state only if it names the newest materialization; so this is asked
    before a table is read, and what is published in between is not taken for what was checked.

    Args:
        newest: Their ids, where they were asked before: of what was refused since then.
    """
    return {
        record.partition_key: Target(storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp)
        for record in newest_records(instance, asset_key, [partition.key for partition in partitions], newest)
        if record.partition_key
    }


def newest_records(
    instance: dg.DagsterInstance, asset_key: dg.AssetKey, keys: Sequence[str], newest: Mapping[str, int] | None = None
) -> Iterator[dg.EventLogRecord]:
    """Yield the newest materialization of each of some partitions, of those that have one.

    Args:
        newest: Their ids, where they were asked before.
    """
    if not keys:
        return
    newest = newest_ids(instance, asset_key) if newest is None else newest
    ids = [newest[key] for key in keys if key in newest]
    at_once = min(_EVENTS_AT_ONCE, get_max_event_records_limit())
    for start in range(0, len(ids), at_once):
        some = dg.AssetRecordsFilter(asset_key=asset_key, storage_ids=ids[start : start + at_once])
        yield from instance.fetch_materializations(some, limit=at_once).records


def evaluations_of(
    table: "Table", compared: Iterable[Comparison], targets: Mapping[str, Target]
) -> Iterator[dg.AssetCheckEvaluation]:
    """Return the evaluations of every check for every partition that was compared.

    Args:
        targets: As `newest_materializations` gave them before the table was read.
    """
    for comparison in compared:
        yield _evaluation(
            table,
            RECONCILED,
            comparison.partition,
            passed=comparison.passed,
            why=_why(comparison.failures) or comparison.tolerated,
            metadata=_metadata(comparison),
            target=targets.get(comparison.partition.key),
        )
        for rule in table.spec.checks.separate:
            (verdict,) = [v for v in comparison.verdicts if v.rule == rule]
            why = _why([] if verdict.passed else [verdict])
            target = targets.get(comparison.partition.key)
            yield _evaluation(table, rule.value, comparison.partition, passed=verdict.passed, why=why, target=target)


def outside_evaluation(table: "Table", outside: str) -> dg.AssetCheckEvaluation:
    """Return a failed evaluation of no partition: rows lie in none, so that no partition's evaluation can say so.

    Args:
        outside: In words.
    """
    return _evaluation(
        table, RECONCILED, None, passed=False, why=outside, metadata={OUTSIDE: dg.MetadataValue.text(outside)}
    )


def whole_table_evaluations(table: "Table", compared: Sequence[Comparison]) -> list[dg.AssetCheckEvaluation]:
    """Return one more evaluation of every check, of no partition: Dagster plans it in a run that names none."""
    by_check = {RECONCILED: [c for c in compared if not c.passed]}
    by_check |= {
        r.value: [c for c in compared if any(v.rule == r for v in c.failures)] for r in table.spec.checks.separate
    }
    return [_whole_table_evaluation(table, name, len(compared), failed) for name, failed in by_check.items()]


def _whole_table_evaluation(
    table: "Table", name: str, count: int, failed: Sequence[Comparison]
) -> dg.AssetCheckEvaluation:
    why = f"All {count:,} partitions are as they should be."
    if failed:
        named = ", ".join(c.partition.key for c in failed[:MAX_FAILURES_IN_LOG]) + (
            ", ..." if len(failed) > MAX_FAILURES_IN_LOG else ""
        )
        why = f"{len(failed):,} of {count:,} partitions are not as they should be: {named}."
    metadata = {"partitions": dg.MetadataValue.int(count)}
    return _evaluation(table, name, None, passed=not failed, why=why, metadata=metadata)


def refusals_of(
    table: "Table", refused: Iterable[Verdict], targets: Mapping[str, Target]
) -> Iterator[dg.AssetCheckEvaluation]:
    """Return a failed evaluation of every check for every partition that was refused."""
    for verdict in refused:
        target = targets.get(verdict.partition.key)
        why = "Refused, the table keeps what it had. " + " ".join(str(finding) for finding in verdict.findings)
        for name in (RECONCILED, *(rule.value for rule in table.spec.checks.separate)):
            metadata = {str(finding.rule): dg.MetadataValue.text(str(finding)) for finding in verdict.findings}
            yield _evaluation(table, name, verdict.partition, passed=False, why=why, metadata=metadata, target=target)


def left_out_evaluations(table: "Table", left_out: Sequence[Partition]) -> Iterator[dg.AssetCheckEvaluation]:
    """Say of partitions without anything to compare why: a warning, since nothing is wrong yet."""
    for partition in left_out:
        yield dg.AssetCheckEvaluation(
            asset_key=table.asset_key,
            check_name=RECONCILED,
            passed=False,
            severity=dg.AssetCheckSeverity.WARN,
            partition=partition.key,
            description="Left out: it is live, put back, or the source is not complete (not yet or no more).",
            metadata={},
            blocking=False,
        )


def _evaluation(
    table: "Table",
    name: str,
    partition: Partition | None,
    *,
    passed: bool,
    why: str,
    metadata: Mapping[str, Any] | None = None,
    target: Target | None = None,
) -> dg.AssetCheckEvaluation:
    severity = (
        dg.AssetCheckSeverity.ERROR if table.spec.checks.severity is Severity.ERROR else dg.AssetCheckSeverity.WARN
    )
    return dg.AssetCheckEvaluation(
        asset_key=table.asset_key,
        check_name=name,
        passed=passed,
        metadata=metadata or {},
        severity=severity,
        description=why or None,
        partition=partition.key if partition else None,
        target_materialization_data=target,
        blocking=severity is dg.AssetCheckSeverity.ERROR,
    )


def _metadata(comparison: Comparison) -> dict[str, Any]:
    metadata: dict[str, Any] = {str(v.rule): dg.MetadataValue.text(v.what or "holds") for v in comparison.verdicts}
    if comparison.source_rows is not None:
        metadata["source_rows"] = dg.MetadataValue.int(comparison.source_rows)
    metadata["table_rows"] = dg.MetadataValue.int(comparison.table_rows)
    if comparison.late_rows:
        metadata["late_rows"] = dg.MetadataValue.int(comparison.late_rows)
    if comparison.superseded_rows:
        metadata["superseded_rows"] = dg.MetadataValue.int(comparison.superseded_rows)
    metadata["source_checksum"] = dg.MetadataValue.text(comparison.source_checksum)
    metadata["table_checksum"] = dg.MetadataValue.text(comparison.table_checksum)
    if comparison.as_of:
        metadata["as_of"] = dg.MetadataValue.text(comparison.as_of)
    if comparison.tolerated:
        metadata[TOLERATED] = dg.MetadataValue.text(comparison.tolerated)
    metadata |= measures_metadata(comparison.receipt) if comparison.receipt else {}
    if comparison.failures:
        metadata["differences"] = dg.MetadataValue.json(
            [
                {"rule": str(v.rule), "rows": v.rows, "what": v.what, "examples": list(v.examples)}
                for v in comparison.failures
            ]
        )
    return metadata


def _why(failures: Sequence[RuleVerdict]) -> str:
    return " ".join(str(verdict) for verdict in failures)
