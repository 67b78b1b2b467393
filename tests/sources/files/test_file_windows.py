"""Files that say less, or more, than a partition: rows belong where their event time says, and every row of a file is accounted for."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from tests.sources.files.landing import source_of
from tests.sources.files.layouts import days_of_month, files_spec, table_of
from tests.support.shop import (
    SCHEMA,
    content,
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


@pytest.mark.prove
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

    write_parquet(tmp_path / "in/2024/03", march, "march ü [1].parquet")
    mended = launch(table, source, named, only="missing")

    assert published_keys(mended) == ["2024-03-01", "2024-03-02"]
    assert content(table.path) == multiset([*wanted, *march[:2]])


@pytest.mark.parametrize("kind", ["parquet", pytest.param("json", marks=pytest.mark.prove)])
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


@pytest.mark.prove
def test_flat_files(spark, tmp_path):
    """Any file may hold any day: a bad line fails all days, and after it is mended every cut of a launch gives the same content."""
    spec = files_spec(format="json", layout="flat", complete_until="2024-01-06", start="2024-01-02")
    everything = [row for day in range(1, 7) for row in orders(f"2024-01-{day:02}", 4)]
    write_json(tmp_path / "in/a", everything[::2], "one.json")
    bad = write_json(tmp_path / "in/b", [*everything[1::2], '{"order_id": 1, "ordered_at": "soon"}'], "two ü#%.json")
    said: list[str] = []
    table, source = table_of(spark, spec, tmp_path / "table"), source_of(spark, spec, tmp_path / "in", log=said.append)
    named = spec.grid.between("2024-01-02", "2024-01-06")

    outcomes = launch(table, source, named)

    assert published_keys(outcomes) == []
    early = "rows of these files lie before its history begins, at 2024-01-02 00:00Z, the first of them at 2024-01-01 "
    assert [line for line in said if early in line]
    assert list(left_out(outcomes)) == ["2024-01-06"]
    assert list(refusals(outcomes)) == ["2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05"]
    assert f"1 of the rows of `file:{bad}` cannot be read; they could belong to any" in refusals(outcomes)["2024-01-03"]
    assert "line 13: `ordered_at` is no timestamp: soon" in refusals(outcomes)["2024-01-03"]
    assert table.version() == 0

    write_json(tmp_path / "in/b", everything[1::2], bad.name)
    tallies = []
    for size in (None, 3):
        assert published_keys(launch(table, source, named, max_partitions_per_chunk=size)) == [p.key for p in named[:4]]
        assert content(table.path) == multiset(everything[4:20])
        tallies.append(table.tally(named))
    assert tallies[0] == tallies[1]
    assert source.survey(named)["2024-01-02"].size_bytes * 5 <= sum(
        f.stat().st_size for f in (tmp_path / "in").rglob("*.json")
    )


@pytest.mark.prove
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
