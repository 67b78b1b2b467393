"""The footers of Parquet files, fetched and read here.

A local file is opened at its end, which takes no job. Of any other, where Spark does not know the types of its columns,
Spark hands over the last bytes, for which it has to load all of it; so that is done for files with odd types alone, and
not for very large ones.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.schema.parquet_footer import Footer, FooterColumn, read_footer
from backfill_assets.sources.files.listing import SourceFile, file_id_of_row, paths_of
from backfill_assets.spark.local_disk import seen_as_spark_does

_MOST_BYTES_LOADED = 256 << 20
_MOST_BYTES_OF_FOOTER = 1 << 20
"""The columns stand at a footer's beginning; a long one lists many row groups behind them."""

_OF_SPARK_ALONE = b"interval"
"""Word for a type that only Spark's own note in a footer names; to others the column is a number."""


def by_spark(spark: SparkSession, files: Sequence[SourceFile], *, ignore_corrupt: bool = False) -> list[FooterColumn]:
    """Return the columns of files, all of them together, by Spark's word, which fails if it does not know a type."""
    reader = spark.read.option("mergeSchema", "true").option("ignoreCorruptFiles", str(ignore_corrupt).lower())
    schema = reader.parquet(*paths_of(files)).schema
    return [FooterColumn(f.name, f.dataType.simpleString()) for f in schema.fields]


def columns_of_file(spark: SparkSession, file: SourceFile) -> Sequence[FooterColumn]:
    """Return the columns of a file, by its footer if that can be had."""
    found = footers_of(spark, [file]).get(file)
    return by_spark(spark, [file]) if found is None else found.columns


def footers_of(spark: SparkSession, files: Sequence[SourceFile]) -> dict[SourceFile, Footer]:
    """Return the footers of files; without those that have none or are too large to be loaded."""
    footers = _local_footers(spark, files)
    elsewhere = {f.file_id: f for f in files if f not in footers and f.size_bytes <= _MOST_BYTES_LOADED}
    if elsewhere:
        whole = spark.read.format("binaryFile").load(paths_of(list(elsewhere.values())))
        for row in whole.select(file_id_of_row().alias("file"), _footer(F.col("content")).alias("footer")).collect():
            footers[elsewhere[row["file"]]] = bytes(row["footer"])
    return {file: found for file, footer in footers.items() if (found := read_footer(footer)) is not None}


def footers_here(spark: SparkSession, files: Sequence[SourceFile]) -> dict[SourceFile, Footer]:
    """Return the footers of those files of this disk of which Spark would say the same."""
    footers = _local_footers(spark, files)
    plain = {file: footer for file, footer in footers.items() if _OF_SPARK_ALONE not in footer}
    return {file: found for file, footer in plain.items() if (found := read_footer(footer)) is not None}


def _local_footers(spark: SparkSession, files: Sequence[SourceFile]) -> dict[SourceFile, bytes]:
    return {
        file: footer
        for file in files
        if (path := seen_as_spark_does(spark, file.path)) and (footer := _local_footer(path, file.size_bytes))
    }


def _local_footer(path: Path, size_bytes: int) -> bytes | None:
    """Return the footer of a file of this machine; None if it has none, or is not the one that was listed."""
    try:
        with path.open("rb") as opened:
            opened.seek(0, 2)
            if opened.tell() != size_bytes or size_bytes < 12:
                return None
            opened.seek(-8, 2)
            length, mark = struct.unpack("<I4s", opened.read(8))
            if mark != b"PAR1" or length + 12 > size_bytes:
                return None
            opened.seek(-length - 8, 2)
            return opened.read(min(length, _MOST_BYTES_OF_FOOTER))
    except OSError:
        return None


def _footer(content: Column) -> Column:
    """Return the footer at the end of a file's bytes, whose length is in the four that lie eight before the end."""
    digits = F.concat(*(F.hex(F.substring(content, -at, 1)) for at in (5, 6, 7, 8)))
    length = F.least(F.conv(digits, 16, 10).cast("bigint"), F.length(content).cast("bigint")).cast("int")
    begin = F.greatest(F.length(content) - F.lit(8) - length, F.lit(0)) + F.lit(1)
    return F.substr(content, begin, F.least(length, F.lit(_MOST_BYTES_OF_FOOTER)))
