"""Files in time: other zones, odd days, until when they are complete, where a history begins, and when they were modified."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from backfill_assets.errors import SourceIncompleteError, WindowError
from tests.sources.files.landing import source_of
from tests.sources.files.layouts import days_of_month, files_spec, hours, table_of
from tests.support.shop import Row, content, folder_of, launch, multiset, orders, published_keys, write_parquet


@pytest.mark.prove
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

    for size in (None, 4):
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


@pytest.mark.prove
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
    assert until(grain="hourly") == datetime(2024, 2, 1, tzinfo=UTC)
    assert until(complete_until="2024-02-10", time_zone="Europe/Berlin") == datetime(2024, 2, 9, 23, tzinfo=UTC)
    (tmp_path / "2024/02/_SUCCESS").touch()
    assert until(complete_when="success_marker") == datetime(2024, 3, 1, tzinfo=UTC)


@pytest.mark.prove
def test_the_newest_day_may_still_get_hours(spark, tmp_path):
    """Of a folder for each day an hourly table has no hour yet: it would be published without rows before its file lands."""
    spec = files_spec(grain="hourly")
    for day in ("2024-01-04", "2024-01-05"):
        write_parquet(folder_of(tmp_path / "in", day), orders(day))
    table, source = table_of(spark, spec, tmp_path / "table"), source_of(spark, spec, tmp_path / "in")
    assert source.complete_until() == datetime(2024, 1, 5, tzinfo=UTC)
    with pytest.raises(SourceIncompleteError):
        launch(table, source, spec.grid.between("2024-01-05-04:00", "2024-01-05-04:00"))
    hours_of_day = spec.grid.between("2024-01-04-00:00", "2024-01-04-23:00")
    assert len(published_keys(launch(table, source, hours_of_day))) == 24


@pytest.mark.prove
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
        launch(table_of(spark, spec, tmp_path.with_name(f"{tmp_path.name}-table")), source, named[3:])
