"""Files of 0 bytes, which an export leaves that failed: alone they are no day without rows."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from backfill_assets.core.history.audit import AuditRule, Finding
from backfill_assets.lake.table import LakeTable
from tests.sources.files.landing import days, files_spec, findings_of, source_of
from tests.support.shop import (
    csv_text,
    folder_of,
    json_line,
    launch,
    orders,
    published_keys,
    refusals,
    write_json,
)

DAYS = ("2024-01-01", "2024-01-04")


def findings(spark, root: Path, **source: object) -> dict[str, tuple[Finding, ...]]:
    """What is said of each day before its rows are read."""
    return findings_of(spark, root, DAYS, **source)


def empty(root: Path, day: str, name: str) -> Path:
    folder_of(root, day).mkdir(parents=True, exist_ok=True)
    path = folder_of(root, day) / name
    path.write_bytes(b"")
    return path


@pytest.mark.parametrize("format_", ["json", pytest.param("csv", marks=pytest.mark.prove)])
def test_a_file_without_a_byte_is_no_day_without_rows(spark, tmp_path, format_):
    """Alone it is a gap, which `gaps: allowed` allows; beside a file with rows it is a part without any, if it could be complete."""
    for day in ("2024-01-02", "2024-01-03"):
        if format_ == "json":
            write_json(folder_of(tmp_path, day), orders(day))
        else:
            folder_of(tmp_path, day).mkdir(parents=True)
            (folder_of(tmp_path, day) / "orders.csv").write_text(csv_text(orders(day)))
    alone = empty(tmp_path, "2024-01-01", f"part-0.{format_}")
    beside = empty(tmp_path, "2024-01-02", f"part-0.{format_}")
    packed = empty(tmp_path, "2024-01-03", f"part-0.{format_}.gz")
    folder_of(tmp_path, "2024-01-04").mkdir(parents=True)

    said = {day: " ".join(f.what for f in found) for day, found in findings(spark, tmp_path, format=format_).items()}

    assert said["2024-01-03"] == f"`{packed.as_uri().replace('///', '/')}` has 0 bytes, which is no compressed file."
    assert said["2024-01-04"] == ""
    first = alone.as_uri().replace("///", "/")
    if format_ == "csv":
        assert said["2024-01-01"] == f"`{first}` has 0 bytes, which is no CSV file with a header."
        second = beside.as_uri().replace("///", "/")
        assert said["2024-01-02"] == f"`{second}` has 0 bytes, which is no CSV file with a header."
        return
    assert said["2024-01-02"] == ""
    assert said["2024-01-01"] == (
        f"`{first}`: nothing in it, as after an export that failed, and no other file for that time; "
        "`gaps: allowed` would take such days for days without rows."
    )
    assert findings(spark, tmp_path, format="json", gaps="allowed")["2024-01-01"] == ()


@pytest.mark.parametrize("layout", ["{year}/{month}/{day}", pytest.param("{year}/{month}", marks=pytest.mark.prove)])
def test_a_packed_file_with_nothing_in_it_is_no_day_without_rows(spark, tmp_path, layout):
    """`export | gzip` of an export that failed leaves one of 20 bytes, as large as that of a day that had none."""
    day, other = ("2024-01-01", "2024-01-02") if "day" in layout else ("2024-01-01", "2024-02-01")
    for name, text in ((day, b""), (other, json_line(orders(other)[0]).encode())):
        folder = folder_of(tmp_path, name, layout)
        folder.mkdir(parents=True)
        (folder / "part-0.json.gz").write_bytes(gzip.compress(text))
    more = {"layout": layout, "complete_until": "2024-03-01"} if "day" not in layout else {"layout": layout}
    found = findings(spark, tmp_path, format="json", **more)
    (finding,) = found[day]
    assert finding.rule is AuditRule.SOURCE_IS_PRESENT
    assert "part-0.json.gz`: nothing in it, as after an export that failed" in finding.what
    assert findings(spark, tmp_path, format="json", gaps="allowed", **more)[day] == ()
    if "day" in layout:
        assert found[other] == ()


@pytest.mark.parametrize("packed", [True, pytest.param(False, marks=pytest.mark.prove)])
def test_a_csv_file_without_a_header_is_no_day_without_rows(spark, tmp_path, packed):
    """It has a header even where it has no row."""
    folder = folder_of(tmp_path, "2024-01-01")
    folder.mkdir(parents=True)
    path = folder / ("orders.csv.gz" if packed else "orders.csv")
    path.write_bytes(gzip.compress(b"") if packed else b"\n")
    (finding,) = findings(spark, tmp_path, format="csv")["2024-01-01"]
    assert finding.what.endswith(f"{path.name}`: it has no line, and so no header.")
    header = csv_text([]).encode()
    path.write_bytes(gzip.compress(header) if packed else header)
    assert findings(spark, tmp_path, format="csv")["2024-01-01"] == ()


@pytest.mark.prove
def test_files_without_a_header_are_about_their_days_alone(spark, tmp_path):
    """The oldest and the newest file of a launch are held against the spec: that they have no line says nothing of the columns."""
    for day in ("2024-01-01", "2024-01-02", "2024-01-03"):
        folder_of(tmp_path / "in", day).mkdir(parents=True)
        text = csv_text(orders(day)).encode() if day == "2024-01-02" else b""
        (folder_of(tmp_path / "in", day) / "orders.csv.gz").write_bytes(gzip.compress(text))
    spec = files_spec(source={"format": "csv"})
    read, table = source_of(spark, spec, tmp_path / "in"), LakeTable(spark, spec, str(tmp_path / "table"))
    done = launch(table, read, days(spec, "2024-01-01", "2024-01-03"))
    assert published_keys(done) == ["2024-01-02"]
    assert set(refusals(done)) == {"2024-01-01", "2024-01-03"}


@pytest.mark.parametrize("size", ["none", pytest.param("packed", marks=pytest.mark.prove)])
def test_a_marker_speaks_for_a_file_with_nothing_in_it(spark, tmp_path, size):
    """A job that has ended says so: then a part without rows is one, and the day is a day without rows."""
    empty(tmp_path, "2024-01-01", "part-0.json" if size == "none" else "part-0.json.gz").write_bytes(
        b"" if size == "none" else gzip.compress(b"")
    )
    (folder_of(tmp_path, "2024-01-01") / "_SUCCESS").touch()
    assert findings(spark, tmp_path, format="json", complete_when="success_marker")["2024-01-01"] == ()


def test_a_day_that_is_being_written_is_no_day_without_rows(spark, tmp_path):
    """Nor one whose folder is a file: somebody has copied an export to where no folder was. A folder with nothing is one."""
    for day in DAYS:
        write_json(folder_of(tmp_path, day), orders(day))
    (folder_of(tmp_path, "2024-01-02") / "_temporary/0").mkdir(parents=True)
    write_json(tmp_path, orders("2024-01-03"), name="aside").rename(folder_of(tmp_path, "2024-01-03"))
    found = findings(spark, tmp_path, format="json")
    for day, path in (("2024-01-02", "2024/01/02"), ("2024-01-03", "2024/01/03")):
        (finding,) = found[day]
        assert finding.rule is AuditRule.SOURCE_IS_PRESENT
        assert f"{path}` is a file, or its export has not ended" in finding.what
    shutil.rmtree(folder_of(tmp_path, "2024-01-02") / "_temporary")
    assert findings(spark, tmp_path, format="json")["2024-01-02"] == ()


@pytest.mark.parametrize(
    "is_here",
    [True, pytest.param(False, marks=pytest.mark.prove)],
    ids=["this disk", "storage that Spark alone sees"],
)
def test_what_a_copy_or_a_job_left_is_no_day_without_rows(spark, tmp_path, monkeypatch, is_here):
    """Hidden files and folders are data on their way, at any depth; marks of an end, with their checksums, are none."""
    if not is_here:
        monkeypatch.setenv("HADOOP_CONF_DIR", "/nowhere")
    for day in DAYS:
        write_json(folder_of(tmp_path, day), orders(day))
    folder = tmp_path / "2024/1/2"
    for left in (
        ".orders.json.gz.Xy12Zq",
        "orders.json._COPYING_",
        ".rsync-partial/orders.json",
        "EU/_temporary/",
        "EU/.orders.json.gz.Xy12Zq",
    ):
        path = folder / left
        (path if left.endswith("/") else path.parent).mkdir(parents=True)
        if not left.endswith("/"):
            path.write_text("{}")
        (finding,) = findings(spark, tmp_path, format="json")["2024-01-02"]
        first = left.rstrip("/").removesuffix("/orders.json")
        what = f"`{first}`" if is_here else "a hidden file or folder"
        assert f"`{folder}` is a file, or its export has not ended: {what} is in it" in finding.what
        shutil.rmtree(folder)

    (folder / "EU").mkdir(parents=True)
    for mark in ("_SUCCESS", "_metadata", "_common_metadata"):
        (folder / mark).touch()
        (folder / f".{mark}.crc").touch()
    assert findings(spark, tmp_path, format="json")["2024-01-02"] == ()
