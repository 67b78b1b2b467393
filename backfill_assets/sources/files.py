"""History in Parquet or JSON-lines files below dated folders."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from urllib.parse import unquote

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from backfill_assets.core.audit import AuditRule, Evidence, Finding
from backfill_assets.core.engine import Staged, Survey
from backfill_assets.core.partitions import Partition, quoted
from backfill_assets.core.spec import FilesSource, TableSpec
from backfill_assets.core.tallies import Tally
from backfill_assets.core.windows import days_of, first_day, midnight_utc
from backfill_assets.errors import NOTHING_WRITTEN, SchemaMismatchError, SourceMissingError
from backfill_assets.sources import json_lines

EXAMPLES = 3
_FIELD_PATTERNS = {"year": r"(?P<year>\d{4})", "month": r"(?P<month>\d{1,2})", "day": r"(?P<day>\d{1,2})", "date": r"(?P<date>\d{4}-\d{2}-\d{2})"}
_GLOB = re.compile(r"([\[\]{}*?\\])")


@dataclass(frozen=True, slots=True, order=True)
class SourceFile:
    """One file of the manifest.

    Args:
        path: As Spark names it, unescaped.
        day: The local day of its folder.
        modified_micros: Microseconds since 1970.
    """

    path: str
    day: date
    size_bytes: int
    modified_micros: int


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
    _unreadable: dict[str, str] = field(default_factory=dict[str, str], init=False)

    # -- Source ----------------------------------------------------------------------------------------------------

    def complete_until(self) -> datetime | None:
        """Return the end of the newest day that has a folder with files."""
        days = {file.day for file in self._list()}
        if not days:
            return None
        last = max(days)
        return midnight_utc(date.fromordinal(last.toordinal() + 1), self.spec.grid.zone)

    def check_schema(self, partitions: Sequence[Partition]) -> list[str]:
        """Hold the spec against the columns of the oldest and the newest file of a launch.

        A single file that differs is found later and fails its own partition; here it is about the source as a whole.

        Raises:
            SchemaMismatchError: Neither file fits.
        """
        wanted = {day for partition in partitions for day in days_of(partition.first, self.spec.grain)}
        files = sorted((f for f in self._list() if f.day in wanted and f.size_bytes), key=lambda f: f.day)
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
        return [f"`{self.spec.key}`: the files also have {extra}, which the spec does not name; left out."] if extra else []

    def survey(self, partitions: Sequence[Partition]) -> dict[str, Survey]:
        """Return the manifest of each partition: its files with length and modification time."""
        by_first: dict[date, list[SourceFile]] = {}
        for file in self._list():
            by_first.setdefault(first_day(file.day, self.spec.grain), []).append(file)
        surveys: dict[str, Survey] = {}
        for partition in partitions:
            files = tuple(sorted(by_first.get(partition.first, [])))
            digest = hashlib.sha256()
            for file in files:
                digest.update(f"{file.path}\t{file.size_bytes}\t{file.modified_micros}\n".encode())
            surveys[partition.key] = Survey(digest.hexdigest()[:16], sum(f.size_bytes for f in files), files)
        return surveys

    def stage(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Staged[DataFrame]:
        """Prepare the one read of exactly the files that were surveyed."""
        manifest = {p.key: [f for f in surveys[p.key].files if f.path not in self._unreadable] for p in partitions}
        files = [file for key in manifest for file in manifest[key]]
        homes = {file.path: key for key, listed in manifest.items() for file in listed}
        raw_rows = self._raw_rows(files)
        evidence = {p.key: self._evidence(p, surveys[p.key], raw_rows) for p in partitions}
        position = {
            "kind": "files",
            "root": self.root,
            "files": len(files),
            "bytes": sum(file.size_bytes for file in files),
            "newest_modified_micros": max((file.modified_micros for file in files), default=None),
        }
        scattered = any(len(listed) > 2 for listed in manifest.values())  # noqa: PLR2004 (two files for each partition)
        return Staged(self._rows(files), position, evidence, homes, scattered)

    def examine(self, suspects: Mapping[str, Tally], surveys: Mapping[str, Survey]) -> dict[str, list[Finding]]:
        """Name the lines that cannot be read, and the files that lack a column."""
        found: dict[str, list[Finding]] = {}
        if self.source.format == "json":
            for key, tally in suspects.items():
                if tally.unreadable_rows:
                    found[key] = [self._unreadable_lines(tally, surveys[key].files)]
            return found
        for key, tally in suspects.items():
            if tally.unreadable_rows:
                what = f"{tally.unreadable_rows:,} rows have a timestamp without a zone, and `timestamps_without_zone` does not say which."
                found.setdefault(key, []).append(Finding(AuditRule.VALUES_FIT_THEIR_TYPES, tally.unreadable_rows, what))
        for name in [name for name, column in self.spec.columns.items() if not column.optional]:
            files = {f.path: key for key, t in suspects.items() if name in t.empty_columns for f in surveys[key].files}
            for path in self._lacking(name, sorted(files)):
                what = f"`{path}` has no column `{name}`; `optional: true` would read it as NULL."
                found.setdefault(files[path], []).append(Finding(AuditRule.SCHEMA_MATCHES, 0, what))
        return found

    def set_aside_unreadable(self, surveys: Mapping[str, Survey]) -> bool:
        """Find out which files cannot be read to their end; later stages report them and leave them out."""
        files = [f for survey in surveys.values() for f in survey.files if f.path not in self._unreadable]
        if self.source.format != "parquet":
            return False
        read = self._rows_by_file(self._parquet(files, ignore_corrupt=True), through=True)
        promised = self._rows_by_file(self._parquet(files, ignore_corrupt=True), through=False)
        before = len(self._unreadable)
        for file in files:
            if file.path in promised and read.get(file.path, 0) == promised[file.path]:
                continue
            reason = self._why_unreadable(file)
            if reason:
                got = read.get(file.path, 0)
                where = f"after row {got:,} of {promised[file.path]:,}" if file.path in promised else "at its footer"
                self._unreadable[file.path] = f"{where} ({reason})"
        return len(self._unreadable) > before

    # -- listing ---------------------------------------------------------------------------------------------------

    def _list(self) -> list[SourceFile]:
        """List every file below the root that lies in a dated folder."""
        try:
            listed = (
                self.spark.read.format("binaryFile")
                .option("recursiveFileLookup", "true")
                .load(_literal(self.root))
                .select("path", "length", F.unix_micros("modificationTime").alias("modified"))
                .collect()
            )
        except AnalysisException as error:
            raise SourceMissingError(
                f"`{self.spec.key}`: the folder `{self.root}` is not there, or cannot be listed.",
                state=NOTHING_WRITTEN,
                remedy="Put the files there, or change `source.path` in the spec (relative paths are below `landing/`).",
                path=self.root,
            ) from error
        pattern = _folder_pattern(self.source.layout)
        files: list[SourceFile] = []
        for row in listed:
            day = _day_of(pattern, row["path"][len(_as_listed(self.root, row["path"])) :])
            if day is not None:
                files.append(SourceFile(row["path"], day, int(row["length"]), int(row["modified"])))
        return files

    # -- reading ---------------------------------------------------------------------------------------------------

    def _rows(self, files: Sequence[SourceFile]) -> DataFrame:
        """Return the typed rows of files, each with where it is kept and why it cannot be read."""
        if self.source.format == "json":
            raw = json_lines.read(self.spark, self.spec, [_literal(f.path) for f in files])
            return json_lines.typed(self.spec, raw, self.source.timestamps_without_zone).withColumn("_ba_home", _home())
        if not files:
            return self.spark.createDataFrame([], f"{_ddl(self.spec)}, _ba_home string")
        return self._typed_parquet(self._parquet(files)).withColumn("_ba_home", _home())

    def _parquet(self, files: Sequence[SourceFile], *, ignore_corrupt: bool = False) -> DataFrame:
        reader = self.spark.read.schema(_ddl(self.spec, self._without_zone(files))).option("mergeSchema", "false")
        reader = reader.option("ignoreCorruptFiles", str(ignore_corrupt).lower()).option("pathGlobFilter", "*")
        return reader.parquet(*(_literal(file.path) for file in files))

    def _typed_parquet(self, raw: DataFrame) -> DataFrame:
        """Give timestamps without a zone the one that the spec names; without one, no row of theirs can be read."""
        zone = self.source.timestamps_without_zone
        naive = [field.name for field in raw.schema.fields if field.dataType.simpleString() == "timestamp_ntz"]
        columns = []
        for name in self.spec.columns:
            value = _column(name)
            if name in naive:
                value = F.to_utc_timestamp(value.cast("timestamp"), zone or "UTC")
            columns.append(value.alias(name))
        if naive and zone is None:
            problem = F.lit(f"timestamps without a zone in {', '.join(naive)}, and `timestamps_without_zone` does not say which")
            columns.append(problem.alias("_ba_problem"))
        return raw.select(*columns)

    def _without_zone(self, files: Sequence[SourceFile]) -> frozenset[str]:
        """Return the columns that the newest of some files has as timestamps without a zone."""
        if not files:
            return frozenset()
        try:
            schema = self.spark.read.parquet(_literal(max(files, key=lambda f: f.day).path)).schema
        except PySparkException:
            return frozenset()
        return frozenset(f.name for f in schema.fields if f.dataType.simpleString() == "timestamp_ntz" and f.name in self.spec.columns)

    # -- evidence --------------------------------------------------------------------------------------------------

    def _raw_rows(self, files: Sequence[SourceFile]) -> dict[str, int]:
        """Return the rows of each file as the files themselves say: Parquet footers, or lines that are not blank."""
        if not files:
            return {}
        if self.source.format == "json":
            return json_lines.count_lines(self.spark, [_literal(file.path) for file in files])
        try:
            return self._rows_by_file(self._parquet(files), through=False)
        except PySparkException:
            return self._rows_by_file(self._parquet(files, ignore_corrupt=True), through=False)

    def _rows_by_file(self, rows: DataFrame, *, through: bool) -> dict[str, int]:
        """Count rows by file: from the footers alone, or `through` every value."""
        counted = rows.select(_home().alias("file"), F.xxhash64(*(_column(n) for n in self.spec.columns)).alias("hash")) if through else rows.select(_home().alias("file"))
        each = [F.count(F.lit(1)).alias("rows")]
        if through:
            each.append(F.max("hash").alias("through"))
        return {row["file"]: int(row["rows"]) for row in counted.groupBy("file").agg(*each).collect()}

    def _evidence(self, partition: Partition, survey: Survey, raw_rows: Mapping[str, int]) -> Evidence:
        """Say of one partition what its files promise, and what is wrong with them."""
        findings: list[Finding] = []
        have = {file.day for file in survey.files}
        lacking = [day for day in days_of(partition.first, self.spec.grain) if day not in have]
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
            if file.path in self._unreadable:
                what = f"`{file.path}` cannot be read {self._unreadable[file.path]}."
                findings.append(Finding(AuditRule.FILES_ARE_READABLE, 0, what))
        total = sum(raw_rows.get(file.path, 0) for file in survey.files)
        folders = sorted({file.path.rsplit("/", 1)[0] for file in survey.files})
        return Evidence(total, tuple(findings), place=folders[0] if folders else "")

    def _folder(self, day: date) -> str:
        """Return the folder of a day, as the layout would name it."""
        named = self.source.layout.format(year=f"{day:%Y}", month=f"{day:%m}", day=f"{day:%d}", date=day.isoformat())
        return f"{self.root.rstrip('/')}/{named}"

    def _has_empty_folder(self, day: date) -> bool:
        """Say whether a day without files has a folder all the same."""
        try:
            self.spark.read.format("binaryFile").load(_literal(self._folder(day))).select("path").collect()
        except AnalysisException:
            return False
        return True

    # -- a closer look ---------------------------------------------------------------------------------------------

    def _why_unreadable(self, file: SourceFile) -> str | None:
        """Return in a few words why a file cannot be read; None if it can."""
        try:
            self._rows_by_file(self._parquet([file]), through=True)
        except PySparkException as error:
            return _first_words(error)
        return None

    def _unreadable_lines(self, tally: Tally, files: Iterable[SourceFile]) -> Finding:
        examples = json_lines.name_lines(
            self.spark, self.spec, [_literal(file.path) for file in files], self.source.timestamps_without_zone, EXAMPLES
        )
        what = f"{tally.unreadable_rows:,} line{'s' if tally.unreadable_rows > 1 else ''} cannot be read."
        return Finding(AuditRule.VALUES_FIT_THEIR_TYPES, tally.unreadable_rows, what, tuple(examples))

    def _schema_problems(self, files: Sequence[SourceFile]) -> list[str] | None:
        """Return how files differ from the spec; None if they cannot be opened, which is found again later."""
        try:
            schema = self._schema_of([file.path for file in files])
        except PySparkException:
            return None
        have = {f.name: f.dataType.simpleString() for f in schema.fields}
        problems = [f"`{n}` is missing" for n, c in self.spec.columns.items() if n not in have and not c.optional]
        if self.source.format == "parquet":
            problems += [
                f"`{name}` is `{have[name]}`, not `{column.type}`"
                for name, column in self.spec.columns.items()
                if name in have and not _reads_as(have[name], column.type)
            ]
            if self.source.timestamps_without_zone is None:
                problems += [
                    f"`{name}` has timestamps without a zone, and `source.timestamps_without_zone` does not say which"
                    for name in self.spec.columns
                    if have.get(name) == "timestamp_ntz"
                ]
        return problems

    def _extra_columns(self, files: Sequence[SourceFile]) -> list[str]:
        try:
            return [f.name for f in self._schema_of([file.path for file in files]).fields if f.name not in self.spec.columns]
        except PySparkException:
            return []

    def _schema_of(self, paths: Sequence[str]) -> StructType:
        named = [_literal(path) for path in paths]
        if self.source.format == "json":
            return self.spark.read.option("samplingRatio", 0.1).json(named).schema
        return self.spark.read.option("mergeSchema", "true").parquet(*named).schema

    def _lacking(self, name: str, paths: Sequence[str]) -> list[str]:
        """Return which files lack a column, by halving: a merged schema that lacks it speaks for all of its files."""
        if not paths or self.source.format == "json":
            return []
        try:
            merged = self._schema_of(paths)
        except PySparkException:
            return []
        if name not in merged.names:
            return list(paths)
        if len(paths) == 1:
            return []
        middle = len(paths) // 2
        return self._lacking(name, paths[:middle]) + self._lacking(name, paths[middle:])


def _home() -> Column:
    """Return the file of a row, unescaped, as the listing names it."""
    return F.col("_metadata.file_path")


def _column(name: str) -> Column:
    return F.col(quoted(name))


def _ddl(spec: TableSpec, without_zone: frozenset[str] = frozenset()) -> str:
    """Return the spec's columns as a schema in DDL."""
    return ", ".join(
        f"{quoted(name)} {'timestamp_ntz' if name in without_zone else column.type}" for name, column in spec.columns.items()
    )


def _literal(path: str) -> str:
    """Escape what Hadoop would take for a pattern."""
    return _GLOB.sub(r"\\\1", path)


def _folder_pattern(layout: str) -> re.Pattern[str]:
    """Return a pattern for the part of a path below the root: the dated folders, then the file."""
    parts = re.split(r"{(\w+)}", layout)
    body = "".join(_FIELD_PATTERNS[part] if i % 2 else re.escape(part) for i, part in enumerate(parts))
    return re.compile(rf"^/?{body}/(?:.*/)?[^/]+$")


def _day_of(pattern: re.Pattern[str], below_root: str) -> date | None:
    """Return the day of a file's folder; None if it lies in no dated folder."""
    match = pattern.match(below_root)
    if match is None:
        return None
    found = match.groupdict()
    try:
        if found.get("date"):
            return date.fromisoformat(found["date"])
        return date(int(found["year"]), int(found["month"]), int(found["day"]))
    except ValueError:
        return None


def _as_listed(root: str, listed: str) -> str:
    """Return the root in the form in which Spark lists the files below it: with the storage's scheme."""
    root = root.rstrip("/")
    for form in (root, f"file:{root}", f"file://{root}"):
        if listed.startswith(form + "/"):
            return form
    bare = unquote(re.sub(r"^\w+:/*", "/", root))
    return listed[: listed.index(bare) + len(bare)]


def _reads_as(found: str, wanted: str) -> bool:
    """Say whether Spark reads a Parquet column of one type as another without losing anything."""
    if found == wanted or (found, wanted) == ("timestamp_ntz", "timestamp"):
        return True
    wider = {"tinyint": 1, "smallint": 2, "int": 3, "bigint": 4}
    if found in wider and wanted in wider:
        return wider[found] < wider[wanted]
    if (found, wanted) == ("float", "double") or (found in ("tinyint", "smallint", "int") and wanted == "double"):
        return True
    decimals = [re.fullmatch(r"decimal\((\d+),(\d+)\)", kind) for kind in (found, wanted)]
    if decimals[0] and decimals[1]:
        (p, s), (wanted_p, wanted_s) = (tuple(map(int, d.groups())) for d in decimals if d)
        return wanted_s >= s and wanted_p - wanted_s >= p - s
    return False


def _first_words(error: Exception) -> str:
    """Return the innermost reason of a Spark failure, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    words = (causes or lines)[-1 if causes else 0]
    return re.sub(r"\s+", " ", words)[:200]
