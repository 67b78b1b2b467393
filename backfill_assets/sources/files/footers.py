"""The footers of Parquet files, read by pyarrow: which columns a file has, and of which type each of them is.

Spark names the columns of a file only if it knows the types of all of them, those included that nobody asks for.

A local file is opened at its end, which takes no job. Spark hands over the last bytes of any other, and has to load all
of it for that. So this is done only for files whose columns Spark does not name, and not for very large ones.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.schema.types import TIMESTAMP_NANOS, TIMESTAMP_NTZ_NANOS
from backfill_assets.sources.files.columns import FileColumn
from backfill_assets.sources.files.listing import SourceFile, file_id_of_row, paths_of
from backfill_assets.spark.local_disk import seen_as_spark_does

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_BYTES_LOADED = 256 << 20

_PHYSICAL = {
    "BOOLEAN": "boolean", "INT32": "int", "INT64": "bigint", "INT96": "timestamp", "FLOAT": "float",
    "DOUBLE": "double", "BYTE_ARRAY": "binary", "FIXED_LEN_BYTE_ARRAY": "binary",
}  # fmt: skip
"""The type of a column of which the file says only how its values are stored."""

_LOGICAL: dict[str, str] = {"ENUM": "string", "JSON": "string", "BSON": "binary", "UNKNOWN": "void"}
"""Types of Parquet that have another name here; all others keep theirs, in small letters."""

_SIGNED = {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}
_OF_SPARK = b"org.apache.spark.sql.parquet.row.metadata"


@dataclass(frozen=True, slots=True)
class Footer:
    """The facts of a file's footer that matter here.

    Args:
        columns: At the top of the file, in order.
        rows: The sum over its row groups.
        promised: The number of rows that the footer claims.
        int96: Names of the columns of INT96, which may have nanoseconds without saying so. None of a file that Spark
            wrote, because Spark has no nanoseconds.
    """

    columns: tuple[FileColumn, ...]
    rows: int
    promised: int
    int96: frozenset[str] = frozenset()


def by_spark(spark: SparkSession, files: Sequence[SourceFile], *, ignore_corrupt: bool = False) -> list[FileColumn]:
    """Return the columns of files, all of them together, by Spark's word, which fails if it does not know a type."""
    reader = spark.read.option("mergeSchema", "true").option("ignoreCorruptFiles", str(ignore_corrupt).lower())
    schema = reader.parquet(*paths_of(files)).schema
    return [FileColumn(f.name, f.dataType.simpleString()) for f in schema.fields]


def columns_of_file(spark: SparkSession, file: SourceFile) -> Sequence[FileColumn]:
    """Return the columns of a file, by its footer if that can be read."""
    found = footers_of(spark, [file]).get(file)
    return by_spark(spark, [file]) if found is None else found.columns


def footers_of(spark: SparkSession, files: Sequence[SourceFile]) -> dict[SourceFile, Footer]:
    """Return the footers of files; without those that have none or are too large to be loaded."""
    import pyarrow as pa

    footers = footers_here(spark, files)
    elsewhere = {f.file_id: f for f in files if f not in footers and f.size_bytes <= _MOST_BYTES_LOADED}
    if elsewhere:
        whole = spark.read.format("binaryFile").load(paths_of(list(elsewhere.values())))
        for row in whole.select(file_id_of_row().alias("file"), _end(F.col("content")).alias("end")).collect():
            if found := read_footer(pa.BufferReader(b"PAR1" + bytes(row["end"]))):
                footers[elsewhere[row["file"]]] = found
    return footers


def footers_here(spark: SparkSession, files: Sequence[SourceFile]) -> dict[SourceFile, Footer]:
    """Return the footers of those files that lie on this disk, and are as they were listed."""
    import pyarrow as pa

    found: dict[SourceFile, Footer] = {}
    for file in files:
        if path := seen_as_spark_does(spark, file.path):
            try:
                with pa.OSFile(str(path)) as opened:
                    footer = read_footer(opened) if opened.size() == file.size_bytes else None
            except OSError:
                continue
            found |= {file: footer} if footer else {}
    return found


def _end(content: Column) -> Column:
    """Return the end of a file's bytes: its footer, the footer's length in four bytes, and a mark of four."""
    digits = F.concat(*(F.hex(F.substring(content, -at, 1)) for at in (5, 6, 7, 8)))
    size = F.least(F.conv(digits, 16, 10).cast("bigint") + 8, F.length(content).cast("bigint")).cast("int")
    return F.substr(content, F.length(content) - size + F.lit(1), size)


def read_footer(file: pa.NativeFile) -> Footer | None:
    """Return the facts of the footer at a file's end; None if there is none, or it cannot be understood."""
    import pyarrow.parquet as pq

    try:
        return _footer(pq.read_metadata(file))
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
    ):  # pyarrow's own errors, and names that are not UTF-8, are some
        return None


def _footer(found: Any) -> Footer:
    leaves = [found.schema.column(i) for i in range(found.num_columns)]
    at_top = {leaf.name: leaf for leaf in leaves if leaf.path == leaf.name}
    notes = found.metadata or {}
    spark_fields = json.loads(notes.get(_OF_SPARK, '{"fields": []}'))["fields"]
    spans = {field["name"] for field in spark_fields if str(field["type"]).startswith("interval")}
    columns = tuple(
        FileColumn(field.name, "interval" if field.name in spans else _kind(at_top.get(field.name), field.type))
        for field in found.schema.to_arrow_schema()
    )
    rows = sum(found.row_group(i).num_rows for i in range(found.num_row_groups))
    is_of_spark = _OF_SPARK in notes and found.created_by.startswith("parquet-mr")  # a note alone may be a copy
    int96 = frozenset(name for name, leaf in at_top.items() if leaf.physical_type == "INT96" and not is_of_spark)
    return Footer(columns, rows, found.num_rows, int96)


def _kind(leaf: Any, shape: pa.DataType) -> str:
    """Return the type of a column in Spark's words, or in Parquet's if Spark has none.

    Args:
        leaf: The column as Parquet stores it; None of a column with others inside.
        shape: Its type as Arrow sees it, which may be a note of the writer's.
    """
    import pyarrow as pa

    shape = getattr(shape, "storage_type", shape)
    if leaf is None or leaf.max_repetition_level:
        return "map" if pa.types.is_map(shape) else "struct" if pa.types.is_struct(shape) else "array"
    name: str = leaf.logical_type.type
    if name == "NONE":
        return _PHYSICAL[leaf.physical_type]
    said = json.loads(leaf.logical_type.to_json())
    if name == "DECIMAL":
        return f"decimal({said['precision']},{said['scale']})"
    if name == "INT":
        return _SIGNED[said["bitWidth"]] if said["isSigned"] else f"uint{said['bitWidth']}"
    if name == "TIMESTAMP" and said["timeUnit"] == "nanoseconds":
        return TIMESTAMP_NANOS if said["isAdjustedToUTC"] else TIMESTAMP_NTZ_NANOS
    if name == "TIMESTAMP":
        return "timestamp" if said["isAdjustedToUTC"] else "timestamp_ntz"
    return "interval" if leaf.converted_type == "INTERVAL" else _LOGICAL.get(name, name.lower())
