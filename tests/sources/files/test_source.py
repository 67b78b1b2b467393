"""History in files: which of them are read, what is found wrong with them, and that one bad day spoils no other."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.publish import Outcome, Published
from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.surveys import Survey
from backfill_assets.errors import (
    SchemaMismatchError,
    SourceChangedError,
    SourceIncompleteError,
    SourceMissingError,
    SourceRepeatedError,
)
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.files.source import FilesSource
from tests.support.shop import (
    COLUMNS,
    SCHEMA,
    Row,
    content,
    folder_of,
    json_line,
    launch,
    left_out,
    multiset,
    orders,
    orders_spec,
    published_keys,
    refusals,
    rows_in,
    write_json,
    write_parquet,
)

Make = Callable[..., tuple[LakeTable, FilesSource]]


def files_spec(*, source: dict[str, Any] | None = None, **changes: Any) -> TableSpec:
    facts = {"kind": "files", "path": "orders", "format": "parquet", **(source or {})}
    return orders_spec(source=facts, **changes)


def source_of(spark: SparkSession, spec: TableSpec, root: Path | str) -> FilesSource:
    assert isinstance(spec.source, FilesSpec)
    return FilesSource(spark, spec, spec.source, str(root))


def days(spec: TableSpec, first: str, last: str | None = None) -> list[Partition]:
    return spec.grid.between(first, last or first)


def staged_rows(source: FilesSource, partitions: list[Partition]) -> list[Row]:
    """What a source stages, read at once."""
    return [row.asDict() for row in source.scan(partitions, source.survey(partitions)).rows.collect()]


# -- which files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "folders"),
    [
        ("year/month/day", "{year}/{month}/{day}"),
        ("hive", "year={year}/month={month}/day={day}"),
        ("dt={date}", "dt={date}"),
        ("eu/{year}-{month}/{day}", "eu/{year}-{month}/{day}"),
    ],
)
def test_layouts(spark, tmp_path, layout, folders):
    """Folders are found as the layout names them; files beside dated folders, and hidden ones, belong to no day."""
    spec = files_spec(source={"layout": layout})
    for day in ("2024-01-31", "2024-02-01"):
        write_parquet(folder_of(tmp_path, day, folders), orders(day))
    write_parquet(folder_of(tmp_path, "2024-02-01", folders), orders("2024-02-01"), name="_hidden.parquet")
    write_parquet(folder_of(tmp_path, "2024-02-01", folders) / "_temporary", orders("2024-02-01"))
    write_parquet(tmp_path, orders("2024-02-01"), name="index.parquet")
    write_parquet(tmp_path / "2024" / "99" / "99", orders("2024-02-01"))
    source = source_of(spark, spec, tmp_path)

    surveys = source.survey(days(spec, "2024-01-30", "2024-02-01"))

    assert {key: len(survey.content) for key, survey in surveys.items()} == {
        "2024-01-30": 0,
        "2024-01-31": 1,
        "2024-02-01": 1,
    }
    assert source.complete_until() == datetime(2024, 2, 2, tzinfo=UTC)


def test_folders_below_a_day_and_months_without_a_zero(spark, tmp_path):
    """`2024/2/1` is the first of February, and folders below a day belong to it."""
    spec = files_spec()
    write_parquet(tmp_path / "2024" / "2" / "1", orders("2024-02-01", 2))
    write_parquet(tmp_path / "2024" / "02" / "01" / "part", orders("2024-02-01", 1, order_id=7), name="more.parquet")

    assert {row["order_id"] for row in staged_rows(source_of(spark, spec, tmp_path), days(spec, "2024-02-01"))} == {
        7, *(row["order_id"] for row in orders("2024-02-01", 2))
    }  # fmt: skip


def test_odd_names_are_only_names(spark, tmp_path):
    """Spaces, plus, percent, non-Latin letters and what a shell takes for patterns: such files are read, counted and named."""
    spec = files_spec()
    root = tmp_path / "a b+c%20 [x] ü漢"
    for number, name in enumerate(["a b.parquet", "p+q%41.parquet", "{x,y}.parquet", "[ab]?.parquet", "ü漢*.parquet"]):
        write_parquet(folder_of(root, "2024-01-01"), orders("2024-01-01", 1, order_id=number), name=name)
    write_parquet(folder_of(root, "2024-01-02"), orders("2024-01-01", 1, order_id=9), name="wrong day [x] ü.parquet")
    table = LakeTable(spark, spec, f"{tmp_path}/table")
    table.create()

    for form in (str(root), f"file://{root}/"):
        outcomes = launch(table, source_of(spark, spec, form), days(spec, "2024-01-01", "2024-01-02"))

        assert published_keys(outcomes) == ["2024-01-01"]
        assert {row["order_id"] for row in rows_in(table.path)} == {0, 1, 2, 3, 4}
        assert "order_id=9 at 2024-01-01 00:00:00Z (belongs to 2024-01-01)" in refusals(outcomes)["2024-01-02"]
        assert f"{root}/2024/01/02" in refusals(outcomes)["2024-01-02"]


def test_summaries_of_parquet_files_are_no_data(spark, tmp_path):
    """`_metadata` and `_common_metadata`, which dask and older Spark write, are not looked at, unlike anywhere else in Spark."""
    spec = files_spec()
    folder = folder_of(tmp_path, "2024-01-01")
    write_parquet(folder, orders("2024-01-01"))
    for name in ("_metadata", "_common_metadata"):
        (folder / name).write_bytes(b"no parquet")
        (tmp_path / name).touch()
    source = source_of(spark, spec, tmp_path)
    assert len(staged_rows(source, days(spec, "2024-01-01", "2024-01-01"))) == 3


def test_a_file_that_a_link_repeats_is_refused(spark, tmp_path):
    """A link inside of a day's folder to that folder has Spark read each file forty times; a link elsewhere repeats nothing."""
    spec = files_spec(key_columns=[])
    folder = folder_of(tmp_path / "landing", "2024-01-01")
    write_parquet(folder, orders("2024-01-01"))
    elsewhere = write_parquet(tmp_path / "elsewhere", orders("2024-01-02"))
    (tmp_path / "landing/2024/01/02").symlink_to(elsewhere.parent)
    source = source_of(spark, spec, tmp_path / "landing")
    assert len(staged_rows(source, days(spec, "2024-01-01", "2024-01-02"))) == 6

    (folder / "again").symlink_to(folder)
    with pytest.raises(SourceRepeatedError, match=r"orders.parquet` are one file, by a link"):
        source_of(spark, spec, tmp_path / "landing").survey(days(spec, "2024-01-01", "2024-01-02"))


def test_only_the_files_of_the_partitions_are_read(spark, tmp_path):
    """Garbage beside the named partitions is not opened."""
    spec = files_spec()
    write_parquet(folder_of(tmp_path, "2024-01-02"), orders("2024-01-02"))
    for day in ("2024-01-01", "2024-01-03"):
        folder_of(tmp_path, day).mkdir(parents=True)
        (folder_of(tmp_path, day) / "garbage.parquet").write_text("no Parquet")

    assert len(staged_rows(source_of(spark, spec, tmp_path), days(spec, "2024-01-02"))) == 3


def test_a_missing_root_is_said(spark, tmp_path):
    """A root that is not there is an error of its own, with its name."""
    with pytest.raises(SourceMissingError, match=f"the folder `{tmp_path}/nowhere` is not there") as caught:
        source_of(spark, files_spec(), tmp_path / "nowhere").complete_until()
    assert "landing/" in caught.value.remedy


def test_the_fingerprint_follows_the_files(spark, tmp_path):
    """Another length, another time of modification, one file more or less: another fingerprint; the neighbour keeps its own."""
    spec = files_spec()
    first = write_parquet(folder_of(tmp_path, "2024-01-01"), orders("2024-01-01"))
    write_parquet(folder_of(tmp_path, "2024-01-02"), orders("2024-01-02"))
    source = source_of(spark, spec, tmp_path)

    def look() -> dict[str, Survey]:
        return source.survey(days(spec, "2024-01-01", "2024-01-02"))

    seen = [look()]
    assert look() == seen[0]
    assert seen[0]["2024-01-01"].size_bytes == first.stat().st_size
    os.utime(first, (1_700_000_000, 1_700_000_000))
    seen.append(look())
    write_parquet(first.parent, orders("2024-01-01", 50))
    os.utime(first, (1_700_000_000, 1_700_000_000))
    seen.append(look())
    second = write_parquet(first.parent, orders("2024-01-01", 1), name="more.parquet")
    seen.append(look())
    second.unlink()

    assert look()["2024-01-01"] == seen[2]["2024-01-01"]
    assert len({survey["2024-01-01"].fingerprint for survey in seen}) == 4
    assert len({survey["2024-01-02"].fingerprint for survey in seen}) == 1


def test_a_survey_says_when_the_files_changed(spark, tmp_path):
    """A partition's content changed when the newest of its files did; where there are none nobody can say."""
    spec = files_spec()
    for name, seconds in (("old.parquet", 1_700_000_000), ("new.parquet", 1_700_000_060)):
        file = write_parquet(folder_of(tmp_path, "2024-01-01"), orders("2024-01-01"), name=name)
        os.utime(file, (seconds, seconds))
    seen = source_of(spark, spec, tmp_path).survey(days(spec, "2024-01-01", "2024-01-02"))
    assert seen["2024-01-01"].changed_utc == datetime.fromtimestamp(1_700_000_060, tz=UTC)
    assert seen["2024-01-02"].changed_utc is None


def test_complete_until(spark, tmp_path):
    """The end of the newest day with files, in the table's zone; with `success_marker` of the newest day that has one."""
    berlin = {"time_zone": "Europe/Berlin"}
    marked = files_spec(source={"complete_when": "success_marker"})
    assert source_of(spark, files_spec(), tmp_path).complete_until() is None
    for day in ("2024-03-30", "2024-03-31", "2024-04-01"):
        write_parquet(folder_of(tmp_path, day), orders(day))

    assert source_of(spark, files_spec(), tmp_path).complete_until() == datetime(2024, 4, 2, tzinfo=UTC)
    assert source_of(spark, files_spec(**berlin), tmp_path).complete_until() == datetime(2024, 4, 1, 22, tzinfo=UTC)
    assert source_of(spark, marked, tmp_path).complete_until() is None
    (folder_of(tmp_path, "2024-03-30") / "_SUCCESS").touch()
    (folder_of(tmp_path, "2024-03-31") / "_SUCCESS").touch()
    assert source_of(spark, marked, tmp_path).complete_until() == datetime(2024, 4, 1, tzinfo=UTC)
    with pytest.raises(SourceIncompleteError, match="complete up to `2024-04-01T00:00:00"):
        launch(LakeTable(spark, marked, str(tmp_path)), source_of(spark, marked, tmp_path), days(marked, "2024-04-01"))


def test_days_of_a_week_make_one_partition(spark, tmp_path):
    """A weekly partition is made of the folders of its seven days; a day that is lacking is named."""
    spec = files_spec(grain="weekly", start="2024-01-01")
    for day in range(1, 8):
        if day != 4:
            write_parquet(folder_of(tmp_path, f"2024-01-0{day}"), orders(f"2024-01-0{day}", 1))
    source = source_of(spark, spec, tmp_path)
    week = days(spec, "2024-01-01")

    (evidence,) = source.scan(week, source.survey(week)).evidence.values()

    assert evidence.raw_rows == 6
    assert [finding.what for finding in evidence.findings] == [
        f"there is no folder `{tmp_path}/2024/01/04`; `gaps: allowed` would take such days for days without rows."
    ]
    folder_of(tmp_path, "2024-01-04").mkdir()
    assert not source.scan(week, source.survey(week)).evidence["2024-01-01"].findings


# -- Parquet: every kind of bad day in one launch ----------------------------------------------------------------------


def corrupt(path: Path, at: float) -> None:
    """Overwrite bytes in the middle of a file; its length and footer stay."""
    data = bytearray(path.read_bytes())
    start = int(len(data) * at)
    data[start : start + 2000] = os.urandom(2000)
    path.write_bytes(data)


MANY = [{**row, "customer": os.urandom(30).hex()} for row in orders("2024-01-04", 5000)]
MANY = [{**row, "ordered_at": datetime(2024, 1, 4, tzinfo=UTC) + timedelta(seconds=i)} for i, row in enumerate(MANY)]
WIDER = {**COLUMNS, "quantity": "smallint", "note": {"type": "string", "optional": True}}
WIDE_SCHEMA = SCHEMA.append(pa.field("quantity", pa.int16()))
GOOD_PARQUET = ["2024-01-01", "2024-01-16", "2024-01-17"]


@pytest.fixture(scope="module")
def parquet_days(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, LakeTable, list[Outcome], list[str]]:
    """One launch over seventeen days, most of them bad, each in its own way."""
    root = tmp_path_factory.mktemp("parquet days")
    spec = files_spec(columns=WIDER, source={"path": str(root)})

    def folder(day: int) -> Path:
        return folder_of(root, f"2024-01-{day:02}")

    def write(
        day: int,
        rows: list[Row] | None = None,
        name: str = "orders.parquet",
        schema: pa.Schema = WIDE_SCHEMA,
        **options: Any,
    ) -> Path:
        rows = orders(f"2024-01-{day:02}") if rows is None else rows
        return write_parquet(folder(day), [{"quantity": 1, **row} for row in rows], name, schema, **options)

    def typed(name: str, kind: pa.DataType) -> pa.Schema:
        return WIDE_SCHEMA.set(WIDE_SCHEMA.get_field_index(name), pa.field(name, kind))

    write(1)
    write(2, [*orders("2024-01-02"), *orders("2024-01-01", 1)])
    whole = write(3).read_bytes()
    (folder(3) / "orders.parquet").write_bytes(whole[: len(whole) - 20])
    corrupt(write(4, MANY, row_group_size=1000, compression="zstd"), at=0.6)
    folder(5).mkdir(parents=True)
    (folder(5) / "orders.parquet").write_text("this is no Parquet file, but somebody named it so")
    write(6)
    (folder(6) / "more.parquet").write_bytes(b"")
    write(8)
    write(
        8,
        orders("2024-01-08", 1, order_id=1),
        "without.parquet",
        WIDE_SCHEMA.remove(WIDE_SCHEMA.get_field_index("customer")),
    )
    write(
        9, [{**row, "amount": str(row["amount"])} for row in orders("2024-01-09")], schema=typed("amount", pa.string())
    )
    write(
        10,
        [{**row, "ordered_at": row["ordered_at"].replace(tzinfo=None)} for row in orders("2024-01-10")],
        schema=typed("ordered_at", pa.timestamp("us")),
    )
    write(11, [*orders("2024-01-11"), orders("2024-01-11")[0]])
    write(12, [*orders("2024-01-12"), *orders("2024-01-12", 2, ordered_at=None, order_id=5)])
    write(13, [{**row, "quantity": 70_000} for row in orders("2024-01-13")], schema=typed("quantity", pa.int32()))
    write(14, [*orders("2024-01-14"), *orders("2024-01-14", 1, order_id=None)])
    folder(15).mkdir(parents=True)
    write(
        16,
        [{**row, "note": "from the file", "extra": 1.5} for row in orders("2024-01-16")],
        schema=WIDE_SCHEMA.append(pa.field("note", pa.string())).append(pa.field("extra", pa.float64())),
    )
    write(17)
    table = LakeTable(spark, spec, f"{tmp_path_factory.mktemp('tables')}/orders")
    table.create()
    frame = spark.createDataFrame(
        [
            (1, "old", Decimal(1), datetime(2024, 1, d, tzinfo=UTC), 1, None, datetime(2024, 1, d).date())
            for d in range(1, 16)
        ],
        table.schema(),
    )
    frame.write.format("delta").mode("append").save(table.path)
    said: list[str] = []
    outcomes = launch(table, source_of(spark, spec, root), days(spec, "2024-01-01", "2024-01-17"), log=said.append)
    return root, table, outcomes, said


def test_good_days_are_published_beside_bad_ones(parquet_days):
    """One launch publishes every day that is sound, in one commit; every other day keeps what it had."""
    _, table, outcomes, _ = parquet_days

    assert published_keys(outcomes) == GOOD_PARQUET
    (publish,) = [outcome for outcome in outcomes if isinstance(outcome, Published)]
    assert publish.commit.version == 2
    kept = [
        {"order_id": 1, "customer": "old", "amount": Decimal(1), "ordered_at": datetime(2024, 1, d, tzinfo=UTC)}
        for d in range(2, 16)
    ]
    assert content(table.path) == multiset([*kept, *(row for day in GOOD_PARQUET for row in orders(day))])


@pytest.mark.parametrize(
    ("day", "words"),
    [
        (2, ["rows_inside_partition: 1 row of 4 has an event time outside 2024-01-02", "(belongs to 2024-01-01)", "{root}/2024/01/02"]),
        (3, ["files_are_readable", "{root}/2024/01/03/orders.parquet` cannot be read at its footer"]),
        (4, ["files_are_readable", "{root}/2024/01/04/orders.parquet` cannot be read after row", " of 5,000 ("]),
        (5, ["files_are_readable", "{root}/2024/01/05/orders.parquet` cannot be read at its footer", "not a Parquet file"]),
        (6, ["files_are_readable", "{root}/2024/01/06/more.parquet` has 0 bytes"]),
        (7, ["source_is_present: there is no folder `{root}/2024/01/07`", "`gaps: allowed`"]),
        (8, ["schema_matches", "{root}/2024/01/08/without.parquet` has no column `customer`; `optional: true`"]),
        (9, ["schema_matches", "{root}/2024/01/09/orders.parquet`: `amount` is `string`, not `decimal(18,2)`"]),
        (10, ["schema_matches", "{root}/2024/01/10/orders.parquet`: `ordered_at` has timestamps without a zone", "`source.timestamps_without_zone`"]),
        (11, ["keys_are_unique: 1 row repeats a key (`order_id`)", "order_id={key}"]),
        (12, ["required_columns_are_filled: `ordered_at` is NULL in 2 rows", "order_id=5 at None"]),
        (13, ["schema_matches", "{root}/2024/01/13/orders.parquet`: `quantity` is `int`, not `smallint`"]),
        (14, ["required_columns_are_filled: `order_id` is NULL in 1 row", "order_id=None at 2024-01-14 00:00:00Z"]),
        (15, ["partition_is_not_emptied: the source has no rows, and the table has 1", "`empty: allowed`"]),
    ],
    ids=["wrong day", "truncated", "corrupt page", "garbage", "zero bytes", "no folder", "column lacking", "type", "no zone", "duplicate", "no event time", "narrower", "no key", "empty folder"],
)  # fmt: skip
def test_a_bad_parquet_day_is_named(parquet_days, day, words):
    """What is wrong with a day is said with its file or folder, the place in it and the rows."""
    root, _, outcomes, _ = parquet_days

    said = refusals(outcomes)[f"2024-01-{day:02}"]

    for part in words:
        assert part.format(root=root, key=orders("2024-01-11")[0]["order_id"]) in said, said


def test_nothing_else_is_said_of_a_bad_day(parquet_days):
    """Each bad day fails by one rule: what is wrong with it does not show up as something else as well."""
    _, _, outcomes, _ = parquet_days

    found = {o.verdict.partition.key: [f.rule for f in o.verdict.findings] for o in outcomes if hasattr(o, "verdict")}
    assert {key: rules for key, rules in found.items() if len(set(rules)) != 1} == {}


def test_an_optional_column_is_null_and_an_extra_one_left_out(parquet_days):
    """A column that files may lack is NULL where they do; one that the spec does not name is remarked on by check_schema."""
    _, table, _, _ = parquet_days

    notes = {str(row["dt"]): row["note"] for row in rows_in(table.path) if str(row["dt"]) in GOOD_PARQUET}
    assert notes == {"2024-01-01": None, "2024-01-16": "from the file", "2024-01-17": None}


def test_extra_columns_are_remarked_on(spark, tmp_path):
    """A column that the spec does not name is left out, with a remark that names it."""
    spec = files_spec()
    write_parquet(
        folder_of(tmp_path, "2024-01-01"),
        [{**row, "extra": 1} for row in orders("2024-01-01")],
        schema=SCHEMA.append(pa.field("extra", pa.int8())),
    )

    assert source_of(spark, spec, tmp_path).check_schema(days(spec, "2024-01-01")) == [
        "`bronze/orders`: the files also have ['extra'], which the spec does not name; left out. "
        "`backfill-assets schema bronze/orders` proposes the lines that would take them."
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


def test_gaps_may_be_allowed(spark, tmp_path):
    """With `gaps: allowed` a day without a folder has no rows; with `empty: allowed` it may replace rows."""
    spec = files_spec(source={"gaps": "allowed"}, empty="allowed")
    for day in ("2024-01-01", "2024-01-03"):
        write_parquet(folder_of(tmp_path / "in", day), orders(day))
    table = LakeTable(spark, spec, f"{tmp_path}/table")
    table.create()

    outcomes = launch(table, source_of(spark, spec, tmp_path / "in"), days(spec, "2024-01-01", "2024-01-04"))

    assert published_keys(outcomes) == ["2024-01-01", "2024-01-02", "2024-01-03"]
    assert list(left_out(outcomes)) == ["2024-01-04"]
    assert table.published()["2024-01-02"].partition.rows == 0
    assert content(table.path) == multiset([*orders("2024-01-01"), *orders("2024-01-03")])


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


def test_a_file_that_goes_away_is_a_change_of_the_source(spark, tmp_path):
    """A file that is gone between the survey and the read says that the source changed, which a retry helps."""
    spec = files_spec()
    path = write_parquet(folder_of(tmp_path, "2024-01-01"), orders("2024-01-01"))
    source, named = source_of(spark, spec, tmp_path), days(spec, "2024-01-01")
    surveys = source.survey(named)
    path.unlink()

    with pytest.raises(SourceChangedError, match="taken away while it was read"):
        source.scan(named, surveys)


def test_a_file_that_is_put_right_is_read_again(spark, tmp_path):
    """What is known against a file is known of that very content: mended, it is read in the same launch."""
    spec = files_spec()
    path = write_parquet(folder_of(tmp_path, "2024-01-01"), orders("2024-01-01"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    source, named = source_of(spark, spec, tmp_path), days(spec, "2024-01-01")
    assert source.set_aside_unreadable(source.survey(named))
    assert source.scan(named, source.survey(named)).evidence["2024-01-01"].findings

    path.write_bytes(whole)

    assert len(staged_rows(source, named)) == 3
    assert not source.scan(named, source.survey(named)).evidence["2024-01-01"].findings


# -- JSON: every kind of bad day in one launch -------------------------------------------------------------------------

JSON_COLUMNS = {**COLUMNS, "rate": "decimal(38,10)", "day": "date", "flag": "boolean"}


@pytest.fixture(scope="module")
def json_days(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LakeTable, list[Outcome]]:
    """One launch over days of JSON, most of them bad, each in its own way."""
    root = tmp_path_factory.mktemp("json days")
    spec = files_spec(columns=JSON_COLUMNS, source={"format": "json", "path": str(root)})

    def full(on: int, count: int = 3, **same: Any) -> list[Row]:
        return [
            {
                **row,
                "rate": Decimal("1234567890123456789012345678.0123456789"),
                "day": "2024-01-01",
                "flag": True,
                **same,
            }
            for row in orders(f"2024-01-{on:02}", count)
        ]

    def write(day: int, *lines: Row | str, name: str = "orders.json") -> None:
        write_json(folder_of(root, f"2024-01-{day:02}"), [*full(day), *lines], name)

    def line(on: int, **values: Any) -> str:
        return json_line({**full(on, 1, order_id=99)[0], **values})

    write(1, "", "   ", "\t", full(1, 1, order_id=8)[0])
    write(2, line(2)[:-10])
    write(3, line(3, amount=Decimal("1.005")))
    write(4, line(4, amount="a lot"))
    write(5, f"[{line(5)}, {line(5, order_id=98)}]")
    write(6, line(6) + line(6, order_id=98))
    write(7, line(7, ordered_at="2024-01-07T00:00:00"))
    write(8, line(8, order_id="12.5"))
    write(9, "null", '"text"', "5", "[]")
    write(
        10,
        *(json_line({n: v for n, v in row.items() if n != "customer"}) for row in full(10, 2, order_id=5)),
        name="orders.json",
    )
    write_json(
        folder_of(root, "2024-01-10"),
        [{n: v for n, v in row.items() if n != "customer"} for row in full(10, 2, order_id=6)],
        "without.json",
    )
    write(11, line(11, day="2024-01-01T10:00:00Z"))
    write(12, line(12, amount=Decimal("10000000000000000.00")))
    write(13, line(13, flag="yes"))
    folder_of(root, "2024-01-14").mkdir()
    packed = gzip.compress(
        "".join(json_line({**row, "customer": os.urandom(20).hex()}) + "\n" for row in full(14, 400)).encode()
    )
    (folder_of(root, "2024-01-14") / "orders.json.gz").write_bytes(packed[: len(packed) // 2])
    write(
        15,
        json_line(
            {
                **full(15, 1, order_id=7)[0],
                "amount": Decimal("1.500"),
                "customer": '"}{"',
                "unknown": [{"a": 1}, {"b": 2}],
            }
        ),
    )
    (folder_of(root, "2024-01-16")).mkdir()
    (folder_of(root, "2024-01-16") / "orders.json.gz").write_bytes(
        gzip.compress("".join(json_line(row) + "\n" for row in full(16)).encode())
    )
    table = LakeTable(spark, spec, f"{tmp_path_factory.mktemp('tables')}/orders")
    table.create()
    return root, table, launch(table, source_of(spark, spec, root), days(spec, "2024-01-01", "2024-01-16"))


@pytest.mark.parametrize("format_", ["parquet", "json"])
def test_a_column_without_a_value_in_one_file(spark, tmp_path, format_):
    """Of a day's two files one has no value in a column that may be NULL, or only such as Spark would fill in: both are right."""
    spec = files_spec(source={"format": format_})
    write = write_parquet if format_ == "parquet" else write_json
    for day, customer in (("2024-01-01", "Ada"), ("2024-01-02", "x"), ("2024-01-03", "y")):
        folder = folder_of(tmp_path, day)
        write(folder, orders(day, 3, customer=None, amount=None), name=f"nothing.{format_}")
        rows = [
            {**row, "order_id": row["order_id"] + 50} for row in orders(day, 3, customer=customer, amount=Decimal(0))
        ]
        write(folder, rows, name=f"something.{format_}")
    table = LakeTable(spark, spec, f"{tmp_path}/table")
    table.create()

    outcomes = launch(table, source_of(spark, spec, tmp_path), days(spec, "2024-01-01", "2024-01-03"))

    assert refusals(outcomes) == {}
    assert published_keys(outcomes) == ["2024-01-01", "2024-01-02", "2024-01-03"]
    assert sum(row["customer"] is None for row in rows_in(table.path)) == 9


@pytest.mark.parametrize("format_", ["parquet", "json"])
def test_a_row_of_another_age_fails_its_own_day(spark, tmp_path, format_):
    """A year of five digits, which Python has no date for, is a row outside of its partition like any other, and is named."""
    spec = files_spec(source={"format": format_})
    for day in ("2024-01-01", "2024-01-02"):
        folder = folder_of(tmp_path, day)
        if format_ == "json":
            write_json(folder, [json_line(row) for row in orders(day)])
        else:
            write_parquet(folder, orders(day))
    folder = folder_of(tmp_path, "2024-01-02")
    (row,) = orders("2024-01-02", 1, order_id=77)
    if format_ == "json":
        write_json(folder, [json_line(row).replace('"2024-', '"20240-')], name="slip.json")
    else:
        slip = pa.Table.from_pylist([row], schema=SCHEMA)
        number = slip.schema.get_field_index("ordered_at")
        far = pa.array([576_565_603_200_000_000]).cast(pa.timestamp("us", "UTC"))
        pq.write_table(slip.set_column(number, "ordered_at", far), folder / "slip.parquet")
    table = LakeTable(spark, spec, f"{tmp_path}/table")
    table.create()

    outcomes = launch(table, source_of(spark, spec, tmp_path), days(spec, "2024-01-01", "2024-01-02"))

    assert published_keys(outcomes) == ["2024-01-01"]
    said = refusals(outcomes)["2024-01-02"]
    assert "order_id=77" in said, said


def test_good_json_days_are_published_beside_bad_ones(json_days):
    """Blank lines are no rows, braces in a text are text, zeros behind a decimal are no digits, and packed files are read."""
    _, table, outcomes = json_days

    assert published_keys(outcomes) == ["2024-01-01", "2024-01-15", "2024-01-16"]
    odd = {**orders("2024-01-15", 1, order_id=7)[0], "amount": Decimal("1.50"), "customer": '"}{"'}
    expected = [
        *orders("2024-01-01"),
        *orders("2024-01-01", 1, order_id=8),
        *orders("2024-01-15"),
        odd,
        *orders("2024-01-16"),
    ]
    assert content(table.path) == multiset(expected)
    assert {row["rate"] for row in rows_in(table.path)} == {Decimal("1234567890123456789012345678.0123456789")}


@pytest.mark.parametrize(
    ("day", "words"),
    [
        (2, ["1 line cannot be read", "orders.json line 4: not one JSON object: {"]),
        (3, ["1 line cannot be read", "orders.json line 4: `amount` is no decimal(18,2): 1.005"]),
        (4, ["orders.json line 4: `amount` is no decimal(18,2): a lot"]),
        (5, ["1 line cannot be read", "orders.json line 4: not one JSON object: [{"]),
        (6, ["1 line cannot be read", "orders.json line 4: not one JSON object: {"]),
        (7, ["orders.json line 4: `ordered_at` is no timestamp with a zone (`timestamps_without_zone` would give it one): 2024-01-07T00:00:00"]),
        (8, ["orders.json line 4: `order_id` is no bigint: 12.5"]),
        (9, ["orders.json line 4: not one JSON object: null", "orders.json line 5: not one JSON object: \"text\""]),
        (10, ["schema_matches", "{root}/2024/01/10/without.json` has no column `customer`; `optional: true`"]),
        (11, ["orders.json line 4: `day` is no date: 2024-01-01T10:00:00Z"]),
        (12, ["orders.json line 4: `amount` is no decimal(18,2): 10000000000000000.00"]),
        (13, ["orders.json line 4: `flag` is no boolean: yes"]),
        (14, ["files_are_readable", "{root}/2024/01/14/orders.json.gz` cannot be read to its end ("]),
    ],
    ids=["cut off", "too many digits", "text for a number", "array", "two objects", "no zone", "fraction", "no objects", "column lacking", "time for a date", "too large", "no boolean", "packed and cut off"],
)  # fmt: skip
def test_a_bad_json_day_is_named(json_days, day, words):
    """What is wrong with a line is said with its path, its number and the value."""
    root, _, outcomes = json_days

    said = refusals(outcomes)[f"2024-01-{day:02}"]

    for part in words:
        assert part.replace("{root}", str(root)) in said, said
    if day not in (10, 14):
        assert f"file:{root}/2024/01/{day:02}/orders.json line 4" in said


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
    assert source_of(spark, files_spec(source={"format": "json"}), tmp_path).check_schema(days(spec, "2024-01-01")) == [
        "`bronze/orders`: the files also have ['extra'], which the spec does not name; left out. "
        "`backfill-assets schema bronze/orders` proposes the lines that would take them."
    ]


# -- rows with the same key --------------------------------------------------------------------------------------------


def test_the_latest_of_rows_with_the_same_key_is_published(spark, tmp_path):
    """With `latest_wins_by` a day with repeated keys is published; what was replaced is in the receipt, and every raw row is accounted for."""
    spec = files_spec(latest_wins_by=["amount"], source={"format": "json"})
    old = orders("2024-01-01")
    new = [{**row, "amount": Decimal("99.00")} for row in old[:2]]
    write_json(folder_of(tmp_path / "in", "2024-01-01"), [*new, *old])
    table = LakeTable(spark, spec, f"{tmp_path}/table")
    table.create()

    outcomes = launch(table, source_of(spark, spec, tmp_path / "in"), days(spec, "2024-01-01"))

    assert published_keys(outcomes) == ["2024-01-01"]
    assert content(table.path) == multiset([*new, old[2]])
    assert table.published()["2024-01-01"].partition.superseded_rows == 2


def test_a_source_that_changes_during_the_launch_is_read_again(spark, tmp_path, monkeypatch):
    """A file that is replaced between the read and the save: the launch notices, reads again, and the new content is published."""
    spec = files_spec()
    write_parquet(folder_of(tmp_path / "in", "2024-01-01"), orders("2024-01-01"))
    table = LakeTable(spark, spec, f"{tmp_path}/table")
    table.create()
    source, said = source_of(spark, spec, tmp_path / "in"), []
    stage = LakeTable.stage

    def stage_and_change(self, *scan):
        staged = stage(self, *scan)
        if not said:
            write_parquet(folder_of(tmp_path / "in", "2024-01-01"), orders("2024-01-01", 5))
        return staged

    monkeypatch.setattr(LakeTable, "stage", stage_and_change)
    outcomes = launch(table, source, days(spec, "2024-01-01"), log=said.append)

    assert published_keys(outcomes) == ["2024-01-01"]
    assert content(table.path) == multiset(orders("2024-01-01", 5))
    assert table.version() == 1
    assert any("changed while it was read" in text for text in said)
