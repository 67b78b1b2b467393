"""What Dagster is told: one materialization for each published partition, and our errors in its words."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from sqlalchemy.exc import DBAPIError

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.outcomes import Published
from backfill_assets.core.history.plan import LeftOut
from backfill_assets.core.state.receipts import NO_VALUE, Measured, PartitionReceipt, PublishedPartition
from backfill_assets.core.state.tallies import instant_of
from backfill_assets.core.words import shortened
from backfill_assets.errors import BackfillAssetsError, HistoryUnavailableError
from backfill_assets.runs.partitions import BEFORE_START, DATA_VERSION, LIVE
from backfill_assets.runs.run_tags import BACKFILL

if TYPE_CHECKING:
    from backfill_assets.lake.table import LakeTable
    from backfill_assets.runs.table import Table

RECEIPT = "receipt"
"""Metadata of an event: the id of the receipt that it tells of."""

TELLS_NOTHING = frozenset({"identical", "left_out", BEFORE_START, LIVE})
"""Metadata of an event that is no news for what is made of a table: nothing was published."""

_HISTORY = (
    *("dagster._core.instance", "dagster._core.storage", "dagster_postgres"),
    *("backfill_assets.assets.event_log", "backfill_assets.runs.check_history"),
)
"""Modules through which every call to Dagster's database goes."""

_MOST_SAID = 300
"""So many characters are shown of what Dagster says."""


def materialization(
    table: Table,
    key: str,
    published: PublishedPartition,
    metadata: Mapping[str, dg.MetadataValue[Any]],
    run_tags: Mapping[str, str],
) -> dg.AssetMaterialization:
    """Return the event of one published partition; its data version is the checksum of its rows."""
    return _event(table, key, published.partition.checksum, metadata, run_tags)


def _event(
    table: Table,
    key: str,
    data_version: str,
    metadata: Mapping[str, dg.MetadataValue[Any]],
    run_tags: Mapping[str, str],
) -> dg.AssetMaterialization:
    tags = {DATA_VERSION: data_version, "dagster/data_version_is_user_provided": "true"}
    if BACKFILL in run_tags:
        tags[BACKFILL] = run_tags[BACKFILL]
    return dg.AssetMaterialization(table.asset_key, partition=key, metadata=metadata, tags=tags)


def partition_metadata(
    published: PublishedPartition, *, size_bytes: int | None = None, seconds: float | None = None
) -> dict[str, dg.MetadataValue[Any]]:
    """Return what a person wants to see of one published partition; numbers are plotted."""
    part = published.partition
    metadata: dict[str, dg.MetadataValue[Any]] = {
        "dagster/partition_row_count": dg.MetadataValue.int(part.rows),
        "table_version": dg.MetadataValue.int(published.version),
        "checksum": dg.MetadataValue.text(part.checksum),
        RECEIPT: dg.MetadataValue.text(published.receipt.receipt_id),
    }
    if size_bytes is not None:
        metadata["size_bytes"] = dg.MetadataValue.int(size_bytes)
    if seconds is not None:
        metadata["seconds"] = dg.MetadataValue.float(round(seconds, 3))
    if part.superseded_rows:
        metadata["superseded_rows"] = dg.MetadataValue.int(part.superseded_rows)
    if part.late_rows:
        metadata["late_rows"] = dg.MetadataValue.int(part.late_rows)
    first, last = instant_of(part.first_event_micros), instant_of(part.last_event_micros)
    if first and last:
        metadata["event_times"] = dg.MetadataValue.text(f"{first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC")
    metadata |= measures_metadata(part)
    if published.receipt.run.reason:
        metadata["reason"] = dg.MetadataValue.text(published.receipt.run.reason)
    return metadata


def measures_metadata(part: PartitionReceipt) -> dict[str, dg.MetadataValue[Any]]:
    """Return what was measured of a partition: a number, which is plotted, or a line for each group."""
    by_name: dict[str, list[Measured]] = {}
    for measure in part.measures:
        by_name.setdefault(measure.name, []).append(measure)
    return {name: _measure_metadata(groups) for name, groups in by_name.items()}


def _measure_metadata(groups: Sequence[Measured]) -> dg.MetadataValue[Any]:
    first = groups[0]
    if " by " not in first.name and first.now != NO_VALUE:
        return dg.MetadataValue.float(float(first.now))
    return dg.MetadataValue.text("\n".join(map(str, groups)))


def record_published(context: dg.AssetExecutionContext, table: Table, chunk: Published) -> None:
    """Log one materialization for each partition of a published chunk."""
    seconds = sum(chunk.seconds.values()) / len(chunk.partitions)
    with recording(context.instance, context.run.run_id):
        for partition in chunk.partitions:
            receipt = PublishedPartition(chunk.commit.version, chunk.receipt, chunk.receipt.partitions[partition.key])
            metadata = partition_metadata(
                receipt, size_bytes=chunk.commit.size_bytes.get(partition.key, 0), seconds=seconds
            )
            context.log_event(materialization(table, partition.key, receipt, metadata, context.run.tags))


def record_left_out(context: dg.AssetExecutionContext, table: Table, delta: LakeTable, outcome: LeftOut) -> None:
    """Say which partitions were left out; those that are published already are recorded with the receipt they have."""
    first, last = outcome.partitions[0].key, outcome.partitions[-1].key
    context.log.info(f"Left out {len(outcome.partitions)} partitions from {first} to {last}: {outcome.why}.")
    if not outcome.published:
        return
    record_found(context, table, delta.published(), outcome.partitions, left_out=outcome.why)


def record_before_start(context: dg.AssetExecutionContext, table: Table, partitions: Sequence[Partition]) -> None:
    """Record that a table has no partition for periods before its start, for which nothing was written.

    Without an event Dagster would count these periods as failed.
    """
    if not partitions:
        return
    first, last, start = partitions[0].key, partitions[-1].key, table.spec.start
    context.log.info(f"`{table.spec.key}` starts at {start}: it has no partition from {first} to {last}.")
    why = {BEFORE_START: dg.MetadataValue.text(f"The table starts at {start}. Nothing was written.")}
    with recording(context.instance, context.run.run_id):
        for partition in partitions:
            context.log_event(_event(table, partition.key, BEFORE_START, why, context.run.tags))


def record_found(
    context: dg.AssetExecutionContext,
    table: Table,
    published: Mapping[str, PublishedPartition],
    partitions: Sequence[Partition],
    **why: str,
) -> None:
    """Record partitions that were not written because they are published already, with the receipt that they have."""
    reason = {name: dg.MetadataValue.text(text) for name, text in why.items()}
    with recording(context.instance, context.run.run_id):
        for partition in partitions:
            receipt = published[partition.key]
            metadata = partition_metadata(receipt) | reason
            context.log_event(materialization(table, partition.key, receipt, metadata, context.run.tags))


def failure_in_words(event: dg.DagsterEvent) -> str:
    """Return why a step failed, in the words of our own error if it was one; empty if the event is no such failure."""
    if not event.is_step_failure:
        return ""
    data = event.step_failure_data
    if data.user_failure_data and data.user_failure_data.description:
        return data.user_failure_data.description
    return data.error.message.strip() if data.error else ""


@contextlib.contextmanager
def failures_for_dagster(table: str) -> Iterator[None]:
    """Turn our errors, Spark's, the database's, and those of a user's code into Dagster's, in one sentence each.

    This is the one boundary. Only an exception of Python's keeps its stack trace, as the cause: its author needs it.

    Args:
        table: Key of the table that the run is about, for messages about Spark.

    Raises:
        dagster.Failure: With the message of our error and its facts; retries are allowed where one can help.
    """
    from backfill_assets.spark.failures import translated

    try:
        with translated(table), history_translated(table):
            yield
    except BackfillAssetsError as error:
        facts = {name: dg.MetadataValue.text(str(value)) for name, value in error.facts.items()}
        raise dg.Failure(str(error), metadata=facts, allow_retries=error.retry_helps) from None
    except (dg.Failure, dg.RetryRequested, dg.DagsterError):
        raise
    except Exception as error:
        raise dg.Failure(_unforeseen(table, error)) from error


def _unforeseen(table: str, error: Exception) -> str:
    """Return what is said of an exception that is nobody's here: of a transform, or of a kind of source."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    said = shortened(" ".join(str(error).split()), _MOST_SAID).rstrip(".")
    return (
        f"`{table}`: {type(error).__name__}: {said} ({Path(frame.filename).name}, line {frame.lineno}). Each chunk is "
        "whole in the table or absent. Correct the code that is named, and launch again with `only: MISSING`."
    )


@contextlib.contextmanager
def history_translated(table: str) -> Iterator[None]:
    """Raise our error where Dagster's own database does not answer, or is full; other failures pass as they are.

    Args:
        table: Key of the table, for messages.

    Raises:
        HistoryUnavailableError: A call of Dagster's failed in its database.
    """
    try:
        yield
    except Exception as error:
        reason = _reason_of_database(error)
        if reason is None or not _was_asked_of_history(error):
            raise
        raise HistoryUnavailableError(
            f"`{table}`: Dagster's database failed: {reason.rstrip('.')}.",
            state="Every chunk is whole in the table or absent; of the last one Dagster may not have been told. The "
            "next launch of the table records what is in its log.",
            remedy="Put the database right, and launch again with `only: MISSING`.",
        ) from error


def error_of_history(error: BaseException) -> HistoryUnavailableError | None:
    """Return our error for one that a call of Dagster's instance ended with outside of a run; None for any other."""
    if not _was_asked_of_history(error):
        return None
    reason = _reason_of_database(error) or " ".join(str(error).split())
    return HistoryUnavailableError(
        f"Dagster's history cannot be used: {shortened(reason, _MOST_SAID).rstrip('.')}.",
        state="Every chunk of a launch is whole in its table or absent.",
        remedy="Put right what `dagster.yaml` in DAGSTER_HOME says, or the database that it names, and try again.",
    )


def _reason_of_database(error: BaseException) -> str | None:
    """Return what a database said, in one line; None if no database is behind an error."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, DBAPIError):
            return str(at.orig).strip().partition("\n")[0]
        at = at.__cause__
    return None


def _was_asked_of_history(error: BaseException) -> bool:
    """Say whether it was a call of Dagster's instance that failed: a source may have a database of its own."""
    at = error.__traceback__
    while at is not None:
        if str(at.tb_frame.f_globals.get("__name__")).startswith(_HISTORY):
            return True
        at = at.tb_next
    return False


def recording(instance: dg.DagsterInstance, run_id: str) -> contextlib.AbstractContextManager[None]:
    """Write a run's events together, where the event log can do that; with any other storage one by one.

    No slow work belongs inside: the events reach the disk when the block ends.
    """
    batch = getattr(instance.event_log_storage, "batch", None)
    return batch(run_id) if batch else contextlib.nullcontext()
