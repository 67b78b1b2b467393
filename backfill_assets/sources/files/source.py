"""`kind: files`: history in files. Which may hold a partition, what they say of themselves, and the one read of them.

A file whose time lies inside one partition is that partition's: all of its rows are accounted for there. Where a file
may hold rows of several partitions, rows belong where their event time says, and `FileTallies` counts each file over
all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.calendar.layouts import Layout
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import AuditRule, Evidence, Finding
from backfill_assets.core.history.ports import Scan, Source
from backfill_assets.core.schema.compare import Observed
from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.spec.history import history_of
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import inside
from backfill_assets.core.state.surveys import Survey
from backfill_assets.core.state.tallies import Tally
from backfill_assets.errors import NOTHING_WRITTEN, SourceChangedError, WindowError
from backfill_assets.sources.context import SourceContext
from backfill_assets.sources.files import columns
from backfill_assets.sources.files.completeness import Completeness
from backfill_assets.sources.files.csv_records import CsvFormat
from backfill_assets.sources.files.evidence import FilesEvidence, unreadable_lines
from backfill_assets.sources.files.file_format import Count, FileFormat
from backfill_assets.sources.files.file_tallies import FileTallies
from backfill_assets.sources.files.json_lines import JsonLinesFormat
from backfill_assets.sources.files.listing import Listing, SourceFile, list_files, refuse_copies
from backfill_assets.sources.files.manifest import Manifest, all_files, lies_in, manifest_of, surveys_of
from backfill_assets.sources.files.observed import observed_columns
from backfill_assets.sources.files.parquet import ParquetFormat
from backfill_assets.sources.files.schema_check import columns_remarks
from backfill_assets.sources.files.unreadable_files import UNSEEN, UnreadableFiles
from backfill_assets.spark.failures import ANSWERED_FAILURES

FORMATS: dict[str, Callable[[SparkSession, TableSpec, FilesSpec], FileFormat]] = {
    "parquet": ParquetFormat,
    "json": JsonLinesFormat,
    "csv": CsvFormat,
}


def build(source: FilesSpec, context: SourceContext) -> FilesSource:
    """Return the files that a spec names."""
    top = context.landing_path("").rstrip("/").rpartition("/")[0]
    return FilesSource(context.spark, context.spec, source, context.landing_path(source.path), context.log, top=top)


@dataclass(slots=True)
class FilesSource(Source[DataFrame]):
    """Files below `root`, whose folders or names say when their rows happened; or do not.

    Args:
        root: Folder; any URI that Spark reads.
        log: Called with one sentence whenever a person would want to know.
        now: The instant that it is.
        top: The lakehouse's root: above it nobody looks for a table that the files may be of.
    """

    spark: SparkSession
    spec: TableSpec
    source: FilesSpec
    root: str
    log: Callable[[str], None] = field(default=lambda _: None)
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    top: str | None = None
    _layout: Layout = field(init=False)
    _format: FileFormat = field(init=False)
    _file_tallies: FileTallies = field(init=False)
    _unreadable: UnreadableFiles = field(init=False)
    _completeness: Completeness = field(init=False)
    _evidence: FilesEvidence = field(init=False)
    _listed: Listing | None = field(default=None, init=False)
    _seen: Listing | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._layout = Layout(self.source.layout, self.source.path_time_zone or self.spec.time_zone)
        self._format = FORMATS[self.source.format](self.spark, self.spec, self.source)
        self._file_tallies = FileTallies(self.spec, self._format)
        about = self.spark, self.spec, self.source, self.root, self._layout
        self._completeness = Completeness(*about, self.log, self.now)
        self._unreadable = UnreadableFiles(self.spec.key, self._format)
        self._evidence = FilesEvidence(
            *about,
            format_=self._format,
            tallies=self._file_tallies,
            unreadable=self._unreadable,
            completeness=self._completeness,
        )

    def complete_until(self) -> datetime | None:
        """Return until when the files are complete: by the spec, by markers, or by being there; never for a future."""
        return self._completeness.until(self._list(keep=True).every)

    def check_schema(self, partitions: Sequence[Partition]) -> list[str]:
        """Hold the spec against the columns of the oldest and the newest file of a launch.

        A single file that differs is found later and fails its own partitions; here it is about the source as a whole.

        Raises:
            SchemaMismatchError: Neither file fits.
        """
        by_key = manifest_of((self._seen or self._list()).files, partitions)
        return columns_remarks(self.spec, self._format, all_files(by_key.values()))

    def survey(self, partitions: Sequence[Partition]) -> dict[str, Survey]:
        """Return the manifest of each partition: every file that may hold rows of it, with length and time of change.

        Raises:
            WindowError: A partition lies before the history's beginning.
            SourceRepeatedError: A file of these partitions lies beside a copy of itself.
        """
        self._refuse_before_begin(partitions)
        refuse_copies(self.spec.key, all_files((manifest := manifest_of(self._list().every, partitions)).values()))
        return surveys_of(manifest, partitions)

    def foretell(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Mapping[str, Evidence]:
        """Say which folders and files are not as they should be, and how many rows footers on this disk name."""
        manifest: Manifest = {p.key: surveys[p.key].content for p in partitions}
        self._completeness.look_at(listed := all_files(manifest.values()))
        with self._as_surveyed():
            self._format.look_at([file for file in listed if file not in self._unreadable])
        wrong = {file: found for file in listed if (found := self._evidence.of_file(file, counted_whole=False))}
        counts, told = self._format.counted(listed), dict[str, Evidence]()
        for p in partitions:
            files = manifest[p.key]
            evidence = self._evidence.of_partition(p, files, seen=self._seen, wrong=wrong, counted=counts)
            is_known = all(file.file_id in counts and lies_in(file.window, p.window) for file in files)
            told[p.key] = evidence if is_known else replace(evidence, raw_rows=None)
        return told

    def scan(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Scan[DataFrame]:
        """Prepare the one read of exactly the files that were surveyed."""
        manifest: Manifest = {p.key: surveys[p.key].content for p in partitions}
        listed = all_files(manifest.values())
        self._completeness.look_at(listed)
        by_file = all(lies_in(file.window, p.window) for p in partitions for file in manifest[p.key])
        with self._as_surveyed():
            try:
                files, counts = self._counted(listed, by_file=by_file)
            except ANSWERED_FAILURES:
                if self.set_aside_unreadable({p.key: surveys[p.key] for p in partitions}):
                    return self.scan(partitions, surveys)
                raise
            rows = self._rows(files)
        wrong = {file: found for file in listed if (found := self._evidence.of_file(file, counted_whole=not by_file))}
        if by_file:
            return self._scan_by_file(partitions, manifest, rows, self._position(files), wrong=wrong, counts=counts)
        if "_ba_problem" in rows.columns:
            rows = rows.where(F.col("_ba_problem").isNull()).drop("_ba_problem")
        rows = rows.where(inside(self.spec, partitions)).drop("_ba_file_id")
        belong = self._file_tallies.rows_by_partition(files, partitions)
        if early := self._evidence.rows_in_no_partition(files):
            self.log(early)
        evidence = {
            p.key: self._evidence.of_partition(p, manifest[p.key], seen=self._seen, wrong=wrong, counted=belong[p.key])
            for p in partitions
        }
        return Scan(rows, self._position(files), evidence)

    def observed_columns(self) -> list[Observed]:
        """Return the columns of the files, from the oldest day on, each time they change; of CSV none."""
        return observed_columns(self.spark, self.spec, self.source, self._list().files)

    def examine(self, suspects: Mapping[str, Tally], surveys: Mapping[str, Survey]) -> dict[str, list[Finding]]:
        """Name the lines that cannot be read, and the files that lack a column; what was counted whole is known."""
        windows = {key: self.spec.grid.partition(key).window for key in suspects}
        lists = {
            key: [f for f in surveys[key].content if self._can_be_read(f) and lies_in(f.window, windows[key])]
            for key in suspects
        }
        with_lines = {key: lists[key] for key, tally in suspects.items() if tally.unreadable_rows}
        found = {key: [finding] for key, finding in unreadable_lines(self._format, with_lines).items()}
        keys = {file: key for key, files in lists.items() for file in files}
        names = [name for name, column in self.spec.columns.items() if not column.optional]
        for name in names:
            files = sorted(file for file, key in keys.items() if name in suspects[key].empty_columns)
            for file in self._format.lacking([name], files).get(name, []) if files else []:
                what = f"`{file.path}` has no column `{name}`{self.spec.way_to_lack(name)}."
                found.setdefault(keys[file], []).append(Finding(AuditRule.SCHEMA_MATCHES, 0, what))
        return found

    def set_aside_unreadable(self, surveys: Mapping[str, Survey]) -> bool:
        """Find out which files cannot be read to their end; later scans report them and leave them out."""
        files = [file for file in all_files(survey.content for survey in surveys.values()) if self._can_be_read(file)]
        with self._as_surveyed():
            return bool(files) and self._unreadable.find(files)

    # -- which files -----------------------------------------------------------------------------------------------

    def _list(self, *, keep: bool = False) -> Listing:
        """List the files of the history.

        Args:
            keep: Whether this listing also serves the next question. A listing that was kept is used once: a survey
                just before a save is always a new one.
        """
        listing = self._listed
        if listing is None:
            listing = list_files(
                self.spark, self.spec.key, self.source, self._layout, self.root, grid=self.spec.grid, top=self.top
            )
            self._unreadable.reasons.update(dict.fromkeys(listing.unseen, UNSEEN))
            if listing.strange and self._seen is None:
                self.log(
                    f"`{self.spec.key}`: {len(listing.strange):,} files do not fit the layout `{self.source.layout}` "
                    f"and are left out (first `{min(listing.strange)}`)."
                )
        self._listed, self._seen = listing if keep else None, listing
        return listing

    def _refuse_before_begin(self, partitions: Sequence[Partition]) -> None:
        begin, begin_utc = self.source.begin, history_of(self.spec).start_utc
        early = [p.key for p in partitions if p.window.start_utc < begin_utc]
        if early:
            raise WindowError(
                f"`{self.spec.key}`: {len(early)} partitions lie before the beginning of this history, `{begin}` "
                f"(first `{early[0]}`).",
                state=NOTHING_WRITTEN,
                remedy=f"Launch from `{begin}` on, or change `source.begin` in the spec.",
                partitions=early,
            )

    def _can_be_read(self, file: SourceFile) -> bool:
        """Say whether there is anything in a file, and nothing is known against it."""
        return bool(file.size_bytes) and file not in self._unreadable and not self._format.misfits(file)

    # -- the read --------------------------------------------------------------------------------------------------

    def _counted(self, listed: Sequence[SourceFile], *, by_file: bool) -> tuple[list[SourceFile], Mapping[int, Count]]:
        """Count the rows of files; return those that are to be read, and their rows by the file's id.

        Args:
            by_file: Whether each file is one partition's; if not, files are counted over all of their rows, and one
                with which something is wrong is not read: all that it may hold fails.
        """
        self._format.look_at([file for file in listed if file not in self._unreadable])
        files = [file for file in listed if self._can_be_read(file)]
        if by_file:
            return files, self._format.count(files) if files else {}
        self._file_tallies.open(files)
        return [file for file in files if not self._file_tallies.findings(file)], {}

    def _rows(self, files: Sequence[SourceFile]) -> DataFrame:
        if files:
            return self._format.rows(files)
        return self.spark.createDataFrame([], f"{columns.ddl(self.spec)}, _ba_file_id bigint")

    def _position(self, files: Sequence[SourceFile]) -> dict[str, Any]:
        return {
            "kind": "files",
            "root": self.root,
            "files": len(files),
            "bytes": sum(file.size_bytes for file in files),
            "newest_modified_micros": max((file.modified_micros for file in files), default=None),
        }

    def _scan_by_file(
        self,
        partitions: Sequence[Partition],
        manifest: Manifest,
        rows: DataFrame,
        position: dict[str, Any],
        *,
        wrong: Mapping[SourceFile, list[Finding]],
        counts: Mapping[int, Count],
    ) -> Scan[DataFrame]:
        """Return the read of files each of which is one partition's."""
        read = {p.key: [file for file in manifest[p.key] if self._can_be_read(file)] for p in partitions}
        partition_by_file = {file.file_id: key for key, files in read.items() for file in files}
        scattered = any(len(files) > 2 for files in read.values())
        evidence = {
            p.key: self._evidence.of_partition(p, manifest[p.key], seen=self._seen, wrong=wrong, counted=counts)
            for p in partitions
        }
        misread = {key: files for key, files in read.items() if any(counts[file.file_id].misread for file in files)}
        for key, finding in unreadable_lines(self._format, misread).items():
            evidence[key] = replace(evidence[key], findings=(*evidence[key].findings, finding))
        return Scan(rows, position, evidence, partition_by_file, scattered)

    @contextmanager
    def _as_surveyed(self) -> Iterator[None]:
        """Say plainly that a file is gone that the survey had found."""
        try:
            yield
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            raise SourceChangedError(
                f"`{self.spec.key}`: a file of the source was taken away while it was read: "
                f"{str(error).splitlines()[0]}",
                state=NOTHING_WRITTEN,
                remedy="Launch again when whoever writes the source has finished.",
            ) from error
