"""Partitions that a live stream has written, as Dagster's pages show them: materialized, with `live` in their metadata.

Dagster has no other state for a partition with rows, and never takes this one back by itself. So the events of a table
are stored under a run id of their own, and a seal deletes those of the partitions that it made history: they are
missing again until a launch publishes them. Nothing of ours takes such an event for a published partition.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import dagster as dg
from dagster._core.events import DagsterEvent, DagsterEventType, StepMaterializationData

from backfill_assets.core.calendar.windows import Window
from backfill_assets.core.state.fence import Fence
from backfill_assets.core.words import range_in_words
from backfill_assets.runs.evaluations import newest_records
from backfill_assets.runs.partitions import DATA_VERSION, LIVE, data_versions
from backfill_assets.runs.recording import recording

if TYPE_CHECKING:
    from backfill_assets.core.calendar.partitions import Partition
    from backfill_assets.core.spec.table import TableSpec
    from backfill_assets.live.live_table import LiveTable

EVERY_SECONDS = 3600.0
"""So often the rows of a partition are counted again; a partition that has ended since the last look comes at once."""

ROWS = "dagster/partition_row_count"
_WHAT = (
    "Written by the live stream, which owns this partition: it is not published, and no table is made of it, until the "
    "fence moves past it and it is launched."
)


class LivePartitions:
    """Records the live partitions that have ended and have rows: in one write, once each, and when their rows change.

    A partition that has not ended is none of Dagster's partitions yet.
    """

    def __init__(self, table: LiveTable) -> None:
        self._table = table
        self._looked_at: float | None = None
        self._next_end_utc = datetime.min.replace(tzinfo=UTC)

    def look_if_due(self, instance: dg.DagsterInstance, now_utc: datetime) -> None:
        """Look, if a partition has ended since the last look, or that was long ago."""
        is_recent = self._looked_at is not None and time.monotonic() - self._looked_at < EVERY_SECONDS
        if not is_recent or now_utc >= self._next_end_utc:
            self.look(instance, now_utc)

    def look(self, instance: dg.DagsterInstance, now_utc: datetime) -> None:
        """Record what is new, and withdraw what was sealed."""
        spec, seen, fence = self._table.table.spec, None, self._table.fence()
        while fence is not None and fence != seen:  # again if it was moved meanwhile
            withdraw_sealed(instance, spec, fence)
            _record(instance, spec, self._new(instance, fence, now_utc))
            seen, fence = fence, self._table.fence()
        self._looked_at = time.monotonic()
        self._next_end_utc = spec.grid.partition_of(now_utc).window.end_utc

    def _new(self, instance: dg.DagsterInstance, fence: Fence, now_utc: datetime) -> list[dg.AssetMaterialization]:
        """Return an event for each partition of which Dagster was not told, or was told of other rows long ago."""
        spec, until_utc = self._table.table.spec, max(now_utc, fence.at_utc)
        over = [p for p in spec.grid.covering(Window(fence.at_utc, until_utc)) if p.window.end_utc <= now_utc]
        rows, told = self._table.table.rows_now(over), _told(instance, spec, over)
        since = now_utc.timestamp() - EVERY_SECONDS
        return [
            _event(spec, key, count)
            for key, count in rows.items()
            if count and (key not in told or (told[key].rows != count and told[key].at < since))
        ]


class _Told(NamedTuple):
    """How many rows Dagster was told of, and when, in seconds since 1970."""

    rows: object
    at: float


def withdraw_sealed(instance: dg.DagsterInstance, spec: TableSpec, fence: Fence) -> list[str]:
    """Delete the events of partitions that are live no more; return the keys of those that nobody has launched since.

    An observation is recorded first. It says what was sealed, and has the greatest storage id: SQLite gives the id of a
    deleted newest event to the next one, which a sensor's cursor would then pass over.
    """
    asset_key = dg.AssetKey.from_user_string(spec.key)
    live = _live_keys(instance, asset_key)
    still = {p.key for p in spec.grid.from_start(filter(spec.grid.is_key, live)) if p.window.start_utc >= fence.at_utc}
    sealed = sorted(live - still)
    if not sealed:
        return []
    kept = [r.asset_materialization for r in newest_records(instance, asset_key, sorted(still))]
    said = f"Sealed: {range_in_words(sealed[0], sealed[-1])}. History owns what the stream wrote there; launch it."
    fact = {"fence": dg.MetadataValue.timestamp(fence.at_utc), "sealed_partitions": dg.MetadataValue.int(len(sealed))}
    instance.report_runless_asset_event(dg.AssetObservation(asset_key, description=said, metadata=fact))
    instance.delete_run(_run_id(spec))
    _record(instance, spec, filter(None, kept))
    instance.wipe_asset_cached_status([asset_key])
    return sealed


def _event(spec: TableSpec, key: str, rows: int) -> dg.AssetMaterialization:
    metadata = {
        LIVE: dg.MetadataValue.bool(True),
        ROWS: dg.MetadataValue.int(rows),
        "description": dg.MetadataValue.text(_WHAT),  # the page of a partition shows metadata alone
    }
    tags = {DATA_VERSION: LIVE, "dagster/data_version_is_user_provided": "true"}
    return dg.AssetMaterialization(dg.AssetKey.from_user_string(spec.key), partition=key, metadata=metadata, tags=tags)


def _record(instance: dg.DagsterInstance, spec: TableSpec, events: Iterable[dg.AssetMaterialization]) -> None:
    """Store events under the run id of a table's live partitions: Dagster deletes events by run alone."""
    run_id = _run_id(spec)
    with recording(instance, run_id):
        for event in events:
            stored = DagsterEvent(
                event_type_value=DagsterEventType.ASSET_MATERIALIZATION.value,
                event_specific_data=StepMaterializationData(event),
                job_name=f"live {spec.key}",
            )
            instance.report_dagster_event(stored, run_id=run_id)


def _told(instance: dg.DagsterInstance, spec: TableSpec, partitions: Iterable[Partition]) -> dict[str, _Told]:
    """Return what Dagster was told of each live partition, by key."""
    asset_key = dg.AssetKey.from_user_string(spec.key)
    keys = sorted(_live_keys(instance, asset_key) & {partition.key for partition in partitions})
    return {
        event.partition: _Told(event.metadata[ROWS].value, record.timestamp)
        for record in newest_records(instance, asset_key, keys)
        if (event := record.asset_materialization) and event.partition
    }


def _live_keys(instance: dg.DagsterInstance, asset_key: dg.AssetKey) -> set[str]:
    """Return the keys of the partitions whose newest event is the stream's."""
    return {key for key, version in data_versions(instance, asset_key).items() if version == LIVE}


def _run_id(spec: TableSpec) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"backfill_assets/live/{spec.key}"))
