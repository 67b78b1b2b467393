"""Files that say less, or more, than a partition: rows belong where their event time says, and every row of a file is accounted for."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import SourceIncompleteError, WindowError
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.files.source import FilesSource
from tests.support.shop import (
    SCHEMA,
    Row,
    content,
    folder_of,
    launch,
    left_out,
    multiset,
    orders,
    orders_spec,
    published_keys,
    refusals,
    write_json,
    write_parquet,
)


def files_spec(*, grain: str = "daily", time_zone: str = "UTC", start: str = "2024-01-01", **source: Any) -> TableSpec:
    facts = {"kind": "files", "path": "orders", "format": "parquet", **source}
    return orders_spec(source=facts, grain=grain, time_zone=time_zone, start=start)


def source_of(spark: SparkSession, spec: TableSpec, root: Path) -> FilesSource:
    assert isinstance(spec.source, FilesSpec)
    return FilesSource(spark, spec, spec.source, str(root))


def table_of(spark: SparkSession, spec: TableSpec, path: Path) -> LakeTable:
    table = LakeTable(spark, spec, str(path))
    table.create()
    return table


def days_of_month(month: str, days: int, count: int = 1) -> list[Row]:
    return [row for day in range(1, days + 1) for row in orders(f"{month}-{day:02}", count)]


def hours(first: datetime, count: int) -> list[Row]:
    """One order in each hour, half past."""
    return [
        {
            "order_id": i,
            "customer": "c",
            "amount": Decimal("1.00"),
            "ordered_at": first + timedelta(hours=i, minutes=30),
        }
        for i in range(count)
    ]


def test_monthly_folders_with_daily_partitions(spark, tmp_path):
    """Days are published from folders of months, in chunks that cross months; a bad row fails the days of its month in the chunk alone."""
    spec = files_spec(layout="{year}/{month}", complete_until="2024-04-01")
    january, march = days_of_month("2024-01", 31), days_of_month("2024-03", 31)
    february = days_of_month("2024-02", 29)
    write_parquet(tmp_path / "in/2024/01", january, "a.parquet", row_group_size=5)
    write_parquet(tmp_path / "in/2024/02", february, row_group_size=5)
    write_parquet(tmp_path / "in/2024/02", [], "none.parquet")
    bad = [{**orders("2024-04-02")[0], "order_id": 7}, {**orders("2024-03-05")[0], "order_id": 8, "ordered_at": None}]
    write_parquet(tmp_path / "in/2024/03", [*march, *bad], "march ü [1].parquet")
    table, source = table_of(spark, spec, tmp_path / "table"), source_of(spark, spec, tmp_path / "in")
    named = spec.grid.between("2024-01-30", "2024-03-02")

    outcomes = launch(table, source, named)

    refused = refusals(outcomes)
    assert list(refused) == ["2024-03-01", "2024-03-02"]
    for said in refused.values():
        assert "`ordered_at` is NULL in 1 of the rows of `file:" in said
        assert (
            "2024/03/march ü [1].parquet`; they could belong to any partition that the file may hold. For example: order_id=8 at NULL."
            in said
        )
        assert (
            "is about 2024-03-01 00:00:00Z to 2024-04-01 00:00:00Z, and has rows outside of that (from 2024-04-02 00:00:00Z to"
            in said
        )
        assert "For example: order_id=7 at 2024-04-02 00:00:00Z." in said
    wanted = [row for row in [*january, *february] if row["ordered_at"] >= datetime(2024, 1, 30, tzinfo=UTC)]
    assert content(table.path) == multiset(wanted)
    assert source.survey(named)["2024-03-01"].fingerprint == source.survey(named)["2024-03-02"].fingerprint
    plan = source.scan(named[:1], source.survey(named[:1])).rows._jdf.queryExecution().toString()
    assert "PushedFilters: [IsNotNull(ordered_at), GreaterThanOrEqual(ordered_at,2024-01-30" in plan

    write_parquet(tmp_path / "in/2024/03", march, "march ü [1].parquet")
    mended = launch(table, source, named, only="missing")

    assert published_keys(mended) == ["2024-03-01", "2024-03-02"]
    assert content(table.path) == multiset([*wanted, *march[:2]])


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_a_wide_file_that_lacks_a_column_fails_what_it_may_hold(spark, tmp_path, kind):
    """A column that is lacking in one file, and is all NULL in another, is told apart; a file of another month stays out of it."""
    spec = files_spec(format=kind, layout="{year}/{month}", complete_until="2024-04-01")
    lacking = [
        {name: value for name, value in row.items() if name != "customer"} for row in days_of_month("2024-02", 2)
    ]
    empty = [{**row, "customer": None} for row in days_of_month("2024-01", 31)]
    if kind == "parquet":
        write_parquet(tmp_path / "in/2024/01", empty)
        write_parquet(tmp_path / "in/2024/02", lacking, schema=SCHEMA.remove(SCHEMA.get_field_index("customer")))
        write_parquet(tmp_path / "in/2024/03", orders("2024-03-01"))
    else:
        write_json(tmp_path / "in/2024/01", empty)
        write_json(tmp_path / "in/2024/02", lacking)
        write_json(tmp_path / "in/2024/03", orders("2024-03-01"))
    table, source = table_of(spark, spec, tmp_path / "table"), source_of(spark, spec, tmp_path / "in")

    outcomes = launch(
        table, source, spec.grid.between("2024-01-31", "2024-02-01") + spec.grid.between("2024-03-01", "2024-03-01")
    )

    assert published_keys(outcomes) == ["2024-01-31", "2024-03-01"]
    assert "schema_matches: `file:" in refusals(outcomes)["2024-02-01"]
    assert "has no column `customer`; `optional: true`" in refusals(outcomes)["2024-02-01"]


def test_flat_files(spark, tmp_path):
    """Any file may hold any day: a bad line fails all days, and after it is mended every cut of a launch gives the same content."""
    spec = files_spec(format="json", layout="flat", complete_until="2024-01-06", start="2024-01-02")
    everything = [row for day in range(1, 7) for row in orders(f"2024-01-{day:02}", 4)]
    write_json(tmp_path / "in/a", everything[::2], "one.json")
    bad = write_json(tmp_path / "in/b", [*everything[1::2], '{"order_id": 1, "ordered_at": "soon"}'], "two ü#%.json")
    table, source = table_of(spark, spec, tmp_path / "table"), source_of(spark, spec, tmp_path / "in")
    named = spec.grid.between("2024-01-02", "2024-01-06")

    outcomes = launch(table, source, named)

    assert published_keys(outcomes) == []
    assert list(left_out(outcomes)) == ["2024-01-06"]
    assert list(refusals(outcomes)) == ["2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05"]
    assert f"1 of the rows of `file:{bad}` cannot be read; they could belong to any" in refusals(outcomes)["2024-01-03"]
    assert "line 13: `ordered_at` is no timestamp with a zone" in refusals(outcomes)["2024-01-03"]
    assert table.version() == 0

    write_json(tmp_path / "in/b", everything[1::2], bad.name)
    tallies = []
    for size in (None, 1, 3):
        assert published_keys(launch(table, source, named, max_partitions_per_chunk=size)) == [p.key for p in named[:4]]
        assert content(table.path) == multiset(everything[4:20])
        tallies.append(table.tally(named))
    assert tallies[0] == tallies[1] == tallies[2]
    assert source.survey(named)["2024-01-02"].size_bytes * 5 <= sum(
        f.stat().st_size for f in (tmp_path / "in").rglob("*.json")
    )


def test_days_of_folders_in_another_zone(spark, tmp_path):
    """UTC folders, days in Berlin: on both odd days each row lies where Berlin's clocks say, in chunks of any size."""
    spec = files_spec(layout="dt={date}", path_time_zone="UTC", time_zone="Europe/Berlin")
    rows: list[Row] = []
    for number, first in enumerate((datetime(2024, 3, 29, tzinfo=UTC), datetime(2024, 10, 25, tzinfo=UTC))):
        for day in range(5):
            on = first + timedelta(days=day)
            more = [{**row, "order_id": number * 1000 + day * 100 + row["order_id"]} for row in hours(on, 24)]
            write_parquet(folder_of(tmp_path / "in", f"{on:%Y-%m-%d}", "dt={date}"), more)
            rows += more
    table, source = table_of(spark, spec, tmp_path / "table"), source_of(spark, spec, tmp_path / "in")
    named = [*spec.grid.between("2024-03-30", "2024-04-01"), *spec.grid.between("2024-10-26", "2024-10-28")]
    expected = multiset(row for row in rows if any(p.window.contains(row["ordered_at"]) for p in named))

    for size in (None, 1):
        assert published_keys(launch(table, source, named, max_partitions_per_chunk=size)) == [p.key for p in named]
        assert content(table.path) == expected
    assert {key: tally.rows for key, tally in table.tally(named).items()} == {
        "2024-03-30": 24, "2024-03-31": 23, "2024-04-01": 24, "2024-10-26": 24, "2024-10-27": 25, "2024-10-28": 24
    }  # fmt: skip
    assert source.complete_until() == datetime(2024, 10, 30, tzinfo=UTC)
    (first_day,) = spec.grid.between("2024-03-29", "2024-03-29")
    lacking = source.scan([first_day], source.survey([first_day])).evidence["2024-03-29"].findings
    assert [
        f"there is no folder `{tmp_path}/in/dt=2024-03-28`; `gaps: allowed` would take such days for days without rows."
    ] == [finding.what for finding in lacking]


def test_hourly_folders_of_odd_days(spark, tmp_path):
    """Folders of Berlin's hours: the day without its hour 2 has no gap, the doubled hour's folder holds both, and a missing hour is named."""
    spec = files_spec(layout="{date}/{hour}", time_zone="Europe/Berlin", start="2024-03-30")
    for day, there in (("2024-03-31", [h for h in range(24) if h != 2]), ("2024-10-27", list(range(24)))):
        (partition,) = spec.grid.between(day, day)
        rows = hours(partition.window.start_utc, 23 if day < "2024-05" else 25)
        for hour in there:
            own = [row for row in rows if row["ordered_at"].astimezone(spec.grid.zone).hour == hour]
            write_parquet(tmp_path / day / f"{hour:02}", own)
    source = source_of(spark, spec, tmp_path)
    named = [*spec.grid.between("2024-03-31", "2024-03-31"), *spec.grid.between("2024-10-27", "2024-10-27")]
    assert source.complete_until() == datetime(2024, 10, 27, 23, tzinfo=UTC)

    scan = source.scan(named, source.survey(named))

    assert {key: (evidence.raw_rows, evidence.findings) for key, evidence in scan.evidence.items()} == {
        "2024-03-31": (23, ()), "2024-10-27": (25, ())
    }  # fmt: skip
    assert set((scan.partition_by_file or {}).values()) == {"2024-03-31", "2024-10-27"}
    (tmp_path / "2024-10-27/02/orders.parquet").unlink()
    (tmp_path / "2024-10-27/02").rmdir()
    (finding,) = source.scan(named, source.survey(named)).evidence["2024-10-27"].findings
    assert (
        finding.what
        == f"there is no folder `{tmp_path}/2024-10-27/02`; `gaps: allowed` would take such hours for hours without rows."
    )


def test_until_when_files_are_complete(spark, tmp_path):
    """The newest month is complete when a later one is there, if it has a `_SUCCESS` file, if it is one partition, or if the spec says so."""
    for month in ("01", "02"):
        write_parquet(tmp_path / "2024" / month, orders(f"2024-{month}-01"))

    def until(**changes: Any) -> datetime | None:
        return source_of(spark, files_spec(layout="{year}/{month}", **changes), tmp_path).complete_until()

    assert until() == datetime(2024, 2, 1, tzinfo=UTC)
    assert until(grain="monthly") == datetime(2024, 3, 1, tzinfo=UTC)
    assert until(complete_until="2024-02-10", time_zone="Europe/Berlin") == datetime(2024, 2, 9, 23, tzinfo=UTC)
    (tmp_path / "2024/02/_SUCCESS").touch()
    assert until(complete_when="success_marker") == datetime(2024, 3, 1, tzinfo=UTC)


def test_the_beginning_of_a_history(spark, tmp_path):
    """Folders and rows before `begin` are not looked at, and launches before it are refused."""
    spec = files_spec(layout="{year}/{month}", complete_until="2024-03-01", begin="2024-02-10")
    (tmp_path / "in/2024/01").mkdir(parents=True)
    (tmp_path / "in/2024/01/garbage.parquet").write_text("no Parquet")
    february = days_of_month("2024-02", 29)
    write_parquet(tmp_path / "in/2024/02", february)
    table, source = table_of(spark, spec, tmp_path / "table"), source_of(spark, spec, tmp_path / "in")

    with pytest.raises(
        WindowError,
        match="1 partitions lie before the beginning of this history, `2024-02-10` \\(first `2024-02-09`\\)",
    ):
        launch(table, source, spec.grid.between("2024-02-09", "2024-02-11"))
    assert published_keys(launch(table, source, spec.grid.between("2024-02-10", "2024-02-11"))) == [
        "2024-02-10",
        "2024-02-11",
    ]
    assert content(table.path) == multiset(february[9:11])


def test_when_files_were_modified(spark, tmp_path):
    """`modified_after <= time < modified_before`; a day whose every file is left out fails, unless gaps are allowed."""
    for day, modified in (("2024-01-01", 999), ("2024-01-02", 1000), ("2024-01-03", 1999), ("2024-01-04", 2000)):
        os.utime(write_parquet(folder_of(tmp_path, day), orders(day)), (modified, modified))
    times = {"modified_after": "1970-01-01T00:16:40Z", "modified_before": "1970-01-01T00:33:20Z"}
    spec = files_spec(**times)
    source, named = source_of(spark, spec, tmp_path), spec.grid.between("2024-01-01", "2024-01-04")

    surveys = source.survey(named)

    assert [len(survey.content) for survey in surveys.values()] == [0, 1, 1, 0]
    assert source.complete_until() == datetime(2024, 1, 4, tzinfo=UTC)
    evidence = source.scan(named, surveys).evidence
    assert [finding.what for finding in evidence["2024-01-01"].findings] == [
        f"every file of `{tmp_path}/2024/01/01` lies outside of `modified_after` and `modified_before`; "
        "`gaps: allowed` would take such days for days without rows."
    ]
    assert not evidence["2024-01-02"].findings
    with pytest.raises(SourceIncompleteError, match="complete up to `2024-01-04T00:00:00"):
        launch(table_of(spark, spec, tmp_path / "table"), source, named[3:])


def test_thousands_of_small_files_cost_no_job_each(spark, tmp_path):
    """1,500 files with the date in their names are listed, surveyed and staged in a handful of jobs."""
    spec = files_spec(format="json", layout="{date}_*.json", time_zone="Europe/Berlin", path_time_zone="UTC")
    lines = {f"2024-01-{d:02}": list(orders(f"2024-01-{d:02}", 1)) for d in range(1, 4)}
    for day, rows in lines.items():
        for i in range(500):
            write_json(tmp_path, [{**row, "order_id": i} for row in rows], f"{day}_{i}.json")
    source, (partition,) = source_of(spark, spec, tmp_path), spec.grid.between("2024-01-02", "2024-01-02")
    tracker, group = spark.sparkContext.statusTracker(), "thousands"
    spark.sparkContext.setJobGroup(group, "")

    scan = source.scan([partition], source.survey([partition]))

    jobs = len(tracker.getJobIdsForGroup(group))
    spark.sparkContext._jsc.clearJobGroup()
    assert scan.evidence["2024-01-02"].raw_rows == 500
    assert 0 < jobs <= 8


def test_a_date_as_event_time_in_wide_files(spark, tmp_path):
    """Months of files with a day as the event time: a day of another month is outside, days of the month are not."""
    columns = {"order_id": "bigint", "day": "date"}
    spec = orders_spec(
        columns=columns, event_time="day", time_zone="Europe/Berlin",
        source={"kind": "files", "path": "x", "format": "parquet", "layout": "{year}/{month}", "complete_until": "2024-03-01"},
    )  # fmt: skip
    schema = pa.schema({"order_id": pa.int64(), "day": pa.date32()})
    month = [{"order_id": d, "day": datetime(2024, 1, d).date()} for d in range(1, 32)]
    write_parquet(tmp_path / "2024/01", month, schema=schema)
    write_parquet(tmp_path / "2024/02", [{"order_id": 99, "day": month[-1]["day"]}], schema=schema)
    source = source_of(spark, spec, tmp_path)
    named = [*spec.grid.between("2024-01-01", "2024-01-01"), *spec.grid.between("2024-01-31", "2024-02-01")]

    scan = source.scan(named, source.survey(named))

    assert {key: (evidence.raw_rows, len(evidence.findings)) for key, evidence in scan.evidence.items()} == {
        "2024-01-01": (1, 0), "2024-01-31": (1, 0), "2024-02-01": (0, 1)
    }  # fmt: skip
    assert "For example: order_id=99 at 2024-01-31" in str(scan.evidence["2024-02-01"].findings[0])
    assert sorted(row["order_id"] for row in scan.rows.collect()) == [1, 31]
