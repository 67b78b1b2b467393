"""What can be wrong around the fence, found by looking: silence, a gap, an overlap, late rows that wait, what was quarantined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.state.fence import Fence, is_history
from backfill_assets.core.live.batches import NEIGHBOURS, LiveReceipt, the_fence_of
from backfill_assets.core.spec.files import LiveStream
from backfill_assets.core.calendar.partitions import Partition, replace_where
from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.core.state.tallies import EMPTY, Tally
from backfill_assets.lake.tally import column, rows_by_partition, tally_rows
from backfill_assets.live.landing import events_of, landed_lines
from backfill_assets.live.live_table import LiveTable


@dataclass(frozen=True, slots=True)
class LiveCheck:
    """Whether one thing holds around the fence.

    Args:
        name: What holds when it passed.
        what: One sentence, with names and values.
        partitions: By partition key, a sentence each; only those that are not as they should be.
        numbers: What was counted.
        is_warning: Whether nothing is wrong yet when it does not hold.
    """

    name: str
    passed: bool
    what: str
    partitions: Mapping[str, str] = field(default_factory=dict[str, str])
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class LiveStatus:
    """A table's live side, without reading its rows.

    Args:
        newest: The newest batch's receipt and when it was committed; None before the first.
        late: Late rows by partition key.
        stale: Of these, the ones that no publish has folded yet.
        quarantined: Rows by reason.
    """

    fence: Fence
    newest: tuple[datetime, LiveReceipt] | None
    late: dict[str, int]
    stale: dict[str, int]
    quarantined: dict[str, int]


def status_of(table: LiveTable, published: Mapping[str, PublishedPartition]) -> LiveStatus:
    """Return the live side of a table as it is now."""
    spec = table.table.spec
    fence = the_fence_of(spec, table)
    late = table.table.late_table.counts()
    folded = {key: receipt.partition.late_rows for key, receipt in published.items()}
    is_folded = spec.live is not None and spec.live.late == "fold"
    stale = {key: rows - folded.get(key, 0) for key, rows in sorted(late.items()) if is_folded and rows > folded.get(key, 0)}
    newest = next((found for found in table.receipts() if found[1].kind == "batch"), None)
    return LiveStatus(fence, newest, late, stale, table.quarantine.reasons())


def inspect(
    table: LiveTable, live: LiveStream, folder: str, published: Mapping[str, PublishedPartition], *, now: datetime
) -> list[LiveCheck]:
    """Look at everything around the fence.

    Args:
        folder: Where the events land.
    """
    status = status_of(table, published)
    rows = table.table.read()
    return [
        _is_writing(status, live, now),
        _no_gap(table, live, folder, status, published, rows, now),
        _no_overlap(table, status, published, rows),
        _late_rows(status, live),
        _quarantine(status),
    ]


def _is_writing(status: LiveStatus, live: LiveStream, now: datetime) -> LiveCheck:
    if status.newest is None:
        return LiveCheck("live_is_writing", False, "No batch was ever written.")
    committed, receipt = status.newest
    silent = (now - committed).total_seconds()
    what = f"Batch {receipt.batch} was written {silent:,.0f} s ago ({committed:%Y-%m-%d %H:%M:%S} UTC)."
    passed = silent <= live.silent_after_seconds
    if not passed:
        what += f" More than {live.silent_after_seconds:,} s is an outage: of the writer, or of what should land."
    return LiveCheck("live_is_writing", passed, what, numbers={"silent_seconds": round(silent, 1)})


def _no_gap(
    table: LiveTable,
    live: LiveStream,
    folder: str,
    status: LiveStatus,
    published: Mapping[str, PublishedPartition],
    rows: DataFrame,
    now: datetime,
) -> LiveCheck:
    spec = table.table.spec
    history = [p for p in spec.grid.until(status.fence.at_utc) if is_history(p, status.fence)]
    wrong = {p.key: "before the fence, and not published" for p in history if p.key not in published}
    closed_before = now - timedelta(seconds=live.closed_after_seconds)
    closed = [p for p in spec.grid.until(closed_before) if not is_history(p, status.fence) and p.window.end_utc <= closed_before]
    landed = _landed(table, live, folder, closed) if closed else {}
    written = tally_rows(spec, rows.where(replace_where(spec.partition_column, closed))) if closed else {}
    for partition in closed:
        have, should = written.get(partition.key, EMPTY), landed.get(partition.key, EMPTY)
        if not have.same_content(should):
            wrong[partition.key] = f"live and closed: the table has {have.rows:,} rows, and {should.rows:,} events landed" + (
                ", as many but not the same" if have.rows == should.rows else ""
            )
    what = f"History is whole up to the fence ({status.fence.at_utc:%Y-%m-%d %H:%M} UTC), and {len(closed)} closed live partitions are too."
    if wrong:
        first = next(iter(wrong))
        what = f"{len(wrong):,} partitions have a gap, the first {first}: {wrong[first]}."
    numbers = {"history_partitions": len(history), "closed_live_partitions": len(closed), "partitions_with_a_gap": len(wrong)}
    return LiveCheck("no_gap_at_fence", not wrong, what, wrong, numbers)


def _landed(table: LiveTable, live: LiveStream, folder: str, closed: Sequence[Partition]) -> dict[str, Tally]:
    """Tally the events that landed for some partitions, without what was quarantined."""
    spec = table.table.spec
    since = closed[0].window.start_utc - timedelta(seconds=live.max_future_seconds)
    events = events_of(spec, live, landed_lines(table.table.spark, folder, modified_after=since))
    events = events.where(F.col("_ba_problem").isNull()).where(replace_where(spec.partition_column, closed))
    quarantined = table.quarantine.rows()
    if quarantined is not None:
        kept_out = quarantined.select(F.col("line").alias("_ba_text"), F.col("file").alias("_ba_file")).distinct()
        events = events.join(F.broadcast(kept_out), ["_ba_text", "_ba_file"], "left_anti")
    return tally_rows(spec, events.drop("_ba_problem"))


def _no_overlap(table: LiveTable, status: LiveStatus, published: Mapping[str, PublishedPartition], rows: DataFrame) -> LiveCheck:
    spec, fence = table.table.spec, status.fence
    here = column(spec.partition_column)
    have = rows_by_partition(spec, rows)
    wrong: dict[str, str] = {}
    for key, receipt in published.items():
        if not is_history(spec.grid.partition(key), fence):
            wrong[key] = "live, and written by history too"
        elif have.get(key, 0) != receipt.partition.rows:
            wrong[key] = f"published with {receipt.partition.rows:,} rows, and has {have.get(key, 0):,}: somebody else wrote it"
    twice = both = 0
    if spec.key_columns:
        keys = [column(name) for name in spec.key_columns]
        first_live = spec.grid.partition_of(fence.at_utc)
        live_keys = rows.where(here >= F.lit(first_live.value)).select(*keys)
        history = [p for p in spec.grid.until(fence.at_utc) if is_history(p, fence)][-NEIGHBOURS:]
        twice = live_keys.count() - live_keys.distinct().count()
        if history:
            history_keys = rows.where(replace_where(spec.partition_column, history)).select(*keys)
            both = history_keys.join(live_keys, spec.key_columns, "left_semi").count()
    parts = (
        [f"{len(wrong):,} partitions were written by both sides, the first {next(iter(wrong))}: {wrong[next(iter(wrong))]}"]
        if wrong
        else []
    )
    parts += [f"{both:,} keys are on both sides"] if both else []
    parts += [f"{twice:,} live rows repeat a key: they landed more than once"] if twice else []
    what = f"{'; '.join(parts)}." if parts else "Each partition is written by one side, and no key is on both."
    numbers = {"partitions_written_by_both": len(wrong), "keys_on_both_sides": both, "live_keys_twice": twice}
    return LiveCheck("no_overlap_at_fence", not parts, what, wrong, numbers)


def _late_rows(status: LiveStatus, live: LiveStream) -> LiveCheck:
    waiting = status.stale if live.late == "fold" else status.late
    numbers = {"late_rows": sum(status.late.values()), "stale_partitions": len(waiting), "rows_waiting": sum(waiting.values())}
    if not waiting:
        return LiveCheck(
            "late_rows_are_folded", True, f"{numbers['late_rows']:,} late rows came, and all are folded in.", {}, numbers, True
        )
    keys = sorted(waiting)
    what = f"{numbers['rows_waiting']:,} late rows of {len(keys):,} partitions ({keys[0]} to {keys[-1]}) " + (
        "wait for a launch that folds them in." if live.late == "fold" else "are kept beside the table (`late: keep`)."
    )
    return LiveCheck("late_rows_are_folded", False, what, {key: f"{waiting[key]:,} late rows" for key in keys}, numbers, True)


def _quarantine(status: LiveStatus) -> LiveCheck:
    rows = sum(status.quarantined.values())
    if not rows:
        return LiveCheck("nothing_is_quarantined", True, "Nothing is in quarantine.", {}, {"quarantined_rows": 0}, True)
    reasons = "; ".join(f"{reason}: {count:,}" for reason, count in status.quarantined.items())
    return LiveCheck("nothing_is_quarantined", False, f"{rows:,} rows are in quarantine. {reasons}.", {}, {"quarantined_rows": rows}, True)
