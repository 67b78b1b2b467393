"""In which partition a row is counted, and what is counted of rows that are wrong."""

from __future__ import annotations

from datetime import UTC, date, datetime

from pyspark.sql import functions as F

from backfill_assets.lake.tally import duplicate_keys_by_partition, tally_rows
from backfill_assets.spark.expressions import partition_value
from tests.support.shop import frame_of, orders, orders_spec

DAY = "2024-01-01"


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
    columns = [
        partition_value(spec, F.col("ordered_at")).cast("string").alias(f"{g} {z}") for (g, z), spec in specs.items()
    ]

    for row in instants.select("i", *columns).collect():
        instant = EDGES[row["i"]]
        found = {name: row[name] for name in row.asDict() if name != "i"}
        assert found == {f"{g} {z}": str(spec.grid.partition_of(instant).value) for (g, z), spec in specs.items()}, (
            instant
        )


def test_dates_as_event_time_are_days_of_the_table(spark):
    """A DATE is a day of the table's zone as it is; weeks start on Monday, months on the first."""
    columns = {"order_id": "bigint", "day": "date"}
    specs = {
        grain: orders_spec(columns=columns, event_time="day", grain=grain, start=start, time_zone="Asia/Kolkata")
        for grain, start in {"daily": "2023-01-01", "weekly": "2023-01-02", "monthly": "2023-01-01"}.items()
    }
    days = spark.createDataFrame([(date(2024, 2, 29),), (date(2023, 12, 31),), (date(2024, 1, 1),)], "day date")

    found = [
        tuple(map(str, row))
        for row in days.select(*(partition_value(spec, F.col("day")) for spec in specs.values())).collect()
    ]

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
        frame_of(
            spark, spec, [*orders(DAY, 2), *orders("2024-01-02", 1), *orders(DAY, 1, ordered_at=None, order_id=None)]
        ).withColumn("_ba_file_id", F.lit("a file")),
        {"a file": DAY},
    )

    assert list(found) == [DAY]
    assert (found[DAY].rows, found[DAY].stray_rows, found[DAY].null_keys) == (4, 1, 1)
    assert found[DAY].nulls == {"order_id": 1, "ordered_at": 1}


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
