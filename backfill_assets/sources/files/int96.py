"""Instants as INT96, of which Spark cuts nanoseconds without a word: whether a file has any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.sql import quoted
from backfill_assets.sources.files.listing import SourceFile, file_id_of_row, paths_of

_ROW_BY_ROW = "spark.sql.parquet.enableVectorizedReader"
_EPOCH = 2_440_588
"""The day of 1970-01-01, as INT96 counts days."""


def finer_than_microseconds(spark: SparkSession, files: Mapping[SourceFile, frozenset[str]]) -> dict[SourceFile, str]:
    """Return the files that have such values, each with what is wrong with it.

    Args:
        files: The names of their columns of INT96.
    """
    alike: dict[frozenset[str], list[SourceFile]] = {}
    for file, names in files.items():
        alike.setdefault(names, []).append(file)
    found: dict[SourceFile, str] = {}
    with _bytes_are_read(spark):
        for names, group in alike.items():
            found |= _finer(spark, sorted(names), group)
    return found


def _finer(spark: SparkSession, names: list[str], files: list[SourceFile]) -> dict[SourceFile, str]:
    reader = spark.read.schema(", ".join(f"{quoted(name)} binary" for name in names)).option("pathGlobFilter", "*")
    raw = reader.option("ignoreCorruptFiles", "true").parquet(*paths_of(files))  # the read itself names a damaged one
    each = F.filter(F.array(*map(_finer_value, names)), lambda value: value.isNotNull())
    values = raw.select(file_id_of_row().alias("file"), F.explode(each).alias("value"))
    by_file = values.groupBy("file").agg(F.count(F.lit(1)).alias("n"), F.min("value").alias("first")).collect()
    by_id = {file.file_id: file for file in files}
    return {
        by_id[row["file"]]: f"{row['n']:,} timestamps of INT96 are no whole microseconds, and a timestamp has no finer "
        f"ones (`nanoseconds: cut` would cut them), first {row['first']}"
        for row in by_file
    }


def _finer_value(name: str) -> Column:
    """Return a column's name and its value, if that is no whole microsecond; else NULL."""
    stored = F.col(quoted(name))
    nanos, day = _number(stored, 8, 1), _number(stored, 12, 9)
    rest = F.pmod(nanos, F.lit(1000))
    micros = (day - F.lit(_EPOCH)) * F.lit(86_400_000_000) + (nanos - rest) / F.lit(1000)
    instant = F.date_format(F.timestamp_micros(micros.cast("bigint")), "yyyy-MM-dd HH:mm:ss.SSSSSS")
    said = F.concat(F.lit(f"`{name}`: "), instant, F.lpad(rest.cast("string"), 3, F.lit("0")))
    return F.when(rest != 0, said)


def _number(stored: Column, last: int, first: int) -> Column:
    """Return the number in some bytes, of which the last is the highest."""
    digits = F.concat(*(F.hex(F.substring(stored, at, 1)) for at in range(last, first - 1, -1)))
    return F.conv(digits, 16, 10).cast("bigint")


@contextmanager
def _bytes_are_read(spark: SparkSession) -> Iterator[None]:
    """Let Spark hand over INT96 as it is stored, which it does row by row only."""
    before = spark.conf.get(_ROW_BY_ROW, "true")
    spark.conf.set(_ROW_BY_ROW, "false")
    try:
        yield
    finally:
        spark.conf.set(_ROW_BY_ROW, str(before))
