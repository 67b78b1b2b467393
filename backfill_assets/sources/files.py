"""History in Parquet or JSON-lines files below dated folders."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import reduce

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from backfill_assets.core.audit import AuditRule, Evidence, Finding
from backfill_assets.core.engine import Staged, Survey
from backfill_assets.core.origins import FilesSource
from backfill_assets.core.partitions import Partition, quoted
from backfill_assets.core.spec import TableSpec
from backfill_assets.core.tallies import Tally
from backfill_assets.core.windows import days_of, first_day, midnight_utc
from backfill_assets.errors import NOTHING_WRITTEN, MemoryExhaustedError, SchemaMismatchError, SourceChangedError
from backfill_assets.sources import columns, json_lines
from backfill_assets.sources.listing import SourceFile, home_of_row, is_there, list_files, literal_path

EXAMPLES = 3
_FIRST_LINES = 1000
_SPARK_FAILURES = (PySparkException, Py4JJavaError)


@dataclass(frozen=True, slots=True)
class _Footer:
    """What the footer of a Parquet file says that matters for reading it.

    Args:
        without_zone: Columns with timestamps that have no zone.
        misfits: In words, the columns whose type is not the spec's.
    """

    without_zone: frozenset[str] = frozenset()
    misfits: tuple[str, ...] = ()


@dataclass(slots=True)
class FilesBelowFolders:
    """Files in dated folders below `root`; each folder holds the rows of one local day.

    Args:
        root: Folder; any URI that Spark reads.
        log: Called with one sentence whenever a person would want to know.
    """

    spark: SparkSession
    spec: TableSpec
    source: FilesSource
    root: str
    log: Callable[[str], None] = field(default=lambda _: None)
    _unreadable: dict[SourceFile, str] = field(default_factory=dict[SourceFile, str], init=False)
    _listed: list[SourceFile] | None = field(default=None, init=False)
    _seen: list[SourceFile] | None = field(default=None, init=False)
    _footers: dict[SourceFile, _Footer] = field(default_factory=dict[SourceFile, _Footer], init=False)

    # -- Source ----------------------------------------------------------------------------------------------------

    def complete_until(self) -> datetime | None:
        """Return the end of the newest day that has files, and a `_SUCCESS` file beside them if the spec asks for one."""
        folders = {(file.day, file.path.rsplit("/", 1)[0]) for file in self._list(keep=True)}
        if self.source.complete_when == "success_marker":
            marked = (day for day, folder in sorted(folders, reverse=True) if is_there(self.spark, f"{folder}/_SUCCESS"))
            last = next(marked, None)
        else:
            last = max((day for day, _ in folders), default=None)
        if last is None:
            return None
        return midnight_utc(date.fromordinal(last.toordinal() + 1), self.spec.grid.zone)

    def check_schema(self, partitions: Sequence[Partition]) -> list[str]:
        """Hold the spec against the columns of the oldest and the newest file of a launch.

        A single file that differs is found later and fails its own partition; here it is about the source as a whole.

        Raises:
            SchemaMismatchError: Neither file fits.
        """
        wanted = {day for partition in partitions for day in days_of(date.fromisoformat(partition.key), self.spec.grain)}
        files = sorted((f for f in self._seen or self._list() if f.day in wanted and f.size_bytes), key=lambda f: f.day)
        if not files:
            return []
        sample = [files[0], files[-1]] if len(files) > 1 else files
        seen = [(file, problems) for file in sample if (problems := self._schema_problems([file])) is not None]
        if seen and all(problems for _, problems in seen):
            file, problems = seen[-1]
            raise SchemaMismatchError(
                f"`{self.spec.key}`: `{file.path}` does not have the spec's columns: {'; '.join(problems)}.",
                state=NOTHING_WRITTEN,
                remedy="Change the columns of the spec, mark a column `optional: true` that files may lack, or fix the export.",
                problems=problems,
            )
        extra = self._extra_columns(sample)
        return [columns.remark(self.spec, extra)] if extra else []

    def survey(self, partitions: Sequence[Partition]) -> dict[str, Survey]:
        """Return the manifest of each partition: its files with length and modification time."""
        by_first: dict[date, list[SourceFile]] = {}
        for file in self._list():
            by_first.setdefault(first_day(file.day, self.spec.grain), []).append(file)
        surveys: dict[str, Survey] = {}
        for partition in partitions:
            files = tuple(sorted(by_first.get(date.fromisoformat(partition.key), [])))
            digest = hashlib.sha256()
            for file in files:
                digest.update(f"{file.path}\t{file.size_bytes}\t{file.modified_micros}\n".encode())
            surveys[partition.key] = Survey(digest.hexdigest()[:16], sum(f.size_bytes for f in files), files)
        return surveys

    def stage(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Staged[DataFrame]:
        """Prepare the one read of exactly the files that were surveyed."""
        with self._as_surveyed():
            self._look_at_footers([file for p in partitions for file in surveys[p.key].files])
            manifest = {p.key: [f for f in surveys[p.key].files if self._can_be_read(f)] for p in partitions}
            files = [file for key in manifest for file in manifest[key]]
            try:
                raw_rows, misread = self._raw_rows(files)
            except _SPARK_FAILURES:
                if self.set_aside_unreadable({p.key: surveys[p.key] for p in partitions}):
                    return self.stage(partitions, surveys)
                raise
            rows = self._rows(files)
        homes = {file.home: key for key, listed in manifest.items() for file in listed}
        evidence = {p.key: self._evidence(p, surveys[p.key], raw_rows, misread) for p in partitions}
        position = {
            "kind": "files",
            "root": self.root,
            "files": len(files),
            "bytes": sum(file.size_bytes for file in files),
            "newest_modified_micros": max((file.modified_micros for file in files), default=None),
        }
        scattered = any(len(listed) > 2 for listed in manifest.values())
        return Staged(rows, position, evidence, homes, scattered)

    def examine(self, suspects: Mapping[str, Tally], surveys: Mapping[str, Survey]) -> dict[str, list[Finding]]:
        """Name the lines that cannot be read, and the files that lack a column."""
        found: dict[str, list[Finding]] = {}
        for key, tally in suspects.items():
            if tally.unreadable_rows:
                found[key] = [self._unreadable_lines(tally.unreadable_rows, surveys[key].files)]
        for name in [name for name, column in self.spec.columns.items() if not column.optional]:
            files = {f: key for key, t in suspects.items() if name in t.empty_columns for f in surveys[key].files if self._can_be_read(f)}
            for file in self._lacking(name, sorted(files)):
                what = f"`{file.path}` has no column `{name}`; `optional: true` would read it as NULL."
                found.setdefault(files[file], []).append(Finding(AuditRule.SCHEMA_MATCHES, 0, what))
        return found

    def set_aside_unreadable(self, surveys: Mapping[str, Survey]) -> bool:
        """Find out which files cannot be read to their end; later stages report them and leave them out."""
        files = [f for survey in surveys.values() for f in survey.files if self._can_be_read(f)]
        before = len(self._unreadable)
        if not files:
            return False
        with self._as_surveyed():
            if self.source.format == "json":
                self._set_aside_broken(files)
                return len(self._unreadable) > before
            read = self._rows_by_file(self._parquet(files, ignore_corrupt=True), through=True)
            promised = self._rows_by_file(self._parquet(files, ignore_corrupt=True), through=False)
            for file in files:
                if file.home in promised and read.get(file.home, 0) == promised[file.home]:
                    continue
                reason = self._why_unreadable([file])
                if reason:
                    got = read.get(file.home, 0)
                    where = f"after row {got:,} of {promised[file.home]:,}" if file.home in promised else "at its footer"
                    self._unreadable[file] = f"{where} ({reason})"
        return len(self._unreadable) > before

    # -- listing ---------------------------------------------------------------------------------------------------

    def _list(self, *, keep: bool = False) -> list[SourceFile]:
        """List every file below the root that lies in a dated folder.

        Args:
            keep: Whether this listing also serves the next question. A listing that was kept is used once: a survey just
                before a save is always a new one.
        """
        files = self._listed if self._listed is not None else list_files(self.spark, self.spec.key, self.source.layout, self.root)
        self._listed, self._seen = files if keep else None, files
        return files

    # -- reading ---------------------------------------------------------------------------------------------------

    def _rows(self, files: Sequence[SourceFile]) -> DataFrame:
        """Return the typed rows of files, each with where it is kept and why it cannot be read."""
        if not files:
            return self.spark.createDataFrame([], f"{columns.ddl(self.spec)}, _ba_home bigint")
        if self.source.format == "json":
            raw = json_lines.read(self.spark, self.spec, [literal_path(f.path) for f in files])
            return json_lines.typed(self.spec, raw, self.source.timestamps_without_zone).withColumn("_ba_home", home_of_row())
        return self._parquet(files)

    def _parquet(self, files: Sequence[SourceFile], *, ignore_corrupt: bool = False) -> DataFrame:
        """Return the typed rows of files; those that have timestamps without a zone are read as such."""
        alike: dict[frozenset[str], list[SourceFile]] = {}
        for file in files:
            alike.setdefault(self._footers.get(file, _Footer()).without_zone, []).append(file)
        return reduce(DataFrame.unionByName, [self._parquet_alike(group, naive, ignore_corrupt) for naive, group in alike.items()])

    def _parquet_alike(self, files: Sequence[SourceFile], without_zone: frozenset[str], ignore_corrupt: bool) -> DataFrame:
        reader = self.spark.read.schema(columns.ddl(self.spec, without_zone)).option("mergeSchema", "false")
        reader = reader.option("ignoreCorruptFiles", str(ignore_corrupt).lower()).option("pathGlobFilter", "*")
        raw = reader.parquet(*(literal_path(file.path) for file in files))
        zone = self.source.timestamps_without_zone or "UTC"
        typed = [
            (F.to_utc_timestamp(F.col(quoted(name)).cast("timestamp"), zone) if name in without_zone else F.col(quoted(name))).alias(name)
            for name in self.spec.columns
        ]
        return raw.select(*typed, home_of_row().alias("_ba_home"))

    def _look_at_footers(self, files: Sequence[SourceFile]) -> None:
        """Note what the footers of files say; by halving, since a schema that can be merged speaks for all of its files.

        Spark itself would cut a number to a narrower type, and take a time without a zone for UTC, without a word.
        """
        new = [f for f in files if f.size_bytes and f not in self._footers]
        if not new or self.source.format == "json":
            return
        try:
            schema = self._schema_of([f.path for f in new], ignore_corrupt=True)
        except _SPARK_FAILURES:
            if len(new) > 1:
                middle = len(new) // 2
                self._look_at_footers(new[:middle])
                self._look_at_footers(new[middle:])
            else:
                self._footers[new[0]] = _Footer()  # it cannot be opened, which the read will say
            return
        found = _Footer(
            frozenset(f.name for f in schema.fields if f.dataType.simpleString() == "timestamp_ntz" and f.name in self.spec.columns),
            tuple(columns.type_problems(self.spec, schema, self.source.timestamps_without_zone)),
        )
        self._footers.update(dict.fromkeys(new, found))

    def _can_be_read(self, file: SourceFile) -> bool:
        """Say whether there is anything in a file, and nothing is known against it."""
        return bool(file.size_bytes) and file not in self._unreadable and not self._footers.get(file, _Footer()).misfits

    # -- evidence --------------------------------------------------------------------------------------------------

    def _raw_rows(self, files: Sequence[SourceFile]) -> tuple[dict[int, int], dict[int, int]]:
        """Return the rows of each file as the files themselves say, and how many of them would be misread.

        Rows are counted in Parquet footers, or as lines that are not blank.
        """
        if not files:
            return {}, {}
        if self.source.format == "json":
            lines = json_lines.count_lines(self.spark, [literal_path(file.path) for file in files])
            return {home: rows for home, (rows, _) in lines.items()}, {home: misread for home, (_, misread) in lines.items() if misread}
        return self._rows_by_file(self._parquet(files), through=False), {}

    def _rows_by_file(self, rows: DataFrame, *, through: bool) -> dict[int, int]:
        """Count rows by file: from the footers alone, or `through` every value."""
        home = F.col("_ba_home").alias("file")
        counted = (
            rows.select(home, F.xxhash64(*(F.col(quoted(n)) for n in self.spec.columns)).alias("hash")) if through else rows.select(home)
        )
        each = [F.count(F.lit(1)).alias("rows")]
        if through:
            each.append(F.max("hash").alias("through"))
        return {row["file"]: int(row["rows"]) for row in counted.groupBy("file").agg(*each).collect()}

    def _evidence(self, partition: Partition, survey: Survey, raw_rows: Mapping[int, int], misread: Mapping[int, int]) -> Evidence:
        """Say of one partition what its files promise, and what is wrong with them."""
        findings: list[Finding] = []
        have = {file.day for file in survey.files}
        lacking = [day for day in days_of(date.fromisoformat(partition.key), self.spec.grain) if day not in have]
        if lacking and self.source.gaps == "refused":
            lacking = [day for day in lacking if not self._has_empty_folder(day)]
        if lacking and self.source.gaps == "refused":
            what = (
                f"there is no folder `{self._folder(lacking[0])}`"
                + (f" and {len(lacking) - 1} more" if len(lacking) > 1 else "")
                + "; `gaps: allowed` would take such days for days without rows."
            )
            findings.append(Finding(AuditRule.SOURCE_IS_PRESENT, 0, what))
        for file in survey.files:
            if file in self._unreadable:
                what = f"`{file.path}` cannot be read {self._unreadable[file]}."
                findings.append(Finding(AuditRule.FILES_ARE_READABLE, 0, what))
            elif not file.size_bytes and self.source.format == "parquet":
                what = f"`{file.path}` has 0 bytes, which is no Parquet file."
                findings.append(Finding(AuditRule.FILES_ARE_READABLE, 0, what))
            elif misfits := self._footers.get(file, _Footer()).misfits:
                findings.append(Finding(AuditRule.SCHEMA_MATCHES, 0, f"`{file.path}`: {'; '.join(misfits)}."))
        if doubtful := [file for file in survey.files if file.home in misread]:
            findings.append(self._unreadable_lines(sum(misread[file.home] for file in doubtful), doubtful))
        total = sum(raw_rows.get(file.home, 0) for file in survey.files)
        folders = sorted({file.path.rsplit("/", 1)[0] for file in survey.files})
        return Evidence(total, tuple(findings), place=folders[0] if folders else "")

    def _folder(self, day: date) -> str:
        """Return the folder of a day, as the layout would name it."""
        named = self.source.layout.format(year=f"{day:%Y}", month=f"{day:%m}", day=f"{day:%d}", date=day.isoformat())
        return f"{self.root.rstrip('/')}/{named}"

    def _has_empty_folder(self, day: date) -> bool:
        """Say whether a day without files has a folder all the same."""
        unpadded = self.source.layout.format(year=day.year, month=day.month, day=day.day, date=day.isoformat())
        return is_there(self.spark, self._folder(day)) or is_there(self.spark, f"{self.root.rstrip('/')}/{unpadded}")

    # -- a closer look ---------------------------------------------------------------------------------------------

    def _why_unreadable(self, files: Sequence[SourceFile]) -> str | None:
        """Return in a few words why files cannot be read; None if they can."""
        try:
            if self.source.format == "json":
                json_lines.count_lines(self.spark, [literal_path(file.path) for file in files])
            else:
                self._rows_by_file(self._parquet(files), through=True)
        except _SPARK_FAILURES as error:
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
        named = json_lines.name_lines(
            self.spark, self.spec, [literal_path(file.path) for file in files], self.source.timestamps_without_zone, EXAMPLES
        )
        examples = tuple(f"{paths.get(uri, uri)} line {number}: {problem}" for uri, number, problem in named)
        what = f"{lines:,} line{'s' if lines > 1 else ''} cannot be read."
        return Finding(AuditRule.VALUES_FIT_THEIR_TYPES, lines, what, examples)

    def _schema_problems(self, files: Sequence[SourceFile]) -> list[str] | None:
        """Return how files differ from the spec; None if they cannot be opened, which is found again later."""
        try:
            if self.source.format == "json":
                return columns.missing_columns(self.spec, self._first_fields(files))
            schema = self._schema_of([file.path for file in files])
        except _SPARK_FAILURES:
            return None
        return columns.missing_columns(self.spec, set(schema.names)) + columns.type_problems(
            self.spec, schema, self.source.timestamps_without_zone
        )

    def _extra_columns(self, files: Sequence[SourceFile]) -> list[str]:
        try:
            if self.source.format == "json":
                have = sorted(self._first_fields(files))
            else:
                have = self._schema_of([file.path for file in files]).names
        except _SPARK_FAILURES:
            return []
        return columns.extra_columns(self.spec, have)

    def _first_fields(self, files: Sequence[SourceFile]) -> set[str]:
        """Return the fields of the first lines of some JSON files."""
        paths = [literal_path(file.path) for file in files]
        return set[str]().union(*json_lines.fields_of(self.spark, self.spec, paths, first_lines=_FIRST_LINES).values())

    def _schema_of(self, paths: Sequence[str], *, ignore_corrupt: bool = False) -> StructType:
        """Return the columns of all Parquet files together."""
        reader = self.spark.read.option("mergeSchema", "true").option("ignoreCorruptFiles", str(ignore_corrupt).lower())
        return reader.parquet(*(literal_path(path) for path in paths)).schema

    def _lacking(self, name: str, files: Sequence[SourceFile]) -> list[SourceFile]:
        """Return which files lack a column, by halving: a merged schema that lacks it speaks for all of its files.

        A JSON file lacks it if it has lines, and none of them has the field.
        """
        if not files:
            return []
        if self.source.format == "json":
            fields = json_lines.fields_of(self.spark, self.spec, [literal_path(file.path) for file in files])
            return [file for file in files if file.uri in fields and self.spec.field_of(name) not in fields[file.uri]]
        try:
            names = self._schema_of([file.path for file in files]).names
        except _SPARK_FAILURES:
            names = [name] if len(files) > 1 else []  # two of them differ: look at fewer
            if not names:
                return []
        if name not in names:
            return list(files)
        if len(files) == 1:
            return []
        middle = len(files) // 2
        return self._lacking(name, files[:middle]) + self._lacking(name, files[middle:])

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
