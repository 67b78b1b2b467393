"""What a query of `TableQueries.rows` returns, as rows of the spec: typed, and each held against its digest."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.history.moments import RowSums
from backfill_assets.core.spec import columns as spec_columns
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import quoted
from backfill_assets.spark.expressions import column


def typed_rows(spec: TableSpec, read: Mapping[str, spec_columns.Column], rows: DataFrame, moment: str) -> DataFrame:
    """Return rows of the spec's columns, with `_ba_file_id` and `_ba_problem`.

    The number of a row's partition is negative there: numbers of late rows are not.

    Args:
        read: The columns that the database has, in the order in which they were sent.
        moment: The snapshot in which every row must have been read.
    """
    values = {name: _typed(F.col(f"c{number}"), kind.type) for number, (name, kind) in enumerate(read.items())}
    parts = [_part(_canonical(values[name], kind.type)) for name, kind in read.items()]
    arrived = F.md5(F.encode(F.concat(*parts), "UTF-8")) == F.col("digest")
    problem = F.coalesce(
        F.col("problem"),
        F.when(F.col("moment") != F.lit(moment), F.concat(F.lit("it was read in the snapshot "), F.col("moment"))),
        F.when(~arrived, F.lit("it did not arrive as the database has it")),
    )
    return rows.select(
        *(
            (values[name] if name in values else F.lit(None).cast(kind.type)).alias(name)
            for name, kind in spec.columns.items()
        ),
        (-F.col("home").cast("bigint")).alias("_ba_file_id"),
        problem.alias("_ba_problem"),
    )


def sums_of(spec: TableSpec, rows: DataFrame, partition_by_number: Mapping[int, str]) -> dict[str, RowSums]:
    """Add up rows by partition key, as `TableQueries.sums` has the database add up its own.

    Args:
        rows: The spec's columns, `_ba_file_id` and `_ba_problem`.
        partition_by_number: The partition key of each value of `_ba_file_id`.
    """
    parts = [_part(_canonical(column(name), kind.type)) for name, kind in spec.columns.items()]
    digest = F.md5(F.encode(F.concat(*parts), "UTF-8"))
    lanes = [F.sum(F.conv(F.substring("digest", at, 15), 16, 10).cast("decimal(20,0)")) for at in (1, 17)]
    added = rows.select(F.col("_ba_file_id").alias("number"), digest.alias("digest"), "_ba_problem")
    counts = F.count(F.lit(1)).alias("n"), F.count("_ba_problem").alias("bad")
    found = added.groupBy("number").agg(*counts, lanes[0].alias("first"), lanes[1].alias("second"))
    return {
        partition_by_number[row["number"]]: RowSums(row["n"], int(row["first"]), int(row["second"]), row["bad"])
        for row in found.collect()
    }


def columns_of(spec: TableSpec) -> str:
    """Return the columns of `typed_rows`, for no rows."""
    named = ", ".join(f"{quoted(name)} {column.type}" for name, column in spec.columns.items())
    return f"{named}, _ba_file_id bigint, _ba_problem string"


def _typed(sent: Column, kind: str) -> Column:
    match kind:
        case "date":
            return F.date_from_unix_date(sent)
        case "timestamp":
            return F.timestamp_micros(sent)
        case _:
            return sent.cast(kind)


def _canonical(value: Column, kind: str) -> Column:
    """Return a value's text, as `Value.canonical` writes it in the database."""
    match kind:
        case "date":
            return F.unix_date(value).cast("string")
        case "timestamp":
            return F.unix_micros(value).cast("string")
        case "binary":
            return F.lower(F.hex(value))
        case "float" | "double":
            bits = F.java_method(
                F.lit("java.lang.Double"), F.lit("doubleToLongBits"), F.coalesce(value.cast("double"), F.lit(0.0))
            )
            return F.when(value.isNotNull(), bits)
        case _:
            return value.cast("string")


def _part(text: Column) -> Column:
    return F.coalesce(F.concat(F.octet_length(text).cast("string"), F.lit(":"), text), F.lit("-"))
