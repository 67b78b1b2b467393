"""The tally: what the checksum sees, what it does not depend on, and in which partition a row is counted."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from backfill_assets.core.spec.columns import PRIMITIVE_TYPES
from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.lake.tally import tally_rows
from backfill_assets.sources.files.source import FilesSource
from backfill_assets.spark.expressions import partition_value, row_hash
from tests.support.shop import folder_of, frame_of, orders, orders_spec, write_json, write_parquet

Row = dict[str, Any]
DAY = "2024-01-01"


def changed(rows: list[Row], **values: Any) -> list[Row]:
    """The same rows, the first one with other values."""
    return [{**rows[0], **values}, *rows[1:]]


@pytest.mark.prove
def test_a_day_that_no_clock_reaches_is_a_stray(spark):
    """What a database writes for infinity as a DATE is no failure of the whole read."""
    spec = orders_spec(columns={"order_id": "bigint", "ordered_at": "date"})
    days = [date(2024, 1, 1), *(F.date_from_unix_date(F.lit(day)) for day in (2**31 - 1, -(2**31)))]
    rows = None
    for number, day in enumerate(days):
        one = spark.range(number, number + 1).select(F.col("id").alias("order_id"), F.lit(day).alias("ordered_at"))
        rows = one if rows is None else rows.union(one)
    kept = rows.withColumn("dt", F.lit(date(2024, 1, 1)))
    assert (tally_rows(spec, kept)[DAY].rows, tally_rows(spec, kept)[DAY].stray_rows) == (3, 2)


@pytest.mark.prove
def test_an_hour_that_no_clock_reaches_is_a_stray(spark):
    """What a database writes for infinity as a TIMESTAMP is none either, where hours begin at half past in UTC."""
    columns = {"order_id": "bigint", "ordered_at": "timestamp"}
    spec = orders_spec(columns=columns, grain="hourly", time_zone="Asia/Kathmandu")
    hour = datetime(2024, 1, 1, 0, 15, tzinfo=UTC)
    times = [F.lit(hour), F.timestamp_micros(F.lit(2**63 - 1)), F.timestamp_micros(F.lit(-(2**63)))]
    rows = None
    for number, time in enumerate(times):
        one = spark.range(number, number + 1).select(F.col("id").alias("order_id"), time.alias("ordered_at"))
        rows = one if rows is None else rows.union(one)
    key = spec.grid.partition_of(hour).key
    kept = rows.withColumn("dt", partition_value(spec, F.lit(hour)))
    assert (tally_rows(spec, kept)[key].rows, tally_rows(spec, kept)[key].stray_rows) == (3, 2)


# -- what the checksum sees --------------------------------------------------------------------------------------------


def test_the_checksum_sees_every_kind_of_change(tallies):
    """A flipped value, a lost, a doubled or an exchanged row, NULL for '' and swapped columns all change the checksum."""
    spec = orders_spec(
        columns={
            "order_id": "bigint",
            "first": "string",
            "second": "string",
            "amount": "decimal(18,2)",
            "ordered_at": "timestamp",
        }
    )
    rows = [{**row, "first": "a", "second": "b"} for row in orders(DAY, 4)]
    found = tallies(
        spec,
        base=rows,
        flipped=changed(rows, amount=Decimal("0.24")),
        later_by_a_microsecond=changed(rows, ordered_at=rows[0]["ordered_at"] + timedelta(microseconds=1)),
        lost=rows[1:],
        doubled=[*rows, rows[0]],
        doubled_twice=[*rows, rows[0], rows[0]],
        one_lost_one_doubled=[*rows[1:], rows[1]],
        null_first=changed(rows, first=None, second="a"),
        null_second=changed(rows, first="a", second=None),
        empty_first=changed(rows, first="", second="a"),
        empty_second=changed(rows, first="a", second=""),
        swapped=[{**row, "first": "b", "second": "a"} for row in rows],
        moved=changed(rows, first="ab", second=""),
        null_amount=changed(rows, amount=None),
        zero_amount=changed(rows, amount=Decimal(0)),
    )

    checksums = [tally.checksum for tally in found.values()]
    zero = found.pop("zero_amount")  # the base's own first amount is 0.25: all differ
    assert len(set(checksums)) == len(checksums)
    assert zero.rows == 4
    assert {name: tally.rows for name, tally in found.items() if tally.rows != 4} == {
        "lost": 3,
        "doubled": 5,
        "doubled_twice": 6,
    }


@pytest.mark.prove
def test_large_sums_do_not_overflow(spark):
    """Where a sum of hashes does not fit into 64 bits, the checksum is what Python adds up, modulo 2**64."""
    spec = orders_spec()
    rows = frame_of(spark, spec, orders(DAY, 1)).crossJoin(spark.range(50_000).withColumnRenamed("id", "n"))
    rows = rows.withColumn("order_id", F.col("n")).drop("n").cache()
    hashes = [row[0] for row in rows.select(row_hash(spec)).collect()]
    extreme = spark.createDataFrame(
        [(2**63 - 1,), (-(2**63),), (-1,), (0,), (2**32 - 1,), (-(2**32),)], "h bigint"
    ).crossJoin(spark.range(1000))

    assert abs(sum(h for h in hashes if h > 0)) > 2**63, "the rows would not overflow a BIGINT"
    assert tally_rows(spec, rows)[DAY].checksum == sum(hashes) % 2**64

    from backfill_assets.core.state.tallies import checksum_of
    from backfill_assets.spark.expressions import checksum_lanes

    for sign in (1, -1):  # only one side at a time: they must not cancel each other out
        picked = extreme.where(F.col("h") * 0 + F.when(F.col("h") >= 0, 1).otherwise(-1) == sign)
        high, low = checksum_lanes(F.col("h"))
        (lanes,) = picked.agg(high.alias("high"), low.alias("low")).collect()
        expected = sum(row["h"] for row in picked.collect())
        assert checksum_of(lanes["high"], lanes["low"]) == expected % 2**64


ALL_TYPES: dict[str, Any] = {
    "boolean": True, "tinyint": -7, "smallint": 300, "int": -70_000, "bigint": 2**53 + 1, "float": 1.5, "double": 0.1,
    "string": "ü 漢 \n 'quoted'", "binary": b"\x00\xff", "date": date(2024, 2, 29),
    "timestamp": datetime(2024, 1, 1, 5, 0, 0, 123456, tzinfo=UTC), "decimal(38,18)": Decimal("12345678901234567890.123456789012345678"),
    "decimal(5,0)": Decimal(-99999),
}  # fmt: skip


def all_types_spec(**changes: Any) -> TableSpec:
    columns = {f"c{i}": kind for i, kind in enumerate(ALL_TYPES)}
    return orders_spec(
        columns={"id": "bigint", **columns},
        key_columns=["id"],
        event_time=f"c{list(ALL_TYPES).index('timestamp')}",
        **changes,
    )


def all_types_rows() -> list[Row]:
    full = {f"c{i}": value for i, value in enumerate(ALL_TYPES.values())}
    time = f"c{list(ALL_TYPES).index('timestamp')}"
    return [{"id": 0, **full}, *({"id": i + 1, **full, name: None} for i, name in enumerate(full) if name != time)]


def test_every_type_takes_part_in_the_checksum(tallies):
    """Of every type a column may have, a value and NULL have different checksums."""
    assert {kind.partition("(")[0] for kind in ALL_TYPES} == {*PRIMITIVE_TYPES, "decimal"}
    spec = all_types_spec()
    full = {**all_types_rows()[0]}
    sets = {"full": [full], **{name: [{**full, name: None}] for name in spec.columns}}

    found = tallies(spec, **sets)

    checksums = [tally.checksum for tally in found.values()]
    assert len(set(checksums)) == len(checksums) == len(spec.columns) + 1
    assert set(found["c0"].empty_columns) == {"c0"}


@pytest.mark.prove
def test_parquet_and_json_of_the_same_values_have_the_same_tally(spark, tmp_path):
    """Values of every type have one checksum, whether they were exported as Parquet or as JSON."""
    import base64

    spec = all_types_spec()
    rows = all_types_rows()
    arrow = {
        "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(),
        "double": pa.float64(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
        "decimal(38,18)": pa.decimal128(38, 18), "decimal(5,0)": pa.decimal128(5, 0),
    }  # fmt: skip
    schema = pa.schema({name: arrow[column.type] for name, column in spec.columns.items()})
    write_parquet(folder_of(tmp_path / "parquet", DAY), rows, schema=schema)
    as_text = [{n: base64.b64encode(v).decode() if isinstance(v, bytes) else v for n, v in row.items()} for row in rows]
    write_json(folder_of(tmp_path / "json", DAY), as_text)
    found = {}
    for kind in ("parquet", "json"):
        source = FilesSource(spark, spec, FilesSpec(path=".", format=kind), str(tmp_path / kind))
        partition = spec.grid.partition(DAY)
        scan = source.scan([partition], source.survey([partition]))
        rows_of = scan.rows.withColumn("dt", partition_value(spec, F.col(spec.event_time)))
        found[kind] = tally_rows(spec, rows_of, scan.partition_by_file)

    assert found["parquet"][DAY].rows == len(rows)
    assert found["json"] == found["parquet"]
