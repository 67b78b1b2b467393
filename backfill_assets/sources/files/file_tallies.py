"""Tallies of files whose rows may belong to several partitions: each file is counted once, over all of its rows.

Rows belong where their event time says. A row that cannot be read, has no event time, or lies outside of what its
file's name says, could belong to any partition that the file may hold: it is found here, and all of those fail.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from backfill_assets.core.calendar.layouts import ANY_TIME
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.calendar.windows import Grain, Window, midnight_utc
from backfill_assets.core.history.audit import BY_EVENT_TIME, AuditRule, Finding
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import quoted
from backfill_assets.core.state.tallies import instant_of
from backfill_assets.sources.files.file_format import FileFormat
from backfill_assets.sources.files.file_tally import FileTally, Span
from backfill_assets.sources.files.listing import SourceFile
from backfill_assets.spark.expressions import collected, event_micros, in_its_zone, partition_value

EXAMPLES = 3
_FILES_NAMED = 20
_MOST_BYTES_NAMED = 256 << 20
"""Rows are named in files up to this size: lines are numbered in the memory of one task."""

_FIRST, _LAST = (round(at.timestamp()) * 1_000_000 for at in (ANY_TIME.start_utc, ANY_TIME.end_utc))
"""Microseconds since 1970 for which Python has a day in every zone; what lies beyond them is in no partition."""


@dataclass(frozen=True, slots=True)
class FileTallies:
    """The tallies of files; one that was counted is not counted again."""

    spec: TableSpec
    format_: FileFormat
    _kept: dict[SourceFile, FileTally] = field(default_factory=dict[SourceFile, FileTally], init=False)

    def __contains__(self, file: object) -> bool:
        return file in self._kept

    def open(self, files: Sequence[SourceFile]) -> None:
        """Count files that were not counted yet."""
        new = [file for file in files if file not in self._kept]
        if not new:
            return
        counts = self.format_.count(new)
        tallies = {file.file_id: FileTally(counts[file.file_id]) for file in new}
        rows = self.format_.rows(new)
        is_text = "_ba_problem" in rows.columns
        asked = [name for name, column in self.spec.columns.items() if not column.optional]
        self._tally(rows, tallies, asked if is_text else [])
        if asked and not is_text:  # Parquet reads single columns: most footers say that there is no NULL
            self._tally_nulls(rows, tallies, asked)
        self._find(new, tallies)
        self._kept.update({file: tallies[file.file_id] for file in new})

    def findings(self, file: SourceFile) -> list[Finding]:
        """Return what is wrong with a file, and so with every partition that it may hold."""
        return self._kept[file].findings if file in self._kept else []

    def lines(self, file: SourceFile) -> int | None:
        """Return how many rows a file has; None if it was not counted."""
        return self._kept[file].counted.rows if file in self._kept else None

    def rows_by_partition(self, files: Sequence[SourceFile], partitions: Sequence[Partition]) -> dict[str, int]:
        """Return how many readable rows of files lie in each partition, by key."""
        ordered = sorted(partitions, key=lambda p: p.window.start_utc)
        starts = [partition.window.start_utc for partition in ordered]
        rows = {partition.key: 0 for partition in ordered}
        for file in files:
            for span in self._kept[file].spans:
                at = bisect_right(starts, span.first_utc) - 1
                if at >= 0 and ordered[at].window.contains(span.last_utc):
                    rows[ordered[at].key] += span.rows
        return rows

    def before(self, files: Sequence[SourceFile], instant: datetime) -> tuple[int, datetime | None]:
        """Return how many readable rows of files lie before an instant, and when the first of them happened."""
        early = [span for file in files for span in self._kept[file].spans if span.last_utc < instant]
        return sum(span.rows for span in early), min((span.first_utc for span in early), default=None)

    # -- counting --------------------------------------------------------------------------------------------------

    def _tally(self, rows: DataFrame, tallies: Mapping[int, FileTally], asked: Sequence[str]) -> None:
        """Count rows by file and by stretches of time that lie in one partition each."""
        event_time = F.col(quoted(self.spec.event_time))
        unreadable = F.col("_ba_problem").isNotNull() if "_ba_problem" in rows.columns else F.lit(False)
        here = F.to_date(in_its_zone(self.spec, event_time))
        stretch = partition_value(self.spec, event_time) if self.spec.grain is Grain.HOURLY else here
        micros = event_micros(self.spec)
        counted = rows.groupBy("_ba_file_id", stretch.alias("_ba_stretch"), unreadable.alias("_ba_unreadable")).agg(
            F.count(F.lit(1)).alias("_ba_rows"),
            F.min(micros).alias("_ba_first"),
            F.max(micros).alias("_ba_last"),
            *(F.count(F.col(quoted(name))).alias(f"_ba_filled_{i}") for i, name in enumerate(asked)),
        )
        for row in counted.drop("_ba_stretch").collect():  # which may be a day that Python has no word for
            tally = tallies[row["_ba_file_id"]]
            if row["_ba_unreadable"]:
                tally.unreadable += int(row["_ba_rows"])
                continue
            for i, name in enumerate(asked):
                tally.filled[name] = tally.filled.get(name, 0) + int(row[f"_ba_filled_{i}"])
            if row["_ba_first"] is None:
                tally.undated += int(row["_ba_rows"])
            else:
                tally.spans.append(
                    Span(self._instant(row["_ba_first"]), self._instant(row["_ba_last"]), int(row["_ba_rows"]))
                )

    def _tally_nulls(self, rows: DataFrame, tallies: Mapping[int, FileTally], asked: Sequence[str]) -> None:
        nulls = [F.col(quoted(name)).isNull() for name in asked]
        anywhere = nulls[0]
        for null in nulls[1:]:
            anywhere = anywhere | null
        counted = (
            rows.where(anywhere)
            .groupBy("_ba_file_id")
            .agg(*(F.count_if(null).alias(f"_ba_null_{i}") for i, null in enumerate(nulls)))
        )
        for row in counted.collect():
            tally = tallies[row["_ba_file_id"]]
            tally.filled.update({name: tally.readable - int(row[f"_ba_null_{i}"]) for i, name in enumerate(asked)})

    @property
    def _dates(self) -> bool:
        return self.spec.columns[self.spec.event_time].type == "date"

    def _instant(self, micros: int) -> datetime:
        """Return an event time as an instant; a day is its midnight in the table's zone."""
        instant = instant_of(min(max(micros, _FIRST), _LAST))
        assert instant is not None  # noqa: S101 (it is a number)
        return midnight_utc(instant.date(), self.spec.grid.zone) if self._dates else instant

    # -- what is wrong ---------------------------------------------------------------------------------------------

    def _find(self, files: Sequence[SourceFile], tallies: Mapping[int, FileTally]) -> None:
        """Note what is wrong with each file."""
        strays = {file: self._strays(file, tallies[file.file_id]) for file in files}
        named = self._named(
            [f for f in files if strays[f] or tallies[f.file_id].undated or tallies[f.file_id].unreadable]
        )
        for file in files:
            tallies[file.file_id].findings.extend(self._findings(file, tallies[file.file_id], strays[file], named))
        empty = {
            f: [name for name, filled in a.filled.items() if not filled]
            for f in files
            if (a := tallies[f.file_id]).readable
        }
        suspects = [file for file in files if empty.get(file)]
        names = sorted({name for file in suspects for name in empty[file]})
        for name, lacking in (self.format_.lacking(names, suspects) if suspects else {}).items():
            for file in lacking:
                if name in empty[file]:
                    what = f"`{file.path}` has no column `{name}`{self.spec.way_to_lack(name)}."
                    tallies[file.file_id].findings.append(Finding(AuditRule.SCHEMA_MATCHES, 0, what))

    def _findings(
        self,
        file: SourceFile,
        tally: FileTally,
        strays: list[Span],
        named: Mapping[tuple[SourceFile, AuditRule], list[str]],
    ) -> Iterator[Finding]:
        could = "; they could belong to any partition that the file may hold."

        def finding(rule: AuditRule, rows: int, what: str) -> Finding:
            return Finding(rule, rows, what, tuple(named.get((file, rule), ())))

        if tally.counted.misread or tally.unreadable:
            rows = max(tally.counted.misread, tally.unreadable)
            yield finding(
                AuditRule.VALUES_FIT_THEIR_TYPES, rows, f"{rows:,} of the rows of `{file.path}` cannot be read{could}"
            )
        elif tally.counted.rows != tally.readable:
            what = f"`{file.path}` has {tally.counted.rows:,} rows, and {tally.readable:,} were read."
            yield Finding(AuditRule.ROWS_ARE_ACCOUNTED_FOR, abs(tally.counted.rows - tally.readable), what)
        if tally.undated:
            what = f"`{self.spec.event_time}` is NULL in {tally.undated:,} of the rows of `{file.path}`{could}"
            yield finding(AuditRule.REQUIRED_COLUMNS_ARE_FILLED, tally.undated, what)
        if strays:
            first, last = min(span.first_utc for span in strays), max(span.last_utc for span in strays)
            what = (
                f"`{file.path}` is about {_words(file.window.start_utc)} to {_words(file.window.end_utc)}, and has "
                "rows outside of that "
                f"(from {_words(first)} to {_words(last)}){could.rstrip('.')}{BY_EVENT_TIME}."
            )
            yield finding(AuditRule.ROWS_INSIDE_PARTITION, sum(span.rows for span in strays), what)

    def _strays(self, file: SourceFile, tally: FileTally) -> list[Span]:
        """Return the spans with rows outside of what a file's name says."""
        if file.window == ANY_TIME:
            return []
        first, end = self._days_touched(file.window) if self._dates else (file.window.start_utc, file.window.end_utc)
        return [span for span in tally.spans if span.first_utc < first or span.last_utc >= end]

    def _days_touched(self, window: Window) -> tuple[datetime, datetime]:
        """Return the whole local days that share an instant with a window."""
        zone = self.spec.grid.zone
        first, last = (
            at.astimezone(zone).date() for at in (window.start_utc, window.end_utc - timedelta(microseconds=1))
        )
        return midnight_utc(first, zone), midnight_utc(last + timedelta(days=1), zone)

    def _named(self, files: Sequence[SourceFile]) -> dict[tuple[SourceFile, AuditRule], list[str]]:
        """Name a few of the rows that are wrong, by file and by the rule that they break; lines with their number."""
        by_uri = {file.uri: file for file in [f for f in files if f.size_bytes <= _MOST_BYTES_NAMED][:_FILES_NAMED]}
        if not by_uri:
            return {}
        rows = self.format_.numbered(list(by_uri.values()))
        when = F.col(quoted(self.spec.event_time))
        bounds = [(uri, *self._bounds(file.window)) for uri, file in by_uri.items()]
        known = F.broadcast(
            rows.sparkSession.createDataFrame(bounds, "_ba_file string, _ba_start string, _ba_end string")
        )
        kind = self.spec.columns[self.spec.event_time].type
        outside = (when < F.col("_ba_start").cast(kind)) | (when >= F.col("_ba_end").cast(kind))
        problem = F.col("_ba_problem") if "_ba_problem" in rows.columns else F.lit(None).cast("string")
        rule = (
            F.when(problem.isNotNull(), AuditRule.VALUES_FIT_THEIR_TYPES.value)
            .when(when.isNull(), AuditRule.REQUIRED_COLUMNS_ARE_FILLED.value)
            .when(outside, AuditRule.ROWS_INSIDE_PARTITION.value)
        )
        words = F.coalesce(problem, self._row_words(when))
        each = Over.partitionBy("_ba_file", "_ba_rule").orderBy("_ba_line", "_ba_words")
        wrong = rows.join(known, "_ba_file").select(
            "_ba_file", "_ba_line", rule.alias("_ba_rule"), words.alias("_ba_words")
        )
        wrong = (
            wrong.where("_ba_rule IS NOT NULL")
            .withColumn("_ba_rank", F.row_number().over(each))
            .where(F.col("_ba_rank") <= EXAMPLES)
        )
        found: dict[tuple[SourceFile, AuditRule], list[str]] = {}
        for row in collected(wrong.orderBy("_ba_file", "_ba_rank")):
            file = by_uri[row["_ba_file"]]
            line = f"line {row['_ba_line']}: " if row["_ba_line"] else ""
            found.setdefault((file, AuditRule(row["_ba_rule"])), []).append(f"{line}{row['_ba_words']}")
        return found

    def _bounds(self, window: Window) -> tuple[str, str]:
        """Return the ends of a window as text that Spark casts to the event time's type."""
        if not self._dates:
            return window.start_utc.isoformat(), window.end_utc.isoformat()
        zone = self.spec.grid.zone
        first, end = (at.astimezone(zone).date().isoformat() for at in self._days_touched(window))
        return first, end

    def _row_words(self, when: Column) -> Column:
        """Return a row's key and its event time, in words."""
        parts = [
            F.concat(F.lit(f"{name}="), F.coalesce(F.col(quoted(name)).cast("string"), F.lit("NULL")))
            for name in self.spec.key_columns
        ]
        at = F.concat(
            F.lit("at "), F.coalesce(F.concat(when.cast("string"), F.lit("" if self._dates else "Z")), F.lit("NULL"))
        )
        return F.concat_ws(" ", *parts, at)


def _words(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%SZ}"
