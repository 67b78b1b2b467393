"""Columns that files have and the spec does not, the other way round, or with values of another kind."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_assets.errors import SchemaMismatchError
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.files.source import FilesSource
from tests.sources.files.landing import days, files_spec, source_of
from tests.support.shop import (
    COLUMNS,
    SCHEMA,
    folder_of,
    json_line,
    launch,
    orders,
    published_keys,
    refusals,
    rows_in,
    write_json,
    write_parquet,
)


def test_a_day_that_only_paths_say_is_refused(spark, tmp_path):
    """No column is read from a path: the refusal says so, and what there is to do."""
    spec = files_spec(
        columns={"order_id": "bigint not null", "taken_on": "date not null"},
        event_time="taken_on",
        source={"format": "csv", "layout": "taken_on={date}"},
    )
    folder = folder_of(tmp_path, "2024-01-01", "taken_on={year}-{month}-{day}")
    folder.mkdir(parents=True)
    (folder / "part-0.csv").write_text("order_id\n1\n")

    with pytest.raises(SchemaMismatchError) as caught:
        source_of(spark, spec, tmp_path).check_schema(days(spec, "2024-01-01"))

    assert caught.value.facts["problems"] == [
        "`taken_on` is missing (only the paths say it, as `taken_on=`, and no column is read from a path: write it into "
        "the files too, or register a kind of source of your own)",
        "its header is `order_id`",
    ]


def test_a_source_with_another_schema_is_refused_as_a_whole(spark, tmp_path):
    """If neither the oldest nor the newest file fits, nothing is read: each misfit is named."""
    spec = files_spec()
    other = pa.schema({"order_id": pa.int64(), "amount": pa.float64(), "ordered_at": pa.timestamp("us")})
    naive = [
        {**row, "amount": 1.0, "ordered_at": row["ordered_at"].replace(tzinfo=None)} for row in orders("2024-01-01")
    ]
    for day in ("2024-01-01", "2024-01-02"):
        write_parquet(folder_of(tmp_path, day), naive, schema=other)

    with pytest.raises(
        SchemaMismatchError,
        match="2024/01/02/orders.parquet` does not have the spec's columns: `customer` is missing; `amount` is `double`",
    ) as caught:
        source_of(spark, spec, tmp_path).check_schema(days(spec, "2024-01-01", "2024-01-02"))
    assert "`ordered_at` has timestamps without a zone" in str(caught.value)


def test_timestamps_without_a_zone_get_the_one_that_is_named(spark, tmp_path):
    """In Parquet and JSON alike: without a zone they are read in the named one, with a zone as they are, in one launch."""
    spec = files_spec(
        source={"timestamps_without_zone": "Europe/Berlin"},
        columns={"id": "bigint", "at": "timestamp"},
        event_time="at",
        key_columns=["id"],
    )
    as_json = files_spec(
        source={"timestamps_without_zone": "Europe/Berlin", "format": "json"},
        columns={"id": "bigint", "at": "timestamp"},
        event_time="at",
        key_columns=["id"],
    )
    naive, zoned = datetime(2024, 7, 1, 12), datetime(2024, 7, 1, 12, tzinfo=UTC)
    write_parquet(
        folder_of(tmp_path / "p", "2024-07-01"),
        [{"id": 1, "at": naive}],
        "a.parquet",
        pa.schema({"id": pa.int64(), "at": pa.timestamp("us")}),
    )
    write_parquet(
        folder_of(tmp_path / "p", "2024-07-01"),
        [{"id": 2, "at": zoned}],
        "b.parquet",
        pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "UTC")}),
    )
    write_json(
        folder_of(tmp_path / "j", "2024-07-01"),
        [
            '{"id": 1, "at": "2024-07-01T12:00:00"}',
            '{"id": 2, "at": "2024-07-01T12:00:00Z"}',
            '{"id": 3, "at": "2024-07-01 12:00:00+02:00"}',
        ],
    )

    def instants(source: FilesSource) -> dict[int, str]:
        named = days(source.spec, "2024-07-01")
        rows = source.scan(named, source.survey(named)).rows
        return {row["id"]: row["at"] for row in rows.selectExpr("id", "cast(at as string) as at").collect()}

    assert instants(source_of(spark, spec, tmp_path / "p")) == {1: "2024-07-01 10:00:00", 2: "2024-07-01 12:00:00"}
    assert instants(source_of(spark, as_json, tmp_path / "j")) == {
        1: "2024-07-01 10:00:00",
        2: "2024-07-01 12:00:00",
        3: "2024-07-01 10:00:00",
    }


@pytest.mark.prove
@pytest.mark.parametrize("format_", ["parquet", "json"])
def test_a_column_without_a_value_in_one_file(spark, tmp_path, format_):
    """Of a day's two files one has no value in a column that may be NULL, or only such as Spark would fill in: both are right."""
    spec = files_spec(source={"format": format_})
    write = write_parquet if format_ == "parquet" else write_json
    for day, customer in (("2024-01-01", "Ada"), ("2024-01-02", "x")):
        folder = folder_of(tmp_path, day)
        write(folder, orders(day, 3, customer=None, amount=None), name=f"nothing.{format_}")
        rows = [
            {**row, "order_id": row["order_id"] + 50} for row in orders(day, 3, customer=customer, amount=Decimal(0))
        ]
        write(folder, rows, name=f"something.{format_}")
    table = LakeTable(spark, spec, f"{tmp_path}-table")
    table.create()

    outcomes = launch(table, source_of(spark, spec, tmp_path), days(spec, "2024-01-01", "2024-01-02"))

    assert refusals(outcomes) == {}
    assert published_keys(outcomes) == ["2024-01-01", "2024-01-02"]
    assert sum(row["customer"] is None for row in rows_in(table.path)) == 6


@pytest.mark.prove
@pytest.mark.parametrize(
    ("format_", "named", "micros", "zone"),
    [
        ("parquet", "order_id=77", 576_565_603_200_000_000, "UTC"),
        ("parquet", "order_id=77", 2**63 - 1, "Europe/Berlin"),
        ("json", "slip.json line 1: `ordered_at` is no timestamp: 20240-", 0, "UTC"),
    ],
    ids=["year 20240", "infinity", "json"],
)
def test_a_row_of_another_age_fails_its_own_day(spark, tmp_path, format_, named, micros, zone):
    """A year of five digits, or none, which Python has no date for, is a row outside of its partition like any other, and is named.

    So is what a database writes for infinity, which no zone can move any further.
    """
    spec = files_spec(source={"format": format_}, time_zone=zone)
    for day in ("2024-01-01", "2024-01-02"):
        folder = folder_of(tmp_path, day)
        if format_ == "json":
            write_json(folder, [json_line(row) for row in orders(day)])
        else:
            write_parquet(folder, [{**row, "ordered_at": row["ordered_at"].replace(hour=12)} for row in orders(day)])
    folder = folder_of(tmp_path, "2024-01-02")
    (row,) = orders("2024-01-02", 1, order_id=77)
    if format_ == "json":
        write_json(folder, [json_line(row).replace('"2024-', '"20240-')], name="slip.json")
    else:
        slip = pa.Table.from_pylist([row], schema=SCHEMA)
        number = slip.schema.get_field_index("ordered_at")
        far = pa.array([micros]).cast(pa.timestamp("us", "UTC"))
        pq.write_table(slip.set_column(number, "ordered_at", far), folder / "slip.parquet")
    table = LakeTable(spark, spec, f"{tmp_path}-table")
    table.create()

    outcomes = launch(table, source_of(spark, spec, tmp_path), days(spec, "2024-01-01", "2024-01-02"))

    assert published_keys(outcomes) == ["2024-01-01"]
    said = refusals(outcomes)["2024-01-02"]
    assert named in said, said


def test_json_with_other_fields_is_refused_as_a_whole(spark, tmp_path):
    """If no line of the oldest and newest file has a field, nothing is read; a file of one line is enough to be sure."""
    spec = files_spec(
        source={"format": "json"},
        columns={**COLUMNS, "country": "string", "note": {"type": "string", "optional": True}},
    )
    write_json(folder_of(tmp_path, "2024-01-01"), [{**orders("2024-01-01")[0], "extra": 1}])
    source = source_of(spark, spec, tmp_path)

    with pytest.raises(SchemaMismatchError, match="does not have the spec's columns: `country` is missing\\."):
        source.check_schema(days(spec, "2024-01-01"))
