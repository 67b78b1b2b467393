"""Parquet files: what their footers say is held against the spec before a row of them is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import column_list, quoted
from backfill_assets.sources.files import columns
from backfill_assets.sources.files.columns import FileColumn
from backfill_assets.sources.files.file_format import Count, FileFormat
from backfill_assets.sources.files.footers import Footer, by_spark, footers_here, footers_of
from backfill_assets.sources.files.int96 import finer_than_microseconds
from backfill_assets.sources.files.listing import SourceFile, file_id_of_row, paths_of
from backfill_assets.sources.files.odd_columns import is_odd, read_as, typed
from backfill_assets.spark.failures import ANSWERED_FAILURES, first_words
from backfill_assets.spark.local_disk import seen_as_spark_does

_NOT_OPENED = ("CANNOT_READ_FILE_FOOTER", "UNABLE_TO_INFER_SCHEMA", "PATH_NOT_FOUND")
"""Marks of a failure of Spark that is not about the types of columns, but about the file."""


@dataclass(frozen=True, slots=True)
class _Footer:
    """What the footer of a file says that matters for reading it.

    Args:
        odd: Columns that are read otherwise than as the spec's type, with the type that the file says.
        misfits: In words, the columns whose type or name is not the spec's.
        names: The spec's columns that the file has; None if that was not asked of it alone.
    """

    odd: frozenset[tuple[str, str]] = frozenset()
    misfits: tuple[str, ...] = ()
    names: frozenset[str] | None = None


_FEW = 4
"""Files of which single footers are read without asking which of them make it necessary."""


@dataclass(frozen=True, slots=True)
class ParquetFormat(FileFormat):
    """Parquet files with the spec's columns, and perhaps others."""

    spark: SparkSession
    spec: TableSpec
    source: FilesSpec
    _footers: dict[SourceFile, _Footer] = field(default_factory=dict[SourceFile, _Footer], init=False)
    _rows: dict[SourceFile, int] = field(default_factory=dict[SourceFile, int], init=False)

    def look_at(self, files: Sequence[SourceFile]) -> None:
        """Note the facts of the footers of files.

        Spark itself would cut a number to a narrower type, and take a time without a zone for UTC, without a word.
        Footers on this disk are read here. For files elsewhere one schema of Spark's speaks for many. If Spark has no
        schema, or it leaves a doubt, their footers are read here too.
        """
        new = [f for f in files if f.size_bytes and f not in self._footers]
        here = footers_here(self.spark, new)
        self._note(here)
        for file, footer in here.items():
            if file in self._rows and (finer := self._finer(file, footer)):
                self._footers[file] = _Footer(misfits=(finer,))
                del self._rows[file]
        self._note_each(self._doubtful([f for f in new if f not in here]))

    def _note(self, footers: Mapping[SourceFile, Footer]) -> None:
        """Note footers that were read here; most files have the columns of others."""
        alike: dict[tuple[FileColumn, ...], _Footer] = {}
        for file, footer in footers.items():
            if footer.columns not in alike:
                alike[footer.columns] = self._footer(footer.columns, alone=True)
            self._footers[file] = alike[footer.columns]
            if footer.rows == footer.promised:
                self._rows[file] = footer.rows
                continue
            what = f"its footer says {footer.promised} rows, and its row groups have {footer.rows}: it is damaged"
            self._footers[file] = _Footer(misfits=(what,))

    def _note_each(self, files: Sequence[SourceFile]) -> None:
        """Note the footers of files; of a file whose footer cannot be read here, the columns that Spark names."""
        read = footers_of(self.spark, files) if files else {}
        self._note(read)
        self._footers.update({f: self._footer(self._without_footer(f), alone=True) for f in files if f not in read})

    def _finer(self, file: SourceFile, footer: Footer) -> str | None:
        """Return in words that a file's INT96 is finer than a timestamp; None if it is not, or is to be cut."""
        names = [name for name in footer.int96 if columns.own_name(self.spec, name) in self.spec.columns]
        path = seen_as_spark_does(self.spark, file.path)
        return finer_than_microseconds(path, names) if names and path and self.source.nanoseconds != "cut" else None

    def _doubtful(self, files: Sequence[SourceFile]) -> Sequence[SourceFile]:
        """Note what one schema can say of many files; return those of which it cannot, found by halving."""
        if not files or self._note_alike(files):
            return []
        while len(files) > _FEW:
            halves = files[: len(files) // 2], files[len(files) // 2 :]
            unclear = [half for half in halves if not self._note_alike(half)]
            if len(unclear) != 1:
                return files if unclear else []
            (files,) = unclear
        return files

    def _note_alike(self, files: Sequence[SourceFile]) -> bool:
        """Note the columns that files have by Spark's word; say whether it has one, and it leaves no doubt."""
        try:
            found = by_spark(self.spark, files, ignore_corrupt=True)
        except ANSWERED_FAILURES:
            return False
        if columns.leave_doubt(self.spec, columns.matched(self.spec, found)[0]):
            return False
        self._footers.update(dict.fromkeys(files, self._footer(found, alone=False)))
        return True

    def _footer(self, found: Sequence[FileColumn] | str | None, *, alone: bool) -> _Footer:
        if found is None:
            return _Footer()  # it cannot be opened, which the read will say
        if isinstance(found, str):
            return _Footer(misfits=(found,))
        kinds, problems = columns.matched(self.spec, found)
        misfits = problems + columns.type_problems(self.spec, kinds, self.source.timestamps_without_zone)
        odd = frozenset((name, kind) for name, kind in kinds.items() if is_odd(kind, self.spec.columns[name].type))
        return _Footer(odd, tuple(misfits), frozenset(kinds) if alone else None)

    def _without_footer(self, file: SourceFile) -> Sequence[FileColumn] | str | None:
        try:
            return by_spark(self.spark, [file])
        except ANSWERED_FAILURES as error:
            if any(mark in str(error) for mark in _NOT_OPENED):
                return None
            return f"its columns cannot be told ({first_words(error)}); write it without columns of such types"

    def misfits(self, file: SourceFile) -> tuple[str, ...]:
        """Return the columns whose type is not the spec's."""
        return self._footers.get(file, _Footer()).misfits

    def rows(self, files: Sequence[SourceFile]) -> DataFrame:
        """Return the typed rows of files, each with where it is kept."""
        return self._read(files)

    def count(self, files: Sequence[SourceFile]) -> dict[int, Count]:
        """Count the rows of each file in its footer."""
        by_file = self._by_file([file for file in files if file not in self._rows], through=False)
        return {f.file_id: Count(by_file.get(f.file_id, 0)) for f in files} | self.counted(files)

    def counted(self, files: Sequence[SourceFile]) -> dict[int, Count]:
        """Return what the footers say that were read here."""
        return {file.file_id: Count(self._rows[file]) for file in files if file in self._rows}

    def numbered(self, files: Sequence[SourceFile]) -> DataFrame:
        """Return the typed rows of files with `_ba_file`; Parquet has no lines."""
        uris = self.spark.createDataFrame(
            [(file.file_id, file.uri) for file in files], "_ba_file_id bigint, _ba_file string"
        )
        return self._read(files).join(F.broadcast(uris), "_ba_file_id").withColumn("_ba_line", F.lit(0))

    def read_through(self, files: Sequence[SourceFile]) -> None:
        """Read every value of files."""
        self._by_file(files, through=True)

    def rows_until_broken(self, files: Sequence[SourceFile]) -> dict[SourceFile, tuple[int, int | None]]:
        """Return each file that cannot be read to its end: how many rows can be read, and how many it promises."""
        read = self._by_file(files, through=True, ignore_corrupt=True)
        promised = self._by_file(files, through=False, ignore_corrupt=True)
        return {
            f: (read.get(f.file_id, 0), promised.get(f.file_id))
            for f in files
            if f.file_id not in promised or read.get(f.file_id, 0) != promised[f.file_id]
        }

    def columns_of(self, files: Sequence[SourceFile]) -> list[str]:
        """Return the columns of all files together, by the spec's names where it has them."""
        each = (found for found in self._columns_of_all(files) if not isinstance(found, str | None))
        return list(dict.fromkeys(columns.own_name(self.spec, column.name) for found in each for column in found))

    def schema_problems(self, files: Sequence[SourceFile]) -> list[str]:
        """Return how the columns of files differ from the spec's."""
        problems: list[str] = []
        for found in self._columns_of_all(files):
            footer = self._footer(found, alone=True)
            problems += columns.missing_columns(self.spec, set(footer.names)) if footer.names is not None else []
            problems += footer.misfits
        return list(dict.fromkeys(problems))

    def _columns_of_all(self, files: Sequence[SourceFile]) -> list[Sequence[FileColumn] | str | None]:
        """Return the columns of files: Spark's word for all, unless footers cost nothing or Spark leaves a doubt."""
        read = footers_here(self.spark, files)
        if len(read) < len(files):
            try:
                found = by_spark(self.spark, files)
                if not columns.leave_doubt(self.spec, columns.matched(self.spec, found)[0]):
                    return [found]
            except ANSWERED_FAILURES:
                if any(self._without_footer(file) is None for file in files if file not in read):
                    raise
            read = footers_of(self.spark, files)
        return [read[file].columns if file in read else self._without_footer(file) for file in files]

    def lacking(self, names: Sequence[str], files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """Return, by column, those of some files that do not have it."""
        noted = {file: self._footers.get(file, _Footer()) for file in files}
        self._note_each([file for file, footer in noted.items() if footer.names is None and not footer.misfits])
        known = {file: have for file in files if (have := self._footers[file].names) is not None}
        return {name: [file for file, have in known.items() if name not in have] for name in names}

    # -- how -------------------------------------------------------------------------------------------------------

    def _read(self, files: Sequence[SourceFile], *, ignore_corrupt: bool = False) -> DataFrame:
        """Return the typed rows of files; those whose columns are odd in the same way are read together."""
        alike: dict[frozenset[tuple[str, str]], list[SourceFile]] = {}
        for file in files:
            alike.setdefault(self._footers.get(file, _Footer()).odd, []).append(file)
        frames = [self._read_alike(group, dict(odd), ignore_corrupt) for odd, group in alike.items()]
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)

    def _read_alike(self, files: Sequence[SourceFile], odd: Mapping[str, str], ignore_corrupt: bool) -> DataFrame:
        kinds = {name: odd.get(name, column.type) for name, column in self.spec.columns.items()}
        reader = self.spark.read.schema(column_list(read_as(kinds))).option("mergeSchema", "false")
        reader = reader.option("ignoreCorruptFiles", str(ignore_corrupt).lower()).option("pathGlobFilter", "*")
        raw = reader.parquet(*paths_of(files)).withColumn("_ba_file_id", file_id_of_row())
        zone = self.source.timestamps_without_zone or "UTC"
        return typed(self.spec, raw, odd, zone=zone, nanoseconds=self.source.nanoseconds)

    def _by_file(self, files: Sequence[SourceFile], *, through: bool, ignore_corrupt: bool = False) -> dict[int, int]:
        """Count rows by file: from the footers alone, or `through` every value."""
        if not files:
            return {}
        rows, file_id = self._read(files, ignore_corrupt=ignore_corrupt), F.col("_ba_file_id").alias("file")
        counted = (
            rows.select(file_id, F.xxhash64(*(F.col(quoted(n)) for n in self.spec.columns)).alias("hash"))
            if through
            else rows.select(file_id)
        )
        each = [F.count(F.lit(1)).alias("rows")]
        if through:
            each.append(F.max("hash").alias("through"))
        return {row["file"]: int(row["rows"]) for row in counted.groupBy("file").agg(*each).collect()}
