"""What Spark does not say of a Parquet file: names in other letters, types that hide others, nanoseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.files import footers
from backfill_assets.sources.files.listing import SourceFile
from backfill_assets.sources.files.observed import columns_of_file
from backfill_assets.sources.files.sample import sample_of
from tests.sources.files.landing import days, files_spec, source_of
from tests.support.shop import (
    SCHEMA,
    Row,
    folder_of,
    launch,
    orders,
    published_keys,
    refusals,
    rows_in,
    write_parquet,
)

NANOS = pa.timestamp("ns", "UTC")
INT96 = {"use_deprecated_int96_timestamps": True}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def with_type(name: str, kind: pa.DataType, schema: pa.Schema = SCHEMA) -> pa.Schema:
    return schema.set(schema.get_field_index(name), pa.field(name, kind))


def with_name(name: str, other: str, schema: pa.Schema = SCHEMA) -> pa.Schema:
    at = schema.get_field_index(name)
    return schema.set(at, schema.field(at).with_name(other))


def renamed(rows: list[Row], name: str, other: str) -> list[Row]:
    return [{other if key == name else key: value for key, value in row.items()} for row in rows]


def naive(rows: list[Row]) -> list[Row]:
    return [{**row, "ordered_at": row["ordered_at"].replace(tzinfo=None)} for row in rows]


def write_nanos(file: Path, instants: list[int], more: dict[str, Any] | None = None, **options: Any) -> None:
    """Orders at instants in nanoseconds since 1970; their row groups have two rows."""
    file.parent.mkdir(parents=True, exist_ok=True)
    count = len(instants)
    columns = {"order_id": pa.array([i // 10**3 for i in instants]), "customer": pa.nulls(count, pa.string())}
    amount = pa.nulls(count, pa.decimal128(18, 2))
    at = pa.array(instants, pa.int64()).cast(NANOS)
    table = pa.table({**columns, "amount": amount, "ordered_at": at, **(more or {})})
    pq.write_table(table, file, row_group_size=2, **options)


@pytest.fixture(scope="module")
def footer_days(spark, tmp_path_factory):
    """One launch over a day for each of the things that Spark does not say."""
    root = tmp_path_factory.mktemp("footer days")
    spec = files_spec()

    def write(day: int, rows: Any = None, schema: pa.Schema = SCHEMA, name: str = "orders.parquet") -> None:
        rows = rows or (lambda found: found)
        write_parquet(folder_of(root, f"2024-01-{day:02}"), rows(orders(f"2024-01-{day:02}")), name, schema)

    without_zone = with_type("ordered_at", pa.timestamp("us"))
    write(1)
    write(2, lambda rows: renamed(naive(rows), "ordered_at", "ORDERED_AT"), with_name("ordered_at", "ORDERED_AT", without_zone))  # fmt: skip
    write(3, lambda rows: renamed([{**row, "amount": 1.5} for row in rows], "amount", "Amount"), with_name("amount", "Amount", with_type("amount", pa.float64())))  # fmt: skip
    write(4, naive, without_zone.append(pa.field("open_from", pa.time64("us"))))
    write(5, schema=with_type("ordered_at", NANOS))
    write(6, naive, with_type("ordered_at", pa.timestamp("ns")))
    midnight = (datetime(2024, 1, 7, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) * 1000
    write_nanos(folder_of(root, "2024-01-07") / "orders.parquet", [midnight, midnight + 5 * 10**9 + 1])
    write(8, lambda rows: [{**row, "customer": None} for row in rows], with_type("customer", pa.null()))
    write(9, schema=with_type("ordered_at", NANOS).remove(1))
    write(10, schema=with_type("amount", pa.decimal128(10, 2)))
    write(11, schema=with_type("amount", pa.decimal128(30, 2)))
    write(12)
    write(12, lambda rows: [{**row, "order_id": row["order_id"] + 50, "customer": None} for row in rows], with_type("ordered_at", NANOS), "more.parquet")  # fmt: skip
    write(13, lambda rows: renamed(rows, "customer", "CUSTOMER"), with_name("customer", "CUSTOMER"))
    midnight += 7 * 86_400 * 10**9
    write_nanos(folder_of(root, "2024-01-14") / "orders.parquet", [midnight, midnight + 5 * 10**9 + 1], **INT96)
    write_parquet(folder_of(root, "2024-01-15"), orders("2024-01-15"), **INT96)
    table = LakeTable(spark, spec, f"{tmp_path_factory.mktemp('tables')}/orders")
    outcomes = launch(table, source_of(spark, spec, root), days(spec, "2024-01-01", "2024-01-15"))
    return root, table, outcomes


def test_what_spark_does_not_say_is_read_or_refused(footer_days):
    """Days whose files are odd but right are published beside those that are refused."""
    _, table, outcomes = footer_days

    assert published_keys(outcomes) == [f"2024-01-{day:02}" for day in (1, 5, 8, 10, 11, 12, 13, 15)], refusals(
        outcomes
    )
    rows = {(row["order_id"], row["customer"], row["amount"], row["ordered_at"]) for row in rows_in(table.path)}
    expected = [row for day in (1, 5, 8, 10, 11, 12, 13, 15) for row in orders(f"2024-01-{day:02}")]
    expected = [{**row, "customer": None} if row["ordered_at"].day == 8 else row for row in expected]
    expected += [{**row, "order_id": row["order_id"] + 50, "customer": None} for row in orders("2024-01-12")]
    assert rows == {(row["order_id"], row["customer"], row["amount"], row["ordered_at"]) for row in expected}


@pytest.mark.parametrize(
    ("day", "words"),
    [
        (2, "`ordered_at` has timestamps without a zone"),
        (3, "`amount` is `double`, not `decimal(18,2)` (write it as `decimal(18,2)`, or make the column `double`)"),
        (4, "`ordered_at` has timestamps without a zone"),
        (6, "`ordered_at` has timestamps without a zone"),
        (7, "1 row cannot be read. For example: {file}: `ordered_at` is no whole microsecond"),
        (9, "`{file}` has no column `customer`"),
        (
            14,
            "1 timestamps of INT96 are no whole microseconds, and a timestamp has no finer ones (`nanoseconds: cut` would "
            "cut them), first `ordered_at`: 2024-01-14 00:00:05.000000001",
        ),
    ],
    ids=[
        "capitals, no zone",
        "capitals, type",
        "beside a time",
        "nanoseconds, no zone",
        "finer",
        "lacking",
        "finer, as INT96",
    ],
)
def test_what_spark_does_not_say_is_named(footer_days, day, words):
    """The file is named, and what is wrong with its columns, or the value."""
    root, _, outcomes = footer_days

    file = f"file:{root}/2024/01/{day:02}/orders.parquet"
    said = refusals(outcomes)[f"2024-01-{day:02}"]
    assert file in said
    assert words.format(file=file) in said, said


def test_a_zone_is_given_to_times_by_any_spelling(spark, tmp_path):
    """Times without a zone are shifted by the zone that the spec gives, also where the file writes the name in capitals."""
    spec = files_spec(source={"timestamps_without_zone": "Europe/Berlin"})
    at = [{**row, "ordered_at": datetime(2024, 1, 1, 12, n)} for n, row in enumerate(orders("2024-01-01"))]
    schema = with_name("ordered_at", "ORDERED_AT", with_type("ordered_at", pa.timestamp("us")))
    write_parquet(folder_of(tmp_path / "in", "2024-01-01"), renamed(at, "ordered_at", "ORDERED_AT"), schema=schema)
    table = LakeTable(spark, spec, f"{tmp_path}/table")
    outcomes = launch(table, source_of(spark, spec, tmp_path / "in"), days(spec, "2024-01-01", "2024-01-01"))
    assert published_keys(outcomes) == ["2024-01-01"], refusals(outcomes)
    assert {row["ordered_at"].hour for row in rows_in(table.path)} == {11}


@pytest.mark.prove
def test_nanoseconds_are_cut_towards_the_past(spark, tmp_path):
    """Cut nanoseconds stay in the partition in which they lie, before 1970 too, in files that may hold any partition."""
    spec = files_spec(
        source={"layout": "flat", "complete_until": "1970-01-03", "nanoseconds": "cut"}, start="1969-12-30"
    )
    day = 86_400 * 10**9
    edges = [edge + step for edge in (-2 * day, -day, 0, day) for step in (-1, 0, 1001)][1:]
    write_nanos(tmp_path / "in/a.parquet", edges[::2])
    write_nanos(tmp_path / "in/b.parquet", edges[1::2], {"opened": pa.nulls(len(edges[1::2]), pa.time32("ms"))})
    write_nanos(tmp_path / "in/c.parquet", [-1_500], **INT96)
    at = [{"order_id": 5, "customer": "c", "amount": Decimal(1), "ordered_at": datetime(1970, 1, 1, 12, tzinfo=UTC)}]
    write_parquet(tmp_path / "in", at, "micros.parquet")
    table = LakeTable(spark, spec, f"{tmp_path}/table")
    exact = files_spec(source={"layout": "flat", "complete_until": "1970-01-03"}, start="1969-12-30")
    refused = LakeTable(spark, exact, f"{tmp_path}/refused")
    named = days(spec, "1969-12-30", "1970-01-02")

    outcomes = launch(table, source_of(spark, spec, tmp_path / "in"), named)

    assert refusals(outcomes) == {}
    floors = [EPOCH + timedelta(microseconds=nanos // 1000) for nanos in [*edges, -1_500]]
    got = {row["ordered_at"]: str(row["dt"]) for row in rows_in(table.path)}
    assert got == {instant: str(instant.date()) for instant in [*floors, at[0]["ordered_at"]]}
    said = refusals(launch(refused, source_of(spark, exact, tmp_path / "in"), named[1:2]))
    assert "a.parquet` cannot be read; they could belong to any partition" in said["1969-12-31"], said
    assert "1969-12-30 23:59:59.999999999" in said["1969-12-31"]


def test_footers_are_the_same_from_afar(spark, tmp_path, monkeypatch):
    """The footer of a file that does not lie on this machine comes through Spark, and says the same; garbage says nothing."""
    write_nanos(tmp_path / "2024/01/01/a.parquet", [0])
    (tmp_path / "2024/01/01/b.parquet").write_bytes(b"PAR1 \xff\xff\xff\xff no PAR1")
    (tmp_path / "2024/01/01/c.parquet").write_bytes(b"x")
    source = source_of(spark, files_spec(start="1970-01-01"), tmp_path)
    files = source._list().files
    here = footers.footers_of(spark, files)
    monkeypatch.setattr(footers, "seen_as_spark_does", lambda *_: None)

    assert footers.footers_of(spark, files) == here
    assert [Path(file.path).name for file in here] == ["a.parquet"]
    assert [column.kind for found in here.values() for column in found.columns][-1] == "timestamp(9)"


def test_schemas_are_proposed_of_such_files(spark, tmp_path):
    """`schema` and `init` see types that Spark does not name: instants in nanoseconds are instants, also in a sample."""
    more = {"opened": pa.array([1], pa.time64("us")), "seen": pa.array([2], pa.uint64()), "none": pa.nulls(1)}
    write_nanos(tmp_path / "1970/01/01/a.parquet", [1_000_000], more)
    (file,) = source_of(spark, files_spec(start="1970-01-01"), tmp_path)._list().files
    assert isinstance(file, SourceFile)

    kinds = columns_of_file(spark, "parquet", file)
    (row,) = sample_of(spark, "bronze/orders", str(tmp_path)).rows

    assert kinds == {
        "order_id": "bigint",
        "customer": "string",
        "amount": "decimal(18,2)",
        "ordered_at": "timestamp",
        "opened": "time",
        "seen": "decimal(20,0)",
    }
    assert (row[1]["ordered_at"], row[1]["seen"]) == ("1970-01-01 00:00:00.001", Decimal(2))


@pytest.mark.prove
@pytest.mark.parametrize("options", [{}, INT96], ids=["INT64", "INT96"])
def test_instants_of_long_ago_are_read_as_they_stand(spark, tmp_path, options):
    """What lies before 1582, among the days that another calendar skipped, or before 1900 is not moved."""
    instants = [
        datetime(1500, 3, 1, 12, tzinfo=UTC),
        datetime(1582, 10, 10, 0, 0, 0, 1, tzinfo=UTC),
        datetime(1899, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ]
    rows = [{**orders("2024-01-01")[0], "order_id": number, "ordered_at": at} for number, at in enumerate(instants)]
    flat = {"layout": "flat", "complete_until": "1900-01-01"}
    spec = files_spec(source=flat, start="1500-01-01", grain="monthly")
    write_parquet(tmp_path / "in", rows, **options)
    table = LakeTable(spark, spec, f"{tmp_path}/table")
    outcomes = launch(table, source_of(spark, spec, tmp_path / "in"), [spec.grid.partition_of(at) for at in instants])
    assert refusals(outcomes) == {}
    assert sorted(row["ordered_at"] for row in rows_in(table.path)) == instants


@pytest.mark.prove
@pytest.mark.parametrize("unit", ["us", "ns"])
def test_a_local_time_that_clocks_skip_is_refused(spark, tmp_path, unit):
    """As of a text: there is no such instant, and the one that Spark would take is that of another local time."""
    spec = files_spec(source={"timestamps_without_zone": "Europe/Berlin"}, time_zone="Europe/Berlin")
    for day, first in (("2024-03-31", 2), ("2024-10-27", 2)):
        local = [datetime(*map(int, day.split("-")), hour, 30) for hour in (first, first + 1)]
        rows = [{**row, "ordered_at": at} for row, at in zip(orders(day, 2), local, strict=True)]
        write_parquet(folder_of(tmp_path / "in", day), rows, schema=with_type("ordered_at", pa.timestamp(unit)))
    table = LakeTable(spark, spec, f"{tmp_path}/table")
    named = [*days(spec, "2024-03-31"), *days(spec, "2024-10-27")]

    outcomes = launch(table, source_of(spark, spec, tmp_path / "in"), named)

    assert published_keys(outcomes) == ["2024-10-27"]
    said = "`ordered_at` is a time that the clocks of Europe/Berlin skip: 2024-03-31 02:30:00.000000"
    assert said in refusals(outcomes)["2024-03-31"]
    instants = [datetime(2024, 10, 27, 0, 30, tzinfo=UTC), datetime(2024, 10, 27, 2, 30, tzinfo=UTC)]
    assert sorted(row["ordered_at"] for row in rows_in(table.path)) == instants
