"""JSON lines: every line is a row in the account, whether it can be read or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import quoted
from backfill_assets.sources.files import text_values
from backfill_assets.sources.files.columns import missing_columns, parents
from backfill_assets.sources.files.file_format import Count, FileFormat
from backfill_assets.sources.files.json_text import NO_OBJECT, as_written, misread, numbers_as_texts, without_mark
from backfill_assets.sources.files.listing import SourceFile, file_id_of_row, paths_of
from backfill_assets.sources.files.text_values import decoded, is_row, numbered_lines, preview
from backfill_assets.spark.expressions import any_of, collected

_FIRST_LINES = 1000

_STRICTLY = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "_ba_corrupt",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
"""How Spark is told to parse: as the standard says, which it does not do by itself."""


def read(spark: SparkSession, spec: TableSpec, paths: Sequence[str]) -> DataFrame:
    """Return the lines of files, each field as text; a line that is no JSON object has only `_ba_corrupt`."""
    schema = _text_schema(spec)
    if not paths:
        return spark.createDataFrame(
            [], ", ".join([*(f"{quoted(name)} string" for name in spec.columns), "_ba_corrupt string"])
        )
    raw = spark.read.schema(schema).options(**_STRICTLY).json(list(paths))
    return raw.select(*_columns_of(spec), "_ba_corrupt") if _has_paths(spec) else raw


def typed(spec: TableSpec, raw: DataFrame, zone: str | None) -> DataFrame:
    """Convert fields, as `read` returns them, to the spec's types; `_ba_problem` says what could not be."""
    corrupt = F.col("_ba_corrupt")
    broken = F.when(corrupt.isNotNull(), F.concat(F.lit(NO_OBJECT), preview(corrupt)))
    return text_values.typed(spec, raw.withColumn("_ba_broken", broken).drop("_ba_corrupt"), zone)


def count_lines(
    spark: SparkSession, spec: TableSpec, paths: Sequence[str], encoding: str | None
) -> dict[int, tuple[int, int]]:
    """Count the lines that are not blank, and those of them that `read` would misread; by the file's id."""
    lines = spark.read.text(list(paths)).select(file_id_of_row().alias("file"), _line(encoding))
    counted = (
        lines.where(is_row("value"))
        .groupBy("file")
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.count_if(misread(_paths(spec), "value", encoding).isNotNull()).alias("misread"),
        )
    )
    return {row["file"]: (int(row["rows"]), int(row["misread"])) for row in counted.collect()}


def fields_of(
    spark: SparkSession,
    spec: TableSpec,
    paths: Sequence[str],
    *,
    encoding: str | None,
    first_lines: int | None = None,
) -> dict[str, set[str]]:
    """Return the fields that any line of a file has, or any of its first lines; by file, as Spark names it.

    Fields of objects that the spec looks into are named by their path.
    """
    lines = spark.read.text(list(paths)).select(F.col("_metadata.file_path").alias("file"), _line(encoding))
    lines = lines if first_lines is None else lines.limit(first_lines)
    outer = sorted({parent for name, c in spec.columns.items() for parent in parents(spec.field_of(name), c.path)})
    inside = [_keys_below(path) for path in outer]
    keys = F.concat(
        *(F.coalesce(part, F.array().cast("array<string>")) for part in (F.json_object_keys("value"), *inside))
    )
    fields: dict[str, set[str]] = {}
    for row in collected(lines.select("file", F.explode(keys).alias("field")).distinct()):
        fields.setdefault(row["file"], set()).add(row["field"])
    return fields


def _line(encoding: str | None) -> Column:
    return decoded(F.col("value"), encoding).alias("value")


def _keys_below(path: str) -> Column:
    """Return the paths of the fields of an object inside a line."""
    return F.transform(
        F.json_object_keys(F.get_json_object("value", f"$.{path}")), lambda key: F.concat(F.lit(f"{path}."), key)
    )


@dataclass(frozen=True, slots=True)
class JsonLinesFormat(FileFormat):
    """Files of JSON lines, plain or packed."""

    spark: SparkSession
    spec: TableSpec
    source: FilesSpec

    def look_at(self, files: Sequence[SourceFile]) -> None:
        """Do nothing: every line names its own fields."""

    def misfits(self, file: SourceFile) -> tuple[str, ...]:
        """Return nothing: which fields there are is said by the lines."""
        del file
        return ()

    def rows(self, files: Sequence[SourceFile]) -> DataFrame:
        """Return the typed rows of files, each with where it is kept and why it cannot be read."""
        zone = self.source.timestamps_without_zone
        if self.source.encoding is None:
            raw = read(self.spark, self.spec, paths_of(files))
            return typed(self.spec, raw, zone).withColumn("_ba_file_id", file_id_of_row())
        line = decoded(F.col("value"), self.source.encoding).alias("_ba_text")
        lines = self.spark.read.text(paths_of(files)).select(line, file_id_of_row().alias("_ba_file_id"))
        return typed_lines(self.spec, lines, zone, self.source.encoding).drop("_ba_text")

    def count(self, files: Sequence[SourceFile]) -> dict[int, Count]:
        """Count the lines of each file that are not blank."""
        counts = count_lines(self.spark, self.spec, paths_of(files), self.source.encoding)
        return {file.file_id: Count(*counts.get(file.file_id, (0,))) for file in files}

    def numbered(self, files: Sequence[SourceFile]) -> DataFrame:
        """Return the typed rows of files with `_ba_file` and `_ba_line`."""
        lines = numbered_lines(self.spark, files, self.source.encoding)
        return typed_lines(self.spec, lines, self.source.timestamps_without_zone, self.source.encoding)

    def read_through(self, files: Sequence[SourceFile]) -> None:
        """Read files to their end."""
        self.count(files)

    def columns_of(self, files: Sequence[SourceFile]) -> list[str]:
        """Return the fields of the first lines of files."""
        fields = self._fields_of(files, first_lines=_FIRST_LINES)
        return sorted(set[str]().union(*fields.values()))

    def schema_problems(self, files: Sequence[SourceFile]) -> list[str]:
        """Return which columns the first lines of files lack, and in front why the very first cannot be read, if so."""
        problems = missing_columns(self.spec, set(self.columns_of(files)))
        return [*self._why_no_object(files), *problems] if problems and files else problems

    def _why_no_object(self, files: Sequence[SourceFile]) -> list[str]:
        """Return why the first line of files that is not blank cannot be read; nothing if it can."""
        lines = (
            self.spark.read.text(paths_of(files)).select(_line(self.source.encoding)).where(is_row("value")).limit(1)
        )
        why = misread(_paths(self.spec), "value", self.source.encoding).alias("why")
        return [f"its first line is {row['why']}" for row in collected(lines.select(why).where("why IS NOT NULL"))]

    def lacking(self, names: Sequence[str], files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """Return, by column, the files that have lines, and none of them with the field."""
        fields = self._fields_of(files) if files else {}
        return {
            name: [file for file in files if file.uri in fields and self.spec.field_of(name) not in fields[file.uri]]
            for name in names
        }

    def _fields_of(self, files: Sequence[SourceFile], *, first_lines: int | None = None) -> dict[str, set[str]]:
        paths, encoding = paths_of(files), self.source.encoding
        return fields_of(self.spark, self.spec, paths, encoding=encoding, first_lines=first_lines)


def typed_lines(spec: TableSpec, lines: DataFrame, zone: str | None, encoding: str | None = None) -> DataFrame:
    """Parse the lines in `_ba_text` that are not blank, as `read` and `typed` would; other columns are kept.

    Args:
        zone: Of timestamps that have none.
        encoding: In which the lines were written, for messages; None: UTF-8.
    """
    text = without_mark("_ba_text")
    parsed = lines.where(is_row("_ba_text")).select(
        "*", F.from_json(numbers_as_texts(text), _text_schema(spec), _STRICTLY).alias("_ba_fields")
    )
    fields = parsed.select(*lines.columns, *_columns_of(spec, "_ba_fields"), "_ba_fields._ba_corrupt")
    paths = {
        name: path for name, path in zip(spec.columns, _paths(spec), strict=True) if spec.columns[name].type == "string"
    }
    texts = {name: as_written(text, path, F.col(quoted(name))) for name, path in paths.items()}
    is_lost = any_of(value.isNull() & F.col(quoted(name)).isNotNull() for name, value in texts.items())
    broken = F.coalesce(
        misread(_paths(spec), "_ba_text", encoding),
        F.when(F.col("_ba_corrupt").isNotNull(), F.concat(F.lit(NO_OBJECT), preview(F.col("_ba_text")))),
        F.when(
            is_lost, F.concat(F.lit("an object that cannot be taken as it is written: "), preview(F.col("_ba_text")))
        ),
    )
    raw = fields.withColumns({**texts, "_ba_broken": broken}).drop("_ba_corrupt")
    return text_values.typed(spec, raw, zone)


def _paths(spec: TableSpec) -> list[list[str]]:
    """Return the path of each column's field."""
    return [column.path.split(".") if column.path else [name] for name, column in spec.columns.items()]


def _has_paths(spec: TableSpec) -> bool:
    return any(column.path for column in spec.columns.values())


def _text_schema(spec: TableSpec) -> str:
    """Return the fields that the spec names, each as text; those of an object inside it."""
    if not _has_paths(spec):
        return ", ".join([*(f"{quoted(name)} string" for name in spec.columns), "_ba_corrupt string"])
    tree: dict[str, Any] = {}
    for path in _paths(spec):
        *outer, last = path
        inside = tree
        for part in outer:
            inside = inside.setdefault(part, {})
        inside[last] = None
    return ", ".join([*(f"{quoted(name)} {_text_type(inside)}" for name, inside in tree.items()), "_ba_corrupt string"])


def _text_type(inside: dict[str, Any] | None) -> str:
    if inside is None:
        return "string"
    return f"struct<{', '.join(f'{quoted(name)}: {_text_type(deeper)}' for name, deeper in inside.items())}>"


def _columns_of(spec: TableSpec, below: str = "") -> list[Column]:
    """Return the spec's columns from where `_text_schema` has them."""
    front = f"{below}." if below else ""
    paths = zip(spec.columns, _paths(spec), strict=True)
    return [F.col(front + ".".join(map(quoted, path))).alias(name) for name, path in paths]
