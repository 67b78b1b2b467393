"""History in files: which files may hold a partition, what they say of themselves, and the one read of them.

A file whose time lies inside one partition is that partition's: all of its rows are accounted for there. Where a file may hold
rows of several partitions, rows belong where their event time says, and `accounts` counts each file over all of them.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.history.audit import AuditRule, Evidence, Finding
from backfill_assets.core.history.ports import Staged, Survey
from backfill_assets.core.calendar.layouts import ANY_TIME, Layout, Slot, Unit
from backfill_assets.core.spec.files import FilesSource
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.tallies import Tally
from backfill_assets.core.calendar.windows import Window, midnight_utc
from backfill_assets.errors import NOTHING_WRITTEN, MemoryExhaustedError, SchemaMismatchError, SourceChangedError, WindowError
from backfill_assets.sources.files import columns
from backfill_assets.sources.files.file_tallies import EXAMPLES, Accounts
from backfill_assets.sources.files.columns import SPARK_FAILURES
from backfill_assets.sources.files.csv_records import CsvRecords
from backfill_assets.sources.files.json_lines import JsonLines
from backfill_assets.sources.files.listing import Listing, SourceFile, is_there, list_files
from backfill_assets.sources.files.parquet import ParquetFiles
from backfill_assets.sources.files.file_format import Count, Records

_FORMS: dict[str, Callable[[SparkSession, TableSpec, FilesSource], Records]] = {
    "parquet": ParquetFiles,
    "json": JsonLines,
    "csv": CsvRecords,
}


@dataclass(slots=True)
class FilesBelowFolders:
    """Files below `root`, whose folders or names say when their rows happened; or do not.

    Args:
        root: Folder; any URI that Spark reads.
        log: Called with one sentence whenever a person would want to know.
    """

    spark: SparkSession
    spec: TableSpec
    source: FilesSource
    root: str
    log: Callable[[str], None] = field(default=lambda _: None)
    _layout: Layout = field(init=False)
    _records: Records = field(init=False)
    _accounts: Accounts = field(init=False)
    _unreadable: dict[SourceFile, str] = field(default_factory=dict[SourceFile, str], init=False)
    _listed: Listing | None = field(default=None, init=False)
    _seen: Listing | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._layout = Layout(self.source.layout, self.source.path_time_zone or self.spec.time_zone)
        self._records = _FORMS[self.source.format](self.spark, self.spec, self.source)
        self._accounts = Accounts(self.spec, self._records)

    # -- Source ----------------------------------------------------------------------------------------------------

    def complete_until(self) -> datetime | None:
        """Return the end of the newest window that has files, and a `_SUCCESS` file beside them if the spec asks for one.

        Being there makes no folder complete that holds several partitions and is longer than a day: it is complete when a
        later one is there. The spec's own `complete_until` goes before all of this.
        """
        files = self._list(keep=True).files
        if not files:
            return None
        if self.source.complete_until:
            return midnight_utc(self.source.complete_until, self.spec.grid.zone)
        if self.source.complete_when == "success_marker":
            folders = {(file.window.end_utc, file.path.rsplit("/", 1)[0]) for file in files}
            return next((end for end, folder in sorted(folders, reverse=True) if is_there(self.spark, f"{folder}/_SUCCESS")), None)
        last = max((file.window for file in files), key=lambda window: window.end_utc)
        if self._layout.unit in (Unit.MONTH, Unit.YEAR) and len(self.spec.grid.covering(last)) > 1:
            return last.start_utc
        return last.end_utc

    def check_schema(self, partitions: Sequence[Partition]) -> list[str]:
        """Hold the spec against the columns of the oldest and the newest file of a launch.

        A single file that differs is found later and fails its own partitions; here it is about the source as a whole.

        Raises:
            SchemaMismatchError: Neither file fits.
        """
        held = self._held_by((self._seen or self._list()).files, partitions)
        files = sorted((f for f in _all_of(held.values()) if f.size_bytes), key=lambda f: (f.window, f))
        if not files:
            return []
        sample = [files[0], files[-1]] if len(files) > 1 else files
        seen = [(file, problems) for file in sample if (problems := self._schema_problems(file)) is not None]
        if seen and all(problems for _, problems in seen):
            file, problems = seen[-1]
            raise SchemaMismatchError(
                f"`{self.spec.key}`: `{file.path}` does not have the spec's columns: {'; '.join(problems)}.",
                state=NOTHING_WRITTEN,
                remedy="Change the columns of the spec, mark a column `optional: true` that files may lack, or fix the export.",
                problems=problems,
            )
        extra = self._extra_columns([file for file, _ in seen])
        return [columns.remark(self.spec, extra)] if extra else []

    def survey(self, partitions: Sequence[Partition]) -> dict[str, Survey]:
        """Return the manifest of each partition: every file that may hold rows of it, with length and modification time.

        Raises:
            WindowError: A partition lies before the history's beginning.
        """
        self._refuse_before_begin(partitions)
        held = self._held_by(self._list().files, partitions)
        digests: dict[int, str] = {}  # where any file may hold any partition, all of them have one and the same tuple
        sizes: dict[int, int] = {}
        surveys: dict[str, Survey] = {}
        for partition in partitions:
            files = held[partition.key]
            if id(files) not in digests:
                lines = (f"{file.path}\t{file.size_bytes}\t{file.modified_micros}\n" for file in files)
                digests[id(files)] = hashlib.sha256("".join(lines).encode()).hexdigest()[:16]
                sizes[id(files)] = int(sum(file.size_bytes * _share(file, partition, len(partitions)) for file in files))
            surveys[partition.key] = Survey(digests[id(files)], sizes[id(files)], files)
        return surveys

    def stage(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Staged[DataFrame]:
        """Prepare the one read of exactly the files that were surveyed."""
        listed = _all_of(surveys[p.key].files for p in partitions)
        apart = all(_lies_in(file.window, p.window) for p in partitions for file in surveys[p.key].files)
        with self._as_surveyed():
            try:
                self._records.look_at([file for file in listed if file not in self._unreadable])
                files = [file for file in listed if self._can_be_read(file)]
                if apart:
                    counts = self._records.count(files) if files else {}
                else:
                    self._accounts.open(files, hourly=any(_is_short(p.window) for p in partitions))
                    counts = {}
                    files = [file for file in files if not self._accounts.findings(file)]  # all that they may hold fails
            except SPARK_FAILURES:
                if self.set_aside_unreadable({p.key: surveys[p.key] for p in partitions}):
                    return self.stage(partitions, surveys)
                raise
            rows = self._records.rows(files) if files else self.spark.createDataFrame([], f"{columns.ddl(self.spec)}, _ba_home bigint")
        position = {
            "kind": "files",
            "root": self.root,
            "files": len(files),
            "bytes": sum(file.size_bytes for file in files),
            "newest_modified_micros": max((file.modified_micros for file in files), default=None),
        }
        wrong = {file: found for file in listed if (found := self._wrong(file, counted_whole=not apart))}
        if apart:
            homes = {f.home: p.key for p in partitions for f in surveys[p.key].files if self._can_be_read(f)}
            scattered = any(sum(map(self._can_be_read, surveys[p.key].files)) > 2 for p in partitions)
            evidence = {p.key: self._evidence(p, surveys[p.key].files, wrong, counts) for p in partitions}
            return Staged(rows, position, evidence, homes, scattered)
        if "_ba_problem" in rows.columns:
            rows = rows.where(F.col("_ba_problem").isNull()).drop("_ba_problem")
        rows = rows.where(columns.inside(self.spec, partitions)).drop("_ba_home")
        belong = self._accounts.rows_by_partition(files, partitions)
        return Staged(rows, position, {p.key: self._evidence(p, surveys[p.key].files, wrong, belong[p.key]) for p in partitions})

    def examine(self, suspects: Mapping[str, Tally], surveys: Mapping[str, Survey]) -> dict[str, list[Finding]]:
        """Name the lines that cannot be read, and the files that lack a column; of files with accounts that is known."""
        found: dict[str, list[Finding]] = {}
        windows = {key: self.spec.grid.partition(key).window for key in suspects}
        lists = {key: [f for f in surveys[key].files if self._can_be_read(f) and _lies_in(f.window, windows[key])] for key in suspects}
        for key, tally in suspects.items():
            if tally.unreadable_rows and lists[key]:
                found[key] = [self._unreadable_lines(tally.unreadable_rows, lists[key])]
        keys = {file: key for key, files in lists.items() for file in files}
        names = [name for name, column in self.spec.columns.items() if not column.optional]
        for name in names:
            files = sorted(file for file, key in keys.items() if name in suspects[key].empty_columns)
            for file in self._records.lacking([name], files).get(name, []) if files else []:
                what = f"`{file.path}` has no column `{name}`; `optional: true` would read it as NULL."
                found.setdefault(keys[file], []).append(Finding(AuditRule.SCHEMA_MATCHES, 0, what))
        return found

    def newest_of_each_time(self) -> list[SourceFile]:
        """Return one file with something in it for each time that names say, in order; all files where they say nothing."""
        files = sorted((file for file in self._list().files if file.size_bytes), key=lambda file: (file.window, file.modified_micros))
        if self._layout.unit is Unit.ANY:
            return files
        return list({file.window: file for file in files}.values())

    def set_aside_unreadable(self, surveys: Mapping[str, Survey]) -> bool:
        """Find out which files cannot be read to their end; later stages report them and leave them out."""
        files = [file for file in _all_of(survey.files for survey in surveys.values()) if self._can_be_read(file)]
        before = len(self._unreadable)
        if not files:
            return False
        with self._as_surveyed():
            if not isinstance(self._records, ParquetFiles):
                self._set_aside_broken(files)
                return len(self._unreadable) > before
            for file, (read, promised) in self._records.rows_until_broken(files).items():
                if reason := self._why_unreadable([file]):
                    where = "at its footer" if promised is None else f"after row {read:,} of {promised:,}"
                    self._unreadable[file] = f"{where} ({reason})"
        return len(self._unreadable) > before

    # -- which files -----------------------------------------------------------------------------------------------

    def _list(self, *, keep: bool = False) -> Listing:
        """List the files of the history.

        Args:
            keep: Whether this listing also serves the next question. A listing that was kept is used once: a survey just
                before a save is always a new one.
        """
        listing = self._listed
        if listing is None:
            begin_utc = midnight_utc(self.source.begin or self.spec.start, self.spec.grid.zone)
            listing = list_files(self.spark, self.spec.key, self.source, self._layout, self.root, begin_utc=begin_utc)
            if listing.strange and self._seen is None:
                self.log(
                    f"`{self.spec.key}`: {len(listing.strange):,} files do not fit the layout `{self.source.layout}` and are left out "
                    f"(first `{min(listing.strange)}`)."
                )
        self._listed, self._seen = listing if keep else None, listing
        return listing

    def _held_by(self, files: Sequence[SourceFile], partitions: Sequence[Partition]) -> dict[str, tuple[SourceFile, ...]]:
        """Return, by partition key, the files that may hold rows of it."""
        ordered = sorted(partitions, key=lambda p: p.window.start_utc)
        starts, ends = [p.window.start_utc for p in ordered], [p.window.end_utc for p in ordered]
        by_window: dict[Window, list[SourceFile]] = {}
        for file in sorted(files):
            by_window.setdefault(file.window, []).append(file)
        if len(by_window) == 1 and ANY_TIME in by_window:
            return dict.fromkeys((p.key for p in partitions), tuple(by_window[ANY_TIME]))
        held: dict[str, list[SourceFile]] = {p.key: [] for p in partitions}
        for window, alike in by_window.items():
            for partition in ordered[bisect_right(ends, window.start_utc) : bisect_left(starts, window.end_utc)]:
                held[partition.key].extend(alike)
        return {key: tuple(sorted(found)) for key, found in held.items()}

    def _refuse_before_begin(self, partitions: Sequence[Partition]) -> None:
        begin = self.source.begin
        early = [p.key for p in partitions if begin and p.window.start_utc < midnight_utc(begin, self.spec.grid.zone)]
        if early:
            raise WindowError(
                f"`{self.spec.key}`: {len(early)} partitions lie before the beginning of this history, `{begin}` (first `{early[0]}`).",
                state=NOTHING_WRITTEN,
                remedy=f"Launch from `{begin}` on, or change `source.begin` in the spec.",
                partitions=early,
            )

    def _can_be_read(self, file: SourceFile) -> bool:
        """Say whether there is anything in a file, and nothing is known against it."""
        return bool(file.size_bytes) and file not in self._unreadable and not self._records.misfits(file)

    # -- evidence --------------------------------------------------------------------------------------------------

    def _evidence(
        self,
        partition: Partition,
        files: Sequence[SourceFile],
        wrong: Mapping[SourceFile, list[Finding]],
        counted: Mapping[int, Count] | int,
    ) -> Evidence:
        """Say of one partition what its files promise, and what is wrong with them.

        Args:
            wrong: Only files with which something is wrong.
            counted: Rows by a file's home; or the partition's rows in all of its files.
        """
        findings = self._gaps(partition, files)
        findings += [finding for file in files if file in wrong for finding in wrong[file]] if wrong else []
        place = files[0].path.rsplit("/", 1)[0] if files else ""
        if isinstance(counted, int):
            return Evidence(counted, tuple(findings), place)
        misread = {file: counted[file.home].misread for file in files if file.home in counted and counted[file.home].misread}
        if misread:
            findings.append(self._unreadable_lines(sum(misread.values()), list(misread)))
        total = sum(counted[file.home].rows for file in files if file.home in counted)
        return Evidence(total, tuple(findings), place)

    def _wrong(self, file: SourceFile, *, counted_whole: bool) -> list[Finding]:
        """Return what is wrong with a file as a whole."""
        if file in self._unreadable:
            return [Finding(AuditRule.FILES_ARE_READABLE, 0, f"`{file.path}` cannot be read {self._unreadable[file]}.")]
        if not file.size_bytes and self.source.format == "parquet":
            return [Finding(AuditRule.FILES_ARE_READABLE, 0, f"`{file.path}` has 0 bytes, which is no Parquet file.")]
        if misfits := self._records.misfits(file):
            return [Finding(AuditRule.SCHEMA_MATCHES, 0, f"`{file.path}`: {'; '.join(misfits)}.")]
        return self._accounts.findings(file) if counted_whole else []

    def _gaps(self, partition: Partition, files: Sequence[SourceFile]) -> list[Finding]:
        """Return what of a partition's time has no file."""
        if self.source.gaps == "allowed":
            return []
        begin_utc = midnight_utc(self.source.begin or self.spec.start, self.spec.grid.zone)
        have, seen = {file.window for file in files}, self._seen
        slots = [s for s in self._layout.slots_in(partition.window) if s.window not in have and s.window.end_utc > begin_utc]
        by_time = [slot for slot in slots if seen and slot.window in seen.by_time]
        lacking = by_time or [slot for slot in slots if not self._has_empty_folder(slot)]
        if not lacking:
            return []
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        path = f"{self.root.rstrip('/')}/{lacking[0].name}"
        if by_time:
            what = f"every file of `{path}`{more} lies outside of `modified_after` and `modified_before`"
        else:
            what = f"there is no {'file' if self._layout.names_files else 'folder'} `{path}`{more}"
        what += "; `gaps: allowed` would take such " + {Unit.DAY: "days for days", Unit.HOUR: "hours for hours"}.get(
            self._layout.unit, "stretches for stretches"
        )
        return [Finding(AuditRule.SOURCE_IS_PRESENT, 0, f"{what} without rows.")]

    def _has_empty_folder(self, slot: Slot) -> bool:
        """Say whether a stretch of time without files has a folder all the same."""
        if self._layout.names_files:
            return False
        return any(is_there(self.spark, f"{self.root.rstrip('/')}/{name}") for name in {slot.name: 0, slot.unpadded: 0})

    # -- a closer look ---------------------------------------------------------------------------------------------

    def _why_unreadable(self, files: Sequence[SourceFile]) -> str | None:
        """Return in a few words why files cannot be read; None if they can."""
        try:
            self._records.read_through(files)
        except SPARK_FAILURES as error:
            if MemoryExhaustedError.is_meant_by(error):  # the file is whole, it is only too much at a time
                raise MemoryExhaustedError(
                    f"`{self.spec.key}`: Spark ran out of memory reading {len(files)} files, the first `{files[0].path}`.",
                    state=NOTHING_WRITTEN,
                    remedy="Give the driver more (`SPARK_DRIVER_MEMORY`), or make chunks smaller (`chunk.max_partitions`).",
                ) from error
            return columns.first_words(error)
        return None

    def _set_aside_broken(self, files: Sequence[SourceFile]) -> None:
        """Find, by halving, the files whose lines cannot be read to the end: compressed ones that were cut off."""
        reason = self._why_unreadable(files) if files else None
        if reason is None:
            return
        if len(files) == 1:
            self._unreadable[files[0]] = f"to its end ({reason})"
            return
        middle = len(files) // 2
        self._set_aside_broken(files[:middle])
        self._set_aside_broken(files[middle:])

    def _unreadable_lines(self, lines: int, files: Sequence[SourceFile]) -> Finding:
        paths = {file.uri: file.path for file in files}
        bad = self._records.numbered(files).where("_ba_problem IS NOT NULL")
        named = bad.orderBy("_ba_file", "_ba_line").limit(EXAMPLES).select("_ba_file", "_ba_line", "_ba_problem").collect()
        examples = tuple(f"{paths[row['_ba_file']]} line {row['_ba_line']}: {row['_ba_problem']}" for row in named)
        what = f"{lines:,} line{'s' if lines > 1 else ''} cannot be read."
        return Finding(AuditRule.VALUES_FIT_THEIR_TYPES, lines, what, examples)

    def _schema_problems(self, file: SourceFile) -> list[str] | None:
        """Return how a file differs from the spec; None if it cannot be opened, which is found again later."""
        try:
            return self._records.schema_problems([file])
        except SPARK_FAILURES:
            return None

    def _extra_columns(self, files: Sequence[SourceFile]) -> list[str]:
        try:
            have = self._records.columns_of(files) if files else []
        except SPARK_FAILURES:
            return []
        return columns.extra_columns(self.spec, have)

    @contextmanager
    def _as_surveyed(self) -> Iterator[None]:
        """Say in our words that a file is gone that the survey had found."""
        try:
            yield
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            raise SourceChangedError(
                f"`{self.spec.key}`: a file of the source was taken away while it was read: {str(error).splitlines()[0]}",
                state=NOTHING_WRITTEN,
                remedy="Launch again when whoever writes the source has finished.",
            ) from error


def _all_of(lists: Iterable[tuple[SourceFile, ...]]) -> list[SourceFile]:
    """Return every file once, in order; partitions that share their files share one tuple."""
    return sorted({file for files in {id(files): files for files in lists}.values() for file in files})


def _share(file: SourceFile, partition: Partition, partitions: int) -> float:
    """Return which part of a file's bytes may be a partition's, for the size of chunks."""
    if file.window == ANY_TIME:
        return 1 / partitions
    start, end = max(file.window.start_utc, partition.window.start_utc), min(file.window.end_utc, partition.window.end_utc)
    return (end - start) / (file.window.end_utc - file.window.start_utc)


def _lies_in(inner: Window, outer: Window) -> bool:
    """Say whether all of one window lies inside another."""
    return outer.start_utc <= inner.start_utc and inner.end_utc <= outer.end_utc


def _is_short(window: Window) -> bool:
    """Say whether a partition is a part of a day; the shortest of days has 23 hours."""
    return window.end_utc - window.start_utc < timedelta(hours=20)
