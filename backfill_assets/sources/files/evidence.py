"""What files say of a partition before its rows are read: how many there are, and what is wrong with the files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from pyspark.sql import Row, SparkSession, Window
from pyspark.sql import functions as F

from backfill_assets.core.calendar.layouts import Layout, Slot, Unit
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import AuditRule, Evidence, Finding
from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.spec.history import history_of
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.sources.files.completeness import Completeness
from backfill_assets.sources.files.file_format import Count, FileFormat
from backfill_assets.sources.files.file_tallies import EXAMPLES, FileTallies
from backfill_assets.sources.files.listing import PACKED, Listing, SourceFile, as_listed, left_below
from backfill_assets.sources.files.local_files import MARKER
from backfill_assets.sources.files.unreadable_files import UnreadableFiles
from backfill_assets.spark.expressions import collected
from backfill_assets.spark.storage import is_there


@dataclass(frozen=True, slots=True)
class FilesEvidence:
    """Evidence of partitions, from what is known of their files.

    Args:
        unreadable: Files that cannot be read to their end.
        completeness: Which folders their writer has not finished.
    """

    spark: SparkSession
    spec: TableSpec
    source: FilesSpec
    root: str
    layout: Layout
    format_: FileFormat
    tallies: FileTallies
    unreadable: UnreadableFiles
    completeness: Completeness

    def of_partition(
        self,
        partition: Partition,
        files: Sequence[SourceFile],
        *,
        seen: Listing | None,
        wrong: Mapping[SourceFile, list[Finding]],
        counted: Mapping[int, Count] | int,
    ) -> Evidence:
        """Say of one partition what its files promise, and what is wrong with them.

        Args:
            seen: What was listed; it knows the times whose files were left out for when they were modified.
            wrong: Only files with which something is wrong.
            counted: Rows by a file's id; or the partition's rows in all of its files.
        """
        findings = self._unfinished(partition, files) + self._gaps(partition, files, seen, counted)
        findings += [finding for file in files if file in wrong for finding in wrong[file]] if wrong else []
        place = files[0].path.rsplit("/", 1)[0] if files else ""
        if isinstance(counted, int):
            return Evidence(counted, tuple(findings), place)
        read = [file for file in files if file.file_id in counted]
        total = sum(counted[file.file_id].rows for file in read)
        return Evidence(total, tuple(findings), place)

    def of_file(self, file: SourceFile, *, counted_whole: bool) -> list[Finding]:
        """Return what is wrong with a file as a whole."""
        if file in self.unreadable:
            return [
                Finding(
                    AuditRule.FILES_ARE_READABLE, 0, f"`{file.path}` cannot be read {self.unreadable.reasons[file]}."
                )
            ]
        if not file.size_bytes and (form := self._never_empty(file)):
            return [Finding(AuditRule.FILES_ARE_READABLE, 0, f"`{file.path}` has 0 bytes, which is no {form}.")]
        if misfits := self.format_.misfits(file):
            return [Finding(AuditRule.SCHEMA_MATCHES, 0, f"`{file.path}`: {'; '.join(misfits)}.")]
        return self.tallies.findings(file) if counted_whole else []

    def rows_in_no_partition(self, files: Sequence[SourceFile]) -> str:
        """Say how many rows of files, which were counted whole, lie before the table's history; empty if none do."""
        begin_utc = history_of(self.spec).start_utc
        rows, first = self.tallies.before(files, begin_utc)
        if first is None:
            return ""
        return (
            f"`{self.spec.key}`: {rows:,} rows of these files lie before its history begins, at "
            f"{begin_utc:%Y-%m-%d %H:%MZ}, the first of them at {first:%Y-%m-%d %H:%M:%SZ}: they are in no partition."
        )

    def _unfinished(self, partition: Partition, files: Sequence[SourceFile]) -> list[Finding]:
        """Return which folders of a partition's time do not say that they are complete, or say otherwise."""
        lacking = self.completeness.unfinished(partition, files)
        if lacking:
            more = f" (and {len(lacking) - 1} more folders)" if len(lacking) > 1 else ""
            what = f"`{lacking[0]}`{more} has no `{MARKER}` file: its export has not ended, or has failed."
        elif left := self.completeness.left_unfinished(partition, files):
            what = (
                f"`{left}` lies beside what is there: its export has not ended, or has failed. If it has, delete that."
            )
        else:
            return []
        return [Finding(AuditRule.SOURCE_IS_PRESENT, 0, what)]

    def _never_empty(self, file: SourceFile) -> str | None:
        """Return the form of a file that has a byte at least, even if it has no row."""
        if self.source.format == "parquet":
            return "Parquet file"
        if file.path.lower().endswith(PACKED):
            return "compressed file"
        return "CSV file with a header" if self.source.format == "csv" and self.source.csv_form.header else None

    def _is_hollow(self, file: SourceFile, counted: Mapping[int, Count] | int) -> bool:
        """Say whether there is nothing in a file, packed or not, as after an export that failed."""
        if self.completeness.needs_markers:  # then each folder says by itself that its export has ended
            return False
        if not file.size_bytes:
            return not self._never_empty(file)
        if not file.path.lower().endswith(PACKED) or (self.source.format == "csv" and self.source.csv_form.header):
            return False
        if isinstance(counted, int):
            return self.tallies.lines(file) == 0
        return file.file_id in counted and not counted[file.file_id].rows

    def _gaps(
        self,
        partition: Partition,
        files: Sequence[SourceFile],
        seen: Listing | None,
        counted: Mapping[int, Count] | int,
    ) -> list[Finding]:
        """Return what of a partition's time has no file."""
        if self.source.gaps == "allowed":
            return []
        begin_utc = history_of(self.spec).start_utc
        have = {file.window for file in files}
        hollow = have - {file.window for file in files if not self._is_hollow(file, counted)}
        slots = [
            s for s in self.layout.slots_in(partition.window) if s.window not in have and s.window.end_utc > begin_utc
        ]
        by_time = [slot for slot in slots if seen and slot.window in seen.by_time]
        lacking = by_time or [slot for slot in slots if not self._has_empty_folder(slot, seen)]
        such = "; `gaps: allowed` would take such " + {Unit.DAY: "days for days", Unit.HOUR: "hours for hours"}.get(
            self.layout.unit, "stretches for stretches"
        )
        if not lacking and not hollow:
            return []
        if not lacking:
            (first, *others) = [file.path for file in files if file.window in hollow]
            more = f" and {len(others)} more" if others else ""
            what = f"`{first}`{more}: nothing in it, as after an export that failed, and no other file for that time"
            return [Finding(AuditRule.SOURCE_IS_PRESENT, 0, f"{what}{such} without rows.")]
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        there = self._there(lacking[0])
        path = there[0] if there else self._below_root(self._as_written(lacking[0], seen))
        if by_time:
            what = f"every file of `{path}`{more} lies outside of `modified_after` and `modified_before`"
        elif there:
            left = {name: found for name in there if (found := left_below(self.spark, name))}
            path, found = next(iter(left.items()), (path, ""))
            what = f"`{path}`{more} is a file, or its export has not ended{f': {found} is in it' if found else ''}"
        else:
            what = f"there is no {'file' if self.layout.names_files else 'folder'} `{path}`{more}"
        return [Finding(AuditRule.SOURCE_IS_PRESENT, 0, f"{what}{such} without rows.")]

    def _as_written(self, slot: Slot, seen: Listing | None) -> str:
        """Return the name of a time as the other files have it: with zeros in front, or without."""
        for file in seen.files if seen else ():
            for other in self.layout.slots_in(file.window) if slot.name != slot.unpadded else ():
                if other.name != other.unpadded:
                    return slot.unpadded if f"/{other.unpadded}" in unquote(file.path) else slot.name
        return slot.name

    def _has_empty_folder(self, slot: Slot, seen: Listing | None) -> bool:
        """Say whether a time without files has a folder all the same: no file, nor one that somebody fills."""
        there = [] if self.layout.names_files else self._there(slot)
        return bool(there) and not any(left_below(self.spark, path) or self._is_file(path, seen) for path in there)

    def _there(self, slot: Slot) -> list[str]:
        """Return what there is by the name of a time, with zeros in front or without."""
        paths = dict.fromkeys(map(self._below_root, (slot.name, slot.unpadded)))
        return [path for path in paths if is_there(self.spark, path)]

    def _is_file(self, path: str, seen: Listing | None) -> bool:
        """Say whether what has the name of a folder is a file; the layout has no place for that."""
        below = path.removeprefix(self.root.rstrip("/"))
        return any(strange == f"{as_listed(self.root, strange)}{below}" for strange in (seen.strange if seen else ()))

    def _below_root(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"


def unreadable_lines(format_: FileFormat, files: Mapping[str, Sequence[SourceFile]]) -> dict[str, Finding]:
    """Say how many lines, or rows, cannot be read, and name a few with file, number and reason; by partition key.

    The same files give the same finding, whether what counts them or what types them found a line that is bad. They
    are read once, however many partitions they are for.
    """
    by_uri = {file.uri: (key, file.path) for key, of_key in files.items() for file in of_key}
    if not by_uri:
        return {}
    bad = format_.numbered([file for of_key in files.values() for file in of_key]).where("_ba_problem IS NOT NULL")
    of_file = Window.partitionBy("_ba_file")
    first = bad.select(
        *("_ba_file", "_ba_line", "_ba_problem"),
        F.row_number().over(of_file.orderBy("_ba_line")).alias("_ba_rank"),
        F.count(F.lit(1)).over(of_file).alias("_ba_bad"),
    ).where(F.col("_ba_rank") <= EXAMPLES)
    counts: Counter[str] = Counter()
    named = defaultdict[str, list[Row]](list)
    for row in collected(first.orderBy("_ba_file", "_ba_rank")):
        key, _ = by_uri[row["_ba_file"]]
        counts[key] += row["_ba_bad"] if row["_ba_rank"] == 1 else 0
        named[key].append(row)
    return {key: _named(counts[key], rows[:EXAMPLES], by_uri) for key, rows in named.items()}


def _named(lines: int, rows: Sequence[Row], by_uri: Mapping[str, tuple[str, str]]) -> Finding:
    lines_of = [f" line {row['_ba_line']}" if row["_ba_line"] else "" for row in rows]
    examples = tuple(
        f"{by_uri[row['_ba_file']][1]}{line}: {row['_ba_problem']}" for row, line in zip(rows, lines_of, strict=True)
    )
    unit = "line" if any(lines_of) else "row"
    what = f"{lines:,} {unit}{'s' if lines > 1 else ''} cannot be read."
    return Finding(AuditRule.VALUES_FIT_THEIR_TYPES, lines, what, examples)
