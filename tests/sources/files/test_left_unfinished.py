"""What jobs and copies leave beside files that they have not finished: half of a day looks like a day."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from backfill_assets.sources.files.local_files import marks_in
from tests.sources.files.landing import findings_of
from tests.support.docstring_tables import table_of as cases_of
from tests.support.shop import folder_of, orders, write_json

DAYS = ["2024-01-01", "2024-01-02", "2024-01-03"]
ENDS = (DAYS[0], DAYS[-1])


@pytest.mark.parametrize(
    "left", ["_temporary/0/part-1", pytest.param("part-1.json._COPYING_", marks=pytest.mark.prove)]
)
def test_what_an_export_has_left_beside_its_files_says_that_it_failed(spark, tmp_path, left):
    """Half of a day looks like a day: until what the job or the copy has left is gone, or it says that it has ended."""
    day, first = "2024-01-02", left.partition("/")[0]
    folder = folder_of(tmp_path, day)

    def said() -> list[str]:
        return [finding.what for finding in findings_of(spark, tmp_path, ENDS, format="json", gaps="allowed")[day]]

    write_json(folder / "EU", orders(day))
    for where in (folder, folder / "EU"):
        path = where / left
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        (what,) = said()
        assert f"{where}/{first}` lies beside what is there: its export has not ended, or has failed." in what
        (folder / "_SUCCESS").touch()
        assert said() == []
        (folder / "_SUCCESS").unlink()
        (shutil.rmtree if path.parent != where else Path.unlink)(where / first)
    for harmless in ("orders.json._COPYING_", ".orders.json.swp", ".hive-staging_hive_2024"):
        (folder / "EU" / harmless).touch()  # copied once more; edited; left by a session that has not ended
    assert said() == []


@pytest.mark.parametrize("below", ["", pytest.param("EU", marks=pytest.mark.prove)])
def test_a_marker_of_an_earlier_job_does_not_speak_for_the_one_that_writes_now(spark, tmp_path, below):
    """A job that appends to a day which another has ended: half of what it writes may be there."""
    day = "2024-01-02"
    folder = folder_of(tmp_path, day)
    write_json(folder / below, orders(day))
    marker, job = folder / "_SUCCESS", folder / below / "_temporary"
    marker.touch()
    job.mkdir()
    form = {"format": "json", "gaps": "allowed"}
    for began, refused in ((-1, False), (1, True)):
        at = marker.stat().st_mtime + began
        os.utime(job, (at, at))
        for more in ({}, {"complete_when": "success_marker"}):
            said = [finding.what for finding in findings_of(spark, tmp_path, ENDS, **form, **more)[day]]
            assert [f"{job}` lies beside" in what for what in said] == [True] * refused


@pytest.mark.parametrize("layout", ["dt={date}", pytest.param("eu/dt={date}", marks=pytest.mark.prove)])
def test_a_job_that_writes_many_days_holds_back_those_that_it_may_have_begun(spark, tmp_path, layout):
    """Spark keeps what `partitionBy` has not committed at the root of it all: files of some days are there, of others not."""
    form = {"format": "json", "layout": layout, "gaps": "allowed"}
    above = tmp_path / layout.rpartition("/")[0]
    written = {day: write_json(above / f"dt={day}", orders(day)) for day in DAYS[:1] + DAYS[2:]}
    job = tmp_path / "_temporary"
    job.mkdir()
    began = job.stat().st_mtime
    for day, path in written.items():  # the first day lay there before, the last one is the job's
        at = began + (60 if day == DAYS[2] else -60)
        os.utime(path, (at, at))

    def refused() -> list[str]:
        found = findings_of(spark, tmp_path, ENDS, **form)
        assert all(f"{job}` lies beside" in found[day][0].what for day in DAYS if found[day])
        return [day for day in DAYS if found[day]]

    assert refused() == DAYS[1:]
    (tmp_path / "_SUCCESS").touch()
    os.utime(tmp_path / "_SUCCESS", (began - 1, began - 1))
    assert refused() == DAYS[1:]
    os.utime(tmp_path / "_SUCCESS", (began + 120, began + 120))
    assert refused() == []


@pytest.mark.prove
@pytest.mark.parametrize(("layout", "refused"), [("orders-{date}.json", DAYS[2:]), ("flat", DAYS)])
def test_a_job_among_the_files_of_many_days(spark, tmp_path, layout, refused):
    """It may have begun what is not older; where any file may hold any day, that is every day."""
    paths = [write_json(tmp_path, orders(day), name=f"orders-{day}.json") for day in DAYS]
    job = tmp_path / "_temporary"
    job.mkdir()
    for path, later in zip(paths, (-60, -60, 60), strict=True):
        os.utime(path, (job.stat().st_mtime + later,) * 2)
    found = findings_of(spark, tmp_path, ENDS, format="json", layout=layout, complete_until="2024-02-01")
    assert [day for day in DAYS if any(f"{job}` lies beside" in finding.what for finding in found[day])] == refused


@pytest.mark.prove
def test_a_job_that_goes_on_in_what_another_has_left(spark, tmp_path):
    """One has crashed, somebody has marked the day as complete, and the next one has found the folder there already."""
    day = "2024-01-02"
    folder = folder_of(tmp_path, day)
    write_json(folder, orders(day))
    (folder / "_temporary/0").mkdir(parents=True)
    (folder / "_SUCCESS").touch()
    at = (folder / "_SUCCESS").stat().st_mtime
    for path, later in ((folder / "_temporary", -60), (folder / "_temporary/0", 60)):
        os.utime(path, (at + later,) * 2)
    (found,) = findings_of(spark, tmp_path, ENDS, format="json", gaps="allowed")[day]
    assert "_temporary` lies beside" in found.what


@pytest.mark.prove
@pytest.mark.parametrize("layout", ["{year}/{month}/{day}", "y={year}/m={month}/d={day}"])
def test_a_day_that_may_have_no_rows_waits_for_the_job_that_writes_it(spark, tmp_path, layout):
    """Its folder holds nothing but what is not committed; days before and after it are there."""
    for day in (DAYS[0], DAYS[2]):
        write_json(tmp_path / layout.format(year="2024", month="01", day=day[-2:]), orders(day))
    month = "01" if layout[0] == "{" else "1"  # as Spark writes columns of numbers
    job = tmp_path / layout.format(year="2024", month=month, day="02" if month == "01" else "2") / "_temporary/0"
    job.mkdir(parents=True)
    found = findings_of(spark, tmp_path, ENDS, format="json", layout=layout, gaps="allowed")
    assert [day for day in DAYS if found[day]] == [DAYS[1]]
    assert f"{job.parent}` lies beside" in found[DAYS[1]][0].what


@pytest.mark.prove
def test_what_is_left_where_no_file_is_yet_says_that_the_day_is_not_whole(spark, tmp_path):
    """One country's export is there, and of another's nothing but what is not committed; until that one says that it has ended."""
    for day in DAYS:
        write_json(folder_of(tmp_path, day) / "EU", orders(day))
    us, left = folder_of(tmp_path, DAYS[1]) / "US", "_temporary/0/x"
    (us / left).parent.mkdir(parents=True)
    (us / left).touch()
    (us / "again").symlink_to(us)  # a link that leads back
    found = findings_of(spark, tmp_path, ENDS, format="json")
    assert [day for day in DAYS if any(str(us) in finding.what for finding in found[day])] == [DAYS[1]]
    (us / "again").unlink()
    at = (us / left.partition("/")[0]).stat().st_mtime + 60
    (us / "_SUCCESS").touch()
    os.utime(us / "_SUCCESS", (at, at))
    assert findings_of(spark, tmp_path, ENDS, format="json")[DAYS[1]] == ()


@pytest.mark.prove
def test_a_second_attempt_does_not_make_a_job_younger(spark, tmp_path):
    """The first one has brought files; the folder's own time is that of the second."""
    (tmp_path / "_temporary/0").mkdir(parents=True)
    for day in DAYS:
        write_json(folder_of(tmp_path, day), orders(day))
    (tmp_path / "_temporary" / "1").mkdir()
    at = (tmp_path / "_temporary").stat().st_mtime + 60
    os.utime(tmp_path / "_temporary", (at, at))
    found = findings_of(spark, tmp_path, ENDS, format="json")
    assert [day for day in DAYS if found[day]] == DAYS


@pytest.mark.prove
def test_a_file_without_bytes_may_be_what_a_job_brought(spark, tmp_path):
    """Spark tells no time of it; the day has older rows beside it, and others that are not committed yet."""
    day = DAYS[1]
    old = write_json(tmp_path / f"dt={day}", orders(day))
    job = tmp_path / "_temporary"
    job.mkdir()
    os.utime(old, (job.stat().st_mtime - 60,) * 2)
    form = {"format": "json", "layout": "dt={date}", "gaps": "allowed"}
    assert findings_of(spark, tmp_path, (day, day), **form)[day] == ()
    (old.parent / "part-1.json").touch()
    (found,) = findings_of(spark, tmp_path, (day, day), **form)[day]
    assert f"{job}` lies beside" in found.what


@pytest.mark.parametrize("row", cases_of(marks_in), ids=lambda row: row["in the folder"])
def test_what_a_folder_says_is_what_the_docstring_says(tmp_path, row):
    """Every row of the table in `marks_in`."""
    for name in re.findall(r"`([^`]+)`", row["in the folder"].partition(", and no")[0]) or ["any"]:
        (tmp_path / name).touch()
    told = row["what says that it is not"].strip("`")
    marked, left, _ = marks_in(str(tmp_path))
    assert ((marked is not None), list(left)) == (row["is marked"] == "yes", [] if told == "-" else [told])
    assert all({age.began, age.moved} == {(tmp_path / name).stat().st_mtime_ns} for name, age in left.items())
