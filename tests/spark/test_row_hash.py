"""The checksum without Spark is Spark's, for every type and for the values at their edges."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from pyspark.sql import functions as F

from backfill_assets.core.state.row_hash import FLAGS_IN_A_WORD, checksum_of_rows
from backfill_assets.core.state.tallies import checksum_of
from backfill_assets.lake.delta_rs import contents, opened
from backfill_assets.spark.expressions import checksum_lanes, row_hash
from tests.support.fakes import spec_with

pytestmark = pytest.mark.spark

VALUES = {
    "boolean": "true, false, NULL",
    "tinyint": "-128, 127, 0, NULL",
    "smallint": "-32768, 32767, NULL",
    "int": "-2147483648, 2147483647, 1, NULL",
    "bigint": "-9223372036854775808, 9223372036854775807, 0, NULL",
    "float": "0.0, -0.0, 1.5, 'NaN', 'Infinity', '-Infinity', 3.4e38, NULL",
    "double": "0.0, -0.0, 1.5, 'NaN', 'Infinity', '-Infinity', 5e-324, NULL",
    "string": "'', 'a', 'äöü €', '\U0001f600 and thirty-two bytes or more of text', NULL",
    "binary": "X'', X'00', X'00ff80', NULL",
    "date": "DATE'1970-01-01', DATE'0001-01-01', DATE'9999-12-31', DATE'1969-12-31', NULL",
    "timestamp": "TIMESTAMP'1970-01-01 00:00:00Z', TIMESTAMP'1969-12-31 23:59:59.999999Z', TIMESTAMP'9999-12-31 00:00:00Z', NULL",
    "decimal(18,2)": "0, -0.01, 9999999999999999.99, -9999999999999999.99, NULL",
    "decimal(19,0)": "0, -1, 127, 128, -128, -129, 255, 256, 9999999999999999999, -9999999999999999999, NULL",
    "decimal(38,10)": "0, 0.0000000001, -1, 9999999999999999999999999999.9999999999, NULL",
}


def spec_of(columns):
    return spec_with(
        columns={"at": "timestamp not null", **columns}, key_columns=[], event_time="at", partition_column="_day"
    )


IN_THE_GATE = ("bigint", "double", "string", "timestamp", "decimal(38,10)")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in IN_THE_GATE else pytest.mark.prove) for kind in VALUES]
)
def test_each_type_is_hashed_as_spark_hashes_it(spark, tmp_path, kind):
    """Two columns of a type with all pairs of its values, written by Spark, read by delta-rs, summed up by both."""
    spec = spec_of({"a": kind, "b": kind})
    values = spark.sql(f"SELECT CAST(v AS {kind}) v FROM (SELECT explode(array({VALUES[kind]})) v)")
    rows = values.withColumnRenamed("v", "a").crossJoin(values.withColumnRenamed("v", "b"))
    rows = rows.withColumn("at", F.lit(datetime(2024, 1, 1, tzinfo=UTC))).withColumn("_day", F.lit(date(2024, 1, 1)))
    rows.write.format("delta").partitionBy("_day").save(str(tmp_path / "table"))
    high, low = checksum_lanes(row_hash(spec))
    (by_spark,) = spark.read.format("delta").load(str(tmp_path / "table")).agg(F.count("*"), high, low).collect()
    columns = {name: column.type for name, column in spec.columns.items()}
    ((key, found),) = contents(
        opened(spark, str(tmp_path / "table")), columns, "_day", {"2024-01-01": date(2024, 1, 1)}
    )
    assert (key, found) == ("2024-01-01", (by_spark[0], f"{checksum_of(by_spark[1], by_spark[2]):016x}"))


def test_more_columns_than_a_word_has_flags(spark):
    """NULL in the last of many columns is another row than NULL in the first."""
    spec = spec_of({f"c{n}": "int" for n in range(FLAGS_IN_A_WORD + 3)})
    kinds = [column.type for column in spec.columns.values()]
    for nulls in ({1}, {len(kinds) - 1}):
        row = [0, *(None if at in nulls else at for at in range(1, len(kinds)))]
        as_spark = [F.timestamp_micros(F.lit(0)), *(F.lit(value).cast("int") for value in row[1:])]
        frame = spark.range(1).select(*(value.alias(name) for value, name in zip(as_spark, spec.columns, strict=True)))
        (hashed,) = frame.select(row_hash(spec).alias("hash")).collect()
        assert checksum_of_rows(kinds, [row]) == (1, f"{hashed['hash'] % (1 << 64):016x}")


def test_the_numbers_are_fixed():
    """They are written in receipts: a change of them needs a new encoding."""
    assert checksum_of_rows(["bigint", "string"], [[1, "a"], [None, "b"]]) == (2, "6790d9eb458d0434")
