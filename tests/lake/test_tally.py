"""The tally: what the checksum sees, what it does not depend on, and in which partition a row is counted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.spec.files import FilesSource
from backfill_assets.core.spec.table import PRIMITIVE_TYPES, TableSpec
from backfill_assets.core.state.tallies import Tally
from backfill_assets.lake.tally import duplicate_keys_by_partition, partition_value, row_hash, tally_rows
from backfill_assets.sources.files.source import FilesBelowFolders
from tests.support.shop import folder_of, frame_of, orders, orders_spec, write_json, write_parquet

Row = dict[str, Any]
DAY = "2024-01-01"


@pytest.fixture
def tallies(spark: SparkSession) -> Callable[..., dict[str, Tally]]:
    """Tally sets of rows of one day side by side, in one pass: each set is kept in a home of its own."""

    def call(spec: TableSpec, **sets: list[Row]) -> dict[str, Tally]:
        frames = [frame_of(spark, spec, rows).withColumn("_ba_home", F.lit(name)) for name, rows in sets.items()]
        rows = frames[0]
        for frame in frames[1:]:
            rows = rows.unionByName(frame)
        return tally_rows(spec, rows, {name: name for name in sets})

    return call


def changed(rows: list[Row], **values: Any) -> list[Row]:
    """The same rows, the first one with other values."""
    return [{**rows[0], **values}, *rows[1:]]


# -- what the checksum sees --------------------------------------------------------------------------------------------


def test_the_checksum_sees_every_kind_of_change(tallies):
    """A flipped value, a lost, a doubled or an exchanged row, NULL for '' and swapped columns all change the checksum."""
    spec = orders_spec(
        columns={"order_id": "bigint", "first": "string", "second": "string", "amount": "decimal(18,2)", "ordered_at": "timestamp"}
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
    assert {name: tally.rows for name, tally in found.items() if tally.rows != 4} == {"lost": 3, "doubled": 5, "doubled_twice": 6}


def test_the_checksum_depends_on_neither_order_nor_tasks(spark):
    """The same rows in another order, over other tasks and out of a cache have the same tally."""
    spec = orders_spec()
    rows = orders(DAY, 200)
    forward = frame_of(spark, spec, rows)
    backward = frame_of(spark, spec, rows[::-1]).repartition(7, "customer")

    first = tally_rows(spec, forward)
    assert tally_rows(spec, backward) == first
    assert tally_rows(spec, backward.coalesce(1).cache()) == first
    assert first[DAY].rows == 200
    assert first[DAY].first_event_utc == rows[0]["ordered_at"]


def test_large_sums_do_not_overflow(spark):
    """Where a sum of hashes does not fit into 64 bits, the checksum is what Python adds up, modulo 2**64."""
    spec = orders_spec()
    rows = frame_of(spark, spec, orders(DAY, 1)).crossJoin(spark.range(50_000).withColumnRenamed("id", "n"))
    rows = rows.withColumn("order_id", F.col("n")).drop("n").cache()
    hashes = [row[0] for row in rows.select(row_hash(spec)).collect()]
    extreme = spark.createDataFrame([(2**63 - 1,), (-(2**63),), (-1,), (0,), (2**32 - 1,), (-(2**32),)], "h bigint").crossJoin(
        spark.range(1000)
    )

    assert abs(sum(h for h in hashes if h > 0)) > 2**63, "the rows would not overflow a BIGINT"
    assert tally_rows(spec, rows)[DAY].checksum == sum(hashes) % 2**64

    from backfill_assets.core.state.tallies import checksum_of
    from backfill_assets.lake.tally import checksum_lanes

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
        columns={"id": "bigint", **columns}, key_columns=["id"], event_time=f"c{list(ALL_TYPES).index('timestamp')}", **changes
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


def test_a_table_may_have_more_columns_than_a_number_has_bits(tallies):
    """With 130 columns NULL in each of them is a different row, also where the flags need a second and third number."""
    names = [f"c{i}" for i in range(130)]
    spec = orders_spec(columns={**dict.fromkeys(names, "int"), "ordered_at": "timestamp"}, key_columns=[])
    row = {**dict.fromkeys(names, 1), "ordered_at": datetime(2024, 1, 1, tzinfo=UTC)}
    holes = [0, 1, 61, 62, 63, 123, 124, 129]

    found = tallies(spec, full=[row], **{f"hole_{i}": [{**row, f"c{i}": None}] for i in holes})

    assert len({tally.checksum for tally in found.values()}) == len(holes) + 1


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
        source = FilesBelowFolders(spark, spec, FilesSource(path=".", format=kind), str(tmp_path / kind))
        partition = spec.grid.partition(DAY)
        staged = source.stage([partition], source.survey([partition]))
        rows_of = staged.rows.withColumn("dt", partition_value(spec, F.col(spec.event_time)))
        found[kind] = tally_rows(spec, rows_of, staged.homes)

    assert found["parquet"][DAY].rows == len(rows)
    assert found["json"] == found["parquet"]


# -- where a row is counted --------------------------------------------------------------------------------------------

ZONES = ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/Sao_Paulo"]
EDGES = [
    datetime(2023, 12, 31, 18, 29, 59, 999999, UTC), datetime(2023, 12, 31, 18, 30, tzinfo=UTC),  # midnight in Kolkata
    datetime(2023, 12, 31, 22, 59, 59, 999999, UTC), datetime(2023, 12, 31, 23, tzinfo=UTC),  # midnight in Berlin in winter
    datetime(2023, 12, 31, 23, 59, 59, 999999, UTC), datetime(2024, 1, 1, tzinfo=UTC),
    datetime(2024, 3, 30, 22, 59, 59, 999999, UTC), datetime(2024, 3, 30, 23, tzinfo=UTC), datetime(2024, 3, 31, 0, 59, 59, tzinfo=UTC),
    datetime(2024, 3, 31, 1, tzinfo=UTC), datetime(2024, 3, 31, 21, 59, 59, tzinfo=UTC), datetime(2024, 3, 31, 22, tzinfo=UTC),  # 23 hours
    datetime(2024, 10, 26, 21, 59, 59, tzinfo=UTC), datetime(2024, 10, 26, 22, tzinfo=UTC), datetime(2024, 10, 27, 0, 30, tzinfo=UTC),
    datetime(2024, 10, 27, 1, 30, tzinfo=UTC), datetime(2024, 10, 27, 22, 59, 59, tzinfo=UTC), datetime(2024, 10, 27, 23, tzinfo=UTC),  # 25 hours
    datetime(2018, 11, 4, 2, 59, 59, tzinfo=UTC), datetime(2018, 11, 4, 3, tzinfo=UTC),  # Sao Paulo had no midnight
    datetime(2024, 2, 29, 12, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC), datetime(2024, 12, 30, tzinfo=UTC), datetime(2025, 1, 5, 23, 59, tzinfo=UTC),
]  # fmt: skip


def test_a_row_lies_where_the_grid_says(spark):
    """For every grain, zone and edge Spark finds the partition that `core` finds: midnights, short and long days, year ends."""
    instants = spark.createDataFrame([(i, instant) for i, instant in enumerate(EDGES)], "i int, ordered_at timestamp")
    starts = {"hourly": "2010-01-01", "daily": "2010-01-01", "weekly": "2010-01-04", "monthly": "2010-01-01"}
    specs = {
        (g, z): orders_spec(grain=g, time_zone=z, start=start)
        for g, start in starts.items()
        for z in ZONES
        if (g, z) != ("hourly", "Australia/Lord_Howe")
    }
    columns = [partition_value(spec, F.col("ordered_at")).cast("string").alias(f"{g} {z}") for (g, z), spec in specs.items()]

    for row in instants.select("i", *columns).collect():
        instant = EDGES[row["i"]]
        found = {name: row[name] for name in row.asDict() if name != "i"}
        assert found == {f"{g} {z}": str(spec.grid.partition_of(instant).value) for (g, z), spec in specs.items()}, instant


def test_dates_as_event_time_are_days_of_the_table(spark):
    """A DATE is a day of the table's zone as it is; weeks start on Monday, months on the first."""
    columns = {"order_id": "bigint", "day": "date"}
    specs = {
        grain: orders_spec(columns=columns, event_time="day", grain=grain, start=start, time_zone="Asia/Kolkata")
        for grain, start in {"daily": "2023-01-01", "weekly": "2023-01-02", "monthly": "2023-01-01"}.items()
    }
    days = spark.createDataFrame([(date(2024, 2, 29),), (date(2023, 12, 31),), (date(2024, 1, 1),)], "day date")

    found = [tuple(map(str, row)) for row in days.select(*(partition_value(spec, F.col("day")) for spec in specs.values())).collect()]

    assert found == [
        ("2024-02-29", "2024-02-26", "2024-02-01"),
        ("2023-12-31", "2023-12-25", "2023-12-01"),
        ("2024-01-01", "2024-01-01", "2024-01-01"),
    ]


def test_rows_are_counted_where_they_are_kept(spark, tallies):
    """A row under the wrong day is a stray of that day; one without an event time is NULL there, and no stray."""
    spec = orders_spec()
    found = tally_rows(
        spec,
        frame_of(spark, spec, [*orders(DAY, 2), *orders("2024-01-02", 1), *orders(DAY, 1, ordered_at=None, order_id=None)]).withColumn(
            "_ba_home", F.lit("a file")
        ),
        {"a file": DAY},
    )

    assert list(found) == [DAY]
    assert (found[DAY].rows, found[DAY].stray_rows, found[DAY].null_keys) == (4, 1, 1)
    assert found[DAY].nulls == {"order_id": 1, "ordered_at": 1}


def test_rows_that_cannot_be_read_are_counted_alone(spark):
    """A row with a problem is in no other number than `unreadable_rows`."""
    spec = orders_spec()
    frame = frame_of(spark, spec, orders(DAY, 3)).withColumn("_ba_problem", F.when(F.col("customer") == "customer 0", F.lit("broken")))

    found, readable = tally_rows(spec, frame)[DAY], tally_rows(spec, frame.where("_ba_problem IS NULL"))[DAY]

    assert (found.rows, found.unreadable_rows) == (2, 1)
    assert found.same_content(readable)


def test_a_column_that_one_file_lacks_is_seen_beside_a_file_that_has_it(spark):
    """A column that is NULL in every row of one file is named, though another file of the same day has values."""
    spec = orders_spec()
    full = frame_of(spark, spec, orders(DAY, 2)).withColumn("_ba_home", F.lit("full"))
    lacking = frame_of(spark, spec, orders(DAY, 2, customer=None)).withColumn("_ba_home", F.lit("lacking"))

    found = tally_rows(spec, full.unionByName(lacking), {"full": DAY, "lacking": DAY})

    assert found[DAY].empty_columns == ("customer",)


def test_duplicate_keys_are_counted_by_value(spark):
    """Rows beyond the first of each key, in each partition on its own; rows in no partition are not looked at."""
    spec = orders_spec(columns={"a": "string", "b": "string", "ordered_at": "timestamp"}, key_columns=["a", "b"])
    at = {"ordered_at": datetime(2024, 1, 1, tzinfo=UTC)}
    later = {"ordered_at": datetime(2024, 1, 2, tzinfo=UTC)}
    rows = [
        {"a": "x", "b": "y", **at}, {"a": "x", "b": "y", **at}, {"a": "x", "b": "y", **at}, {"a": "x", "b": "y", **later},
        {"a": None, "b": "z", **later}, {"a": "z", "b": None, **later},  # the same hash, since it skips NULL
        {"a": None, "b": None, "ordered_at": None}, {"a": None, "b": None, "ordered_at": None},
    ]  # fmt: skip

    assert duplicate_keys_by_partition(spec, frame_of(spark, spec, rows)) == {"2024-01-01": 2}


def test_odd_column_names_are_only_names(spark, tmp_path: Path):
    """Dots, quotes and backticks in a column's name are part of the name."""
    spec = orders_spec(columns={"a.b": "int", "it's": "string", "back`tick": "int", "ordered_at": "timestamp"}, key_columns=["a.b"])
    at = datetime(2024, 1, 1, tzinfo=UTC)
    rows = spark.createDataFrame([(1, "x", 2, at, at.date())], "`a.b` int, `it's` string, `back``tick` int, ordered_at timestamp, dt date")

    assert tally_rows(spec, rows)[DAY].rows == 1
    assert duplicate_keys_by_partition(spec, rows) == {}
