"""Until when files are complete: a folder of the future says nothing, and each folder's own marker counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from backfill_assets.errors import SourceIncompleteError
from tests.sources.files.landing import source_of
from tests.sources.files.layouts import files_spec, table_of
from tests.support.shop import content, folder_of, launch, left_out, multiset, orders, refusals, write_parquet


@pytest.mark.prove
def test_a_folder_of_the_future_makes_nothing_complete(spark, tmp_path):
    """Days without a folder before one of the year 2999 are not published as empty; the log names that folder, once."""
    spec, said = files_spec(gaps="allowed"), []
    days = ["2024-01-01", "2024-01-02"]
    for day in [*days, "2999-01-01"]:
        write_parquet(folder_of(tmp_path / "in", day), orders(day))
    source = source_of(spark, spec, tmp_path / "in", log=said.append)
    table = table_of(spark, spec, tmp_path / "table")

    outcomes = launch(table, source, spec.grid.between("2024-01-01", "2024-01-05"))

    assert left_out(outcomes) == dict.fromkeys(
        ["2024-01-03", "2024-01-04", "2024-01-05"], "the source is not complete for them yet; they stay missing"
    )
    assert content(table.path) == multiset(row for day in days for row in orders(day))
    assert source.complete_until() == datetime(2024, 1, 3, tzinfo=UTC)
    assert [
        f"`bronze/orders`: 1 files are about a time that has not begun (first `file:{tmp_path}/in/2999/01/01/orders.parquet`, from "
        "`2999-01-01` on); they do not make the source complete until then. Put their names right."
    ] == [text for text in said if "not begun" in text]


@pytest.mark.parametrize(
    ("source", "folder", "until"),
    [
        ({"layout": "{date}"}, "2024-01-05", datetime(2024, 1, 6, tzinfo=UTC)),
        ({"layout": "{date}"}, "2024-01-06", datetime(2024, 1, 6, 12, tzinfo=UTC)),
        ({"layout": "{date}"}, "2024-01-07", None),
        ({"layout": "{year}", "complete_when": "success_marker"}, "2024", datetime(2024, 1, 6, 12, tzinfo=UTC)),
        ({"layout": "flat", "complete_until": "2999-01-01"}, "any", datetime(2024, 1, 6, 12, tzinfo=UTC)),
        ({"layout": "flat", "complete_until": "2024-01-03"}, "any", datetime(2024, 1, 3, tzinfo=UTC)),
    ],
)
def test_nothing_is_complete_more_than_a_partition_beyond_now(spark, tmp_path, source, folder, until):
    """At noon of January 5 no folder, marker or date makes more complete than until noon of January 6."""
    write_parquet(tmp_path / folder, orders("2024-01-05"))
    (tmp_path / folder / "_SUCCESS").touch()
    noon = datetime(2024, 1, 5, 12, tzinfo=UTC)
    found = source_of(spark, files_spec(**source), tmp_path, now=lambda: noon)
    assert found.complete_until() == until


@pytest.mark.prove
def test_a_day_needs_its_own_marker(spark, tmp_path):
    """A day whose export failed is refused although later days have their marker; with it the day is published."""
    spec = files_spec(complete_when="success_marker", gaps="allowed")
    landing = {day: folder_of(tmp_path / "in", f"2024-01-0{day}") for day in range(1, 7)}
    for day in (1, 2, 4):
        write_parquet(landing[day], orders(f"2024-01-0{day}"))
    write_parquet(landing[4] / "EU", orders("2024-01-04", 1, order_id=1))
    write_parquet(landing[5] / "EU", orders("2024-01-05", 1, order_id=2))
    write_parquet(landing[5] / "US", orders("2024-01-05", 1, order_id=3))
    write_parquet(landing[6], orders("2024-01-06"))
    landing[3].mkdir()
    for marked in (landing[1], landing[4], landing[5] / "EU", landing[6]):
        (marked / "_SUCCESS").touch()
    source, table = source_of(spark, spec, tmp_path / "in"), table_of(spark, spec, tmp_path / "table")
    named = spec.grid.between("2024-01-01", "2024-01-06")

    refused = refusals(launch(table, source, named))

    assert {key: said.partition(": source_is_present: ")[2] for key, said in refused.items()} == {
        key: f"`{where}` has no `_SUCCESS` file: its export has not ended, or has failed."
        for key, where in {
            "2024-01-02": f"file:{landing[2]}",
            "2024-01-03": landing[3],
            "2024-01-05": f"file:{landing[5]}/US",
        }.items()
    }
    assert set(table.published()) == {"2024-01-01", "2024-01-04", "2024-01-06"}
    for marked in (landing[2], landing[3], landing[5]):
        (marked / "_SUCCESS").touch()
    assert refusals(launch(table, source, named, only="missing")) == {}
    assert set(table.published()) == {p.key for p in named}


def test_the_newest_marked_day_is_the_last(spark, tmp_path):
    """Days after the newest marker are not launched; one without any marker at all is never complete."""
    spec = files_spec(complete_when="success_marker")
    for day in ("2024-01-01", "2024-01-02"):
        write_parquet(folder_of(tmp_path, day), orders(day))
    source, table = source_of(spark, spec, tmp_path), table_of(spark, spec, tmp_path / "_table")
    with pytest.raises(SourceIncompleteError, match="the source has nothing yet"):
        launch(table, source, spec.grid.between("2024-01-01", "2024-01-02"))
    (folder_of(tmp_path, "2024-01-01") / "_SUCCESS").touch()
    assert source.complete_until() == datetime(2024, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize("zone", ["Asia/Kolkata", pytest.param("America/St_Johns", marks=pytest.mark.prove)])
def test_hours_of_a_zone_that_is_half_an_hour_off(spark, tmp_path, zone):
    """Hourly partitions from files of a day, where hours begin at half past: each has its own rows, and all are accounted for."""
    spec = files_spec(grain="hourly", time_zone=zone, complete_until="2024-01-02")
    day = spec.grid.covering(files_spec(time_zone=zone).grid.partition("2024-01-01").window)
    rows = [
        {**orders("2024-01-01", 1)[0], "order_id": 10 * number + half, "ordered_at": hour.window.start_utc + after}
        for number, hour in enumerate(day)
        for half, after in enumerate((timedelta(0), timedelta(minutes=40)))
    ]
    write_parquet(folder_of(tmp_path / "in", "2024-01-01"), rows)
    table = table_of(spark, spec, tmp_path / "table")

    assert refusals(launch(table, source_of(spark, spec, tmp_path / "in"), day)) == {}
    assert content(table.path) == multiset(rows)
    assert {key: p.partition.rows for key, p in table.published().items()} == {hour.key: 2 for hour in day}
