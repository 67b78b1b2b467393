"""Parquet files: what their footers say is held against the spec before a row of them is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import quoted, values_of_type
from backfill_assets.sources.files import columns
from backfill_assets.sources.files.file_format import Count, FileFormat
from backfill_assets.sources.files.listing import SourceFile, file_id_of_row, paths_of
from backfill_assets.spark.failures import ANSWERED_FAILURES


@dataclass(frozen=True, slots=True)
class _Footer:
    """What the footer of a file says that matters for reading it.

    Args:
        without_zone: Columns with timestamps that have no zone.
        misfits: In words, the columns whose type is not the spec's.
    """

    without_zone: frozenset[str] = frozenset()
    misfits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ParquetFormat(FileFormat):
    """Parquet files with the spec's columns, and perhaps others."""

    spark: SparkSession
    spec: TableSpec
    source: FilesSpec
    _footers: dict[SourceFile, _Footer] = field(default_factory=dict[SourceFile, _Footer], init=False)

    def look_at(self, files: Sequence[SourceFile]) -> None:
        """Note what the footers of files say; by halving, since one schema that can be merged speaks for all files.

        Spark itself would cut a number to a narrower type, and take a time without a zone for UTC, without a word.
        """
        new = [f for f in files if f.size_bytes and f not in self._footers]
        if not new:
            return
        try:
            schema = self._schema_of(new, ignore_corrupt=True)
        except ANSWERED_FAILURES:
            if len(new) > 1:
                middle = len(new) // 2
                self.look_at(new[:middle])
                self.look_at(new[middle:])
            else:
                self._footers[new[0]] = _Footer()  # it cannot be opened, which the read will say
            return
        found = _Footer(
            frozenset(
                f.name
                for f in schema.fields
                if f.dataType.simpleString() == "timestamp_ntz" and f.name in self.spec.columns
            ),
            tuple(columns.type_problems(self.spec, schema, self.source.timestamps_without_zone)),
        )
        self._footers.update(dict.fromkeys(new, found))

    def misfits(self, file: SourceFile) -> tuple[str, ...]:
        """Return the columns whose type is not the spec's."""
        return self._footers.get(file, _Footer()).misfits

    def rows(self, files: Sequence[SourceFile]) -> DataFrame:
        """Return the typed rows of files, each with where it is kept."""
        return self._read(files)

    def count(self, files: Sequence[SourceFile]) -> dict[int, Count]:
        """Count the rows of each file in its footer."""
        return {file_id: Count(rows) for file_id, rows in self._by_file(files, through=False).items()}

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
        """Return the columns of all files together."""
        return self._schema_of(files).names

    def schema_problems(self, files: Sequence[SourceFile]) -> list[str]:
        """Return how the columns of files differ from the spec's."""
        schema = self._schema_of(files)
        return columns.missing_columns(self.spec, set(schema.names)) + columns.type_problems(
            self.spec, schema, self.source.timestamps_without_zone
        )

    def lacking(self, names: Sequence[str], files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """Return, by column, those of some files that do not have it.

        Spark fills a column that a file lacks with the column's default, and leaves the values of one that has it. Of a
        file with values, not all can be two defaults one after the other.
        """
        lacking = {name: list(files) for name in names}
        for number in (0, 1):
            asked = {name: files for name, files in lacking.items() if files}
            if asked:
                lacking |= self._filled_with(number, asked)
        return lacking

    def _filled_with(self, number: int, asked: Mapping[str, list[SourceFile]]) -> dict[str, list[SourceFile]]:
        """Return, by column, the files in which it has one of its two defaults in every row."""
        defaults = {name: values_of_type(self.spec.columns[name].type)[number] for name in asked}
        schema = self.spark.createDataFrame([], columns.ddl(self.spec)).schema
        fields = [
            StructField(f.name, f.dataType, True, {"EXISTS_DEFAULT": defaults[f.name]})
            for f in schema.fields
            if f.name in asked
        ]
        raw = (
            self.spark.read.schema(StructType(fields))
            .option("mergeSchema", "false")
            .option("pathGlobFilter", "*")
            .parquet(*paths_of(sorted({file for files in asked.values() for file in files})))
        )
        others = [
            F.count_if(~F.col(quoted(name)).eqNullSafe(F.expr(default))).alias(f"_ba_others_{i}")
            for i, (name, default) in enumerate(defaults.items())
        ]
        found = {row["file"]: row for row in raw.groupBy(file_id_of_row().alias("file")).agg(*others).collect()}
        return {
            name: [f for f in files if f.file_id in found and not found[f.file_id][f"_ba_others_{i}"]]
            for i, (name, files) in enumerate(asked.items())
        }

    # -- how -------------------------------------------------------------------------------------------------------

    def _read(self, files: Sequence[SourceFile], *, ignore_corrupt: bool = False) -> DataFrame:
        """Return the typed rows of files; those that have timestamps without a zone are read as such."""
        alike: dict[frozenset[str], list[SourceFile]] = {}
        for file in files:
            alike.setdefault(self._footers.get(file, _Footer()).without_zone, []).append(file)
        return reduce(
            DataFrame.unionByName, [self._read_alike(group, naive, ignore_corrupt) for naive, group in alike.items()]
        )

    def _read_alike(self, files: Sequence[SourceFile], without_zone: frozenset[str], ignore_corrupt: bool) -> DataFrame:
        reader = self.spark.read.schema(columns.ddl(self.spec, without_zone)).option("mergeSchema", "false")
        reader = reader.option("ignoreCorruptFiles", str(ignore_corrupt).lower()).option("pathGlobFilter", "*")
        raw = reader.parquet(*paths_of(files))
        zone = self.source.timestamps_without_zone or "UTC"
        typed = [
            (
                F.to_utc_timestamp(F.col(quoted(name)).cast("timestamp"), zone)
                if name in without_zone
                else F.col(quoted(name))
            ).alias(name)
            for name in self.spec.columns
        ]
        return raw.select(*typed, file_id_of_row().alias("_ba_file_id"))

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

    def _schema_of(self, files: Sequence[SourceFile], *, ignore_corrupt: bool = False) -> StructType:
        """Return the columns of all files together."""
        reader = self.spark.read.option("mergeSchema", "true").option("ignoreCorruptFiles", str(ignore_corrupt).lower())
        return reader.parquet(*paths_of(files)).schema
