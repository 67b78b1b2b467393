"""History in files: which of them are read, how far they are complete, and what rows with one key come to."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from backfill_assets.core.calendar.windows import Window
from backfill_assets.errors import SourceIncompleteError, SourceMissingError, SourceRepeatedError
from backfill_assets.lake.table import LakeTable
from tests.sources.files.landing import days, files_spec, source_of, staged_rows
from tests.support.shop import (
    content,
    folder_of,
    launch,
    left_out,
    multiset,
    orders,
    published_keys,
    refusals,
    rows_in,
    write_parquet,
)


@pytest.mark.parametrize(
    ("layout", "folders"),
    [
        ("year/month/day", "{year}/{month}/{day}"),
        ("hive", "year={year}/month={month}/day={day}"),
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

    for form in (f"file://{root}/",):
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
    """A file by two names, and a link to its own folder, for which Spark reads each file forty times; a link elsewhere repeats nothing."""
    spec = files_spec(key_columns=[])
    folder = folder_of(tmp_path / "landing", "2024-01-01")
    write_parquet(folder, orders("2024-01-01"))
    elsewhere = write_parquet(tmp_path / "elsewhere", orders("2024-01-02"))
    (tmp_path / "landing/2024/01/02").symlink_to(elsewhere.parent)
    source = source_of(spark, spec, tmp_path / "landing")
    assert len(staged_rows(source, days(spec, "2024-01-01", "2024-01-02"))) == 6

    (folder / "beside.parquet").symlink_to(folder / "orders.parquet")
    with pytest.raises(SourceRepeatedError, match=r"parquet` are one file, by a link"):
        source_of(spark, spec, tmp_path / "landing").survey(days(spec, "2024-01-01", "2024-01-02"))
    (folder / "beside.parquet").unlink()
    (folder / "beside.parquet").hardlink_to(folder / "orders.parquet")
    with pytest.raises(SourceRepeatedError, match=r"parquet` are one file, by a link"):
        source_of(spark, spec, tmp_path / "landing").survey(days(spec, "2024-01-01", "2024-01-02"))
    (folder / "beside.parquet").unlink()
    (folder / "again").symlink_to(folder)
    with pytest.raises(SourceRepeatedError, match=r"orders.parquet` are one file, by a link"):
        source_of(spark, spec, tmp_path / "landing").survey(days(spec, "2024-01-01", "2024-01-02"))


@pytest.mark.parametrize(
    "unit",
    [
        "days of a week",
        *(pytest.param(unit, marks=pytest.mark.prove) for unit in ("hours of a day", "a week and the next")),
    ],
)
def test_a_link_between_times_of_one_partition_is_refused(spark, tmp_path, unit):
    """A folder of another time of the same partition would give its rows twice; one of another partition gives none."""
    hourly = unit == "hours of a day"
    spec = files_spec(
        key_columns=[],
        grain="daily" if hourly else "weekly",
        source={"layout": "{date}/{hour}" if hourly else "{date}", "gaps": "allowed"},
    )
    day, other = {
        "days of a week": ("2024-01-02", "2024-01-04"),
        "hours of a day": ("2024-01-02/10", "2024-01-02/12"),
        "a week and the next": ("2024-01-07", "2024-01-08"),
    }[unit]
    write_parquet(tmp_path / day, orders("2024-01-02", 1, ordered_at=datetime(2024, 1, int(day[8:10]), 10, tzinfo=UTC)))
    (tmp_path / other).symlink_to(tmp_path / day)
    named = spec.grid.covering(Window(datetime(2024, 1, 2, tzinfo=UTC), datetime(2024, 1, 2, 1, tzinfo=UTC)))
    source = source_of(spark, spec, tmp_path)
    if unit == "a week and the next":
        assert len(staged_rows(source, named)) == 1
        return
    with pytest.raises(SourceRepeatedError, match=f"{other}/orders.parquet` and .*{day}/orders.parquet` are one file"):
        source.survey(named)


@pytest.mark.prove
def test_rows_of_another_time_of_the_same_partition_are_taken(spark, tmp_path):
    """Where a partition is longer than the time that a folder is about, a row need not lie in that."""
    spec = files_spec(grain="weekly", source={"layout": "{date}", "gaps": "allowed", "complete_until": "2024-01-08"})
    write_parquet(tmp_path / "in/2024-01-02", orders("2024-01-03", 1))
    write_parquet(tmp_path / "in/2024-01-04", orders("2024-01-09", 1))
    table = LakeTable(spark, spec, f"{tmp_path}/table")
    table.create()
    week = spec.grid.until(datetime(2024, 1, 8, tzinfo=UTC))
    said = refusals(launch(table, source_of(spark, spec, tmp_path / "in"), week))
    assert "belongs to 2024-01-08" in said["2024-01-01"], "a row of another partition is refused"

    write_parquet(tmp_path / "in/2024-01-04", orders("2024-01-04", 1))
    assert published_keys(launch(table, source_of(spark, spec, tmp_path / "in"), week)) == ["2024-01-01"]
    assert len(rows_in(table.path)) == 2


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
    """A weekly partition is made of the folders of its seven days; a day that is lacking is named as the others are."""
    spec, folder = files_spec(grain="weekly", start="2024-01-01"), "2024/1/{}"
    for day in range(1, 8):
        if day != 4:
            write_parquet(tmp_path / folder.format(day), orders(f"2024-01-0{day}", 1))
    source = source_of(spark, spec, tmp_path)
    week = days(spec, "2024-01-01")

    (evidence,) = source.scan(week, source.survey(week)).evidence.values()

    assert evidence.raw_rows == 6
    assert [finding.what for finding in evidence.findings] == [
        f"there is no folder `{tmp_path}/{folder.format(4)}`; `gaps: allowed` would take such days for days without rows."
    ]
    (tmp_path / folder.format(4)).mkdir()
    assert not source.scan(week, source.survey(week)).evidence["2024-01-01"].findings


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
