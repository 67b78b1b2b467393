"""What holds around the fence, by looking at the tables: silence, gaps, overlaps, late rows that wait, quarantine.

A table that was never made can be looked at too: nothing is in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.live.checks import (
    NEIGHBOURS,
    ChangedFile,
    LiveCheck,
    LiveStatus,
    landed_files_are_as_read,
    late_rows_are_folded,
    live_is_writing,
    nothing_is_quarantined,
)
from backfill_assets.core.live.ownership import the_fence_of
from backfill_assets.core.spec.history import history_of
from backfill_assets.core.spec.live import LiveStream
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import replace_where
from backfill_assets.core.state import partition_status
from backfill_assets.core.state.fence import is_history
from backfill_assets.core.state.partition_status import Known, State, outside_in_words
from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.core.state.tallies import EMPTY, Tally
from backfill_assets.lake.side_tables import kind_of_reason
from backfill_assets.lake.tally import tally_rows
from backfill_assets.live.changed_files import changed_since_listed, one_spelling
from backfill_assets.live.landing import events_of, landed_lines
from backfill_assets.live.live_table import LiveTable
from backfill_assets.sources.files.landed_twice import landed_twice
from backfill_assets.sources.files.local_files import files_unseen
from backfill_assets.spark.expressions import by_partition, collected, column
from backfill_assets.spark.failures import translated
from backfill_assets.spark.storage import is_there


def status_of(table: LiveTable, published: Mapping[str, PublishedPartition]) -> LiveStatus:
    """Return the live side of a table as it is now."""
    spec = table.table.spec
    fence = the_fence_of(spec, table)
    late = table.table.late_table.counts()
    stale = waiting(spec, late, published) if spec.live is not None and spec.live.late == "fold" else {}
    newest = next((found for found in table.receipts() if found[1].kind == "batch"), None)
    return LiveStatus(fence, newest, late, stale, table.quarantine.reasons())


def waiting(spec: TableSpec, late: Mapping[str, int], published: Mapping[str, PublishedPartition]) -> dict[str, int]:
    """Return the late rows of each partition that no publish has folded in yet, and that a launch could."""
    partitions = history_of(spec).from_start(late)
    waiting: dict[str, int] = {}
    for status in partition_status.status_of(partitions, Known(published=published, late_rows=late)):
        key = status.partition.key
        folded = status.published.partition.late_rows if status.published else 0
        if {State.MISSING, State.STALE_LATE_ROWS} & set(status.states) and late[key] > folded:
            waiting[key] = late[key] - folded
    return waiting


def inspect(
    table: LiveTable,
    live: LiveStream,
    folder: str,
    *,
    checkpoint: str,
    now: datetime,
) -> list[LiveCheck]:
    """Look at everything around the fence: rows and receipts as of one version, whatever is launched meanwhile.

    Args:
        folder: Where the events land.
        checkpoint: Folder of Spark's checkpoint, where it usually is.
    """
    version = table.table.version()
    published, rows = table.table.published(until=version), table.table.read(version)
    status = status_of(table, published)
    stream = status.fence.stream
    changed = changed_since_listed(table.table.spark, checkpoint, stream, folder) if stream else None
    seen = _Seen(table, live, folder, published, status, version=version, rows=rows, now=now, changed=changed)
    return [
        live_is_writing(seen.status, live, now),
        _no_gap(seen),
        _no_overlap(seen),
        _files_as_read(seen),
        late_rows_are_folded(seen.status, live),
        nothing_is_quarantined(seen.status),
    ]


@dataclass(frozen=True, slots=True)
class _Seen:
    """A table and what is known of it, at one moment.

    Args:
        folder: Where the events land.
        version: Of which `published` and `rows` are.
        changed: Files that are not as the stream listed them, and how many it has listed; None where nobody knows.
    """

    table: LiveTable
    live: LiveStream
    folder: str
    published: Mapping[str, PublishedPartition]
    status: LiveStatus
    version: int
    rows: DataFrame
    now: datetime
    changed: tuple[list[ChangedFile], int] | None

    @property
    def spec(self) -> TableSpec:
        return self.table.table.spec

    def history(self) -> list[Partition]:
        """Return every partition before the fence."""
        fence = self.status.fence
        return [p for p in history_of(self.spec).until(fence.at_utc) if is_history(p, fence)]

    def closed(self) -> list[Partition]:
        """Return the live partitions that ended so long ago that no event of theirs is expected any more."""
        before = self.now - timedelta(seconds=self.live.closed_after_seconds)
        ended = [p for p in self.spec.grid.until(before) if p.window.end_utc <= before]
        return [p for p in ended if not is_history(p, self.status.fence)]


def _files_as_read(seen: _Seen) -> LiveCheck:
    changed = seen.changed or ([] if seen.status.newest is None else None, 0)
    unseen = [file.path for file in files_unseen(seen.table.table.spark, seen.folder)]
    twice = list(landed_twice(seen.folder))
    return landed_files_are_as_read(*changed, seen.spec.key, unseen=unseen, twice=twice)


# -- gaps --------------------------------------------------------------------------------------------------------------


def _no_gap(seen: _Seen) -> LiveCheck:
    history, closed = seen.history(), seen.closed()
    states = partition_status.status_of(history, Known(published=seen.published))
    wrong = {s.partition.key: "before the fence, and not published" for s in states if s.state is State.MISSING}
    wrong |= _closed_with_a_gap(seen, closed) if closed else {}
    what = (
        f"History is whole up to the fence ({seen.status.fence.at_utc:%Y-%m-%d %H:%M} UTC), and {len(closed)} closed "
        "live partitions are too."
    )
    if wrong:
        first = next(iter(wrong))
        what = f"{len(wrong):,} partitions have a gap, the first {first}: {wrong[first]}."
    numbers = {
        "history_partitions": len(history),
        "closed_live_partitions": len(closed),
        "partitions_with_a_gap": len(wrong),
    }
    return LiveCheck("no_gap_at_fence", not wrong, what, wrong, numbers)


def _closed_with_a_gap(seen: _Seen, closed: Sequence[Partition]) -> dict[str, str]:
    """Hold closed live partitions against what landed; return those that differ, each with how."""
    spec = seen.spec
    if not is_there(seen.table.table.spark, seen.folder):
        why = f"live and closed: the folder `{seen.folder}`, where its events landed, is not there"
        return {partition.key: why for partition in closed}
    written = tally_rows(spec, seen.rows.where(replace_where(spec.partition_column, closed)))
    with translated(spec.key):
        landed, kept_out = _landed(seen, closed)
    wrong: dict[str, str] = {}
    for key in (partition.key for partition in closed):
        have, should = written.get(key, EMPTY), landed.get(key, EMPTY)
        if not have.same_content(should):
            but = ", as many but not the same" if have.rows == should.rows else ""
            wrong[key] = f"live and closed: the table has {have.rows:,} rows, and {should.rows:,} events landed{but}"
        elif key in kept_out:
            rows, why = kept_out[key]
            wrong[key] = (
                f"live and closed: {rows:,} events of it are valid now, and in quarantine alone ({why}); land their "
                "lines once more, in a new file"
            )
    return wrong


def _landed(seen: _Seen, closed: Sequence[Partition]) -> tuple[dict[str, Tally], dict[str, tuple[int, str]]]:
    """Tally the events that landed for some partitions, without what the stream has quarantined.

    Returns:
        The tallies; and how many events are valid now, were quarantined, and have not landed again since, with why.
    """
    spec, table = seen.spec, seen.table
    since = closed[0].window.start_utc - timedelta(seconds=seen.live.max_future_seconds)
    events = events_of(spec, seen.live, landed_lines(table.table.spark, seen.folder, modified_after=since))
    events = events.where(F.col("_ba_problem").isNull()).where(replace_where(spec.partition_column, closed))
    events = _without_what_landed_again(events, seen)
    quarantined = table.quarantine.rows()
    if quarantined is None:
        return tally_rows(spec, events.drop("_ba_problem")), {}
    of_stream = quarantined.where(F.col("_ba_stream") == seen.status.fence.stream)
    lines = of_stream.groupBy(F.col("line").alias("_ba_text"), F.col("file").alias("_ba_file"))
    named = lines.agg(F.min(kind_of_reason()).alias("_ba_why"))
    taken = events.join(named, ["_ba_text", "_ba_file"], "left_anti")
    waiting = events.join(named, ["_ba_text", "_ba_file"])
    waiting = waiting.join(taken.select("_ba_text").distinct(), "_ba_text", "left_anti")
    why = F.concat_ws("; ", F.sort_array(F.collect_set("_ba_why"))).alias("why")
    kept_out = collected(by_partition(spec, waiting, F.count(F.lit(1)).alias("n"), why))
    by_key = {spec.grid.key_of(row["value"]): (int(row["n"]), row["why"]) for row in kept_out}
    return tally_rows(spec, taken.drop("_ba_problem")), by_key


def _without_what_landed_again(events: DataFrame, seen: _Seen) -> DataFrame:
    """Leave out, of files that changed and that somebody has dealt with, the lines that landed in another file."""
    paths = [file.path for file in seen.changed[0] if file.acknowledged] if seen.changed else []
    if not paths:
        return events
    marked = events.withColumn("_ba_dealt_with", one_spelling("_ba_file").isin(paths))
    others = marked.where("NOT _ba_dealt_with")
    kept = marked.where("_ba_dealt_with").join(others.select("_ba_text").distinct(), "_ba_text", "left_anti")
    return others.unionByName(kept).drop("_ba_dealt_with")


# -- overlaps ----------------------------------------------------------------------------------------------------------


def _no_overlap(seen: _Seen) -> LiveCheck:
    wrong = _written_by_both(seen)
    twice, both = _repeated_keys(seen)
    parts: list[str] = []
    if wrong:
        first = next(iter(wrong))
        parts += [f"{len(wrong):,} partitions were written by both sides, the first {first}: {wrong[first]}"]
    parts += [f"{both:,} keys are on both sides"] if both else []
    parts += [f"{twice:,} live rows repeat a key: they landed more than once"] if twice else []
    outside = seen.table.table.rows_outside_grid()
    parts += [outside_in_words(seen.spec.key, outside).rstrip(".")] if outside else []
    what = f"{'; '.join(parts)}." if parts else "Each partition is written by one side, and no key is on both."
    numbers = {"partitions_written_by_both": len(wrong), "keys_on_both_sides": both, "live_keys_twice": twice}
    numbers["rows_outside_of_any_partition"] = sum(outside.values())
    return LiveCheck("no_overlap_at_fence", not parts, what, wrong, numbers)


def _written_by_both(seen: _Seen) -> dict[str, str]:
    """Return the published partitions in which the other side wrote too, each with how that is known."""
    partitions = seen.spec.grid.from_start(seen.published)
    table = seen.table.table
    rows_now = table.rows_now(partitions, version=seen.version)
    since = table.written_by_others(seen.published, version=seen.version)
    known = Known(published=seen.published, fence=seen.status.fence, rows_now=rows_now, written_since=since)
    found = partition_status.status_of(partitions, known)
    wrong = {s.partition.key: "live, and written by history too" for s in found if s.state is State.LIVE}
    return wrong | {s.partition.key: s.reason for s in found if s.state is State.FOREIGN}


def _repeated_keys(seen: _Seen) -> tuple[int, int]:
    """Return how many live rows repeat a key, and how many keys are live and among the last of history too."""
    spec, rows = seen.spec, seen.rows
    if not spec.key_columns:
        return 0, 0
    keys = [column(name) for name in spec.key_columns]
    first_live = spec.grid.partition_of(seen.status.fence.at_utc)
    live_keys = rows.where(column(spec.partition_column) >= F.lit(first_live.value)).select(*keys)
    twice = live_keys.count() - live_keys.distinct().count()
    neighbours = seen.history()[-NEIGHBOURS:]
    if not neighbours:
        return twice, 0
    history_keys = rows.where(replace_where(spec.partition_column, neighbours)).select(*keys)
    return twice, history_keys.join(live_keys, spec.key_columns, "left_semi").count()
