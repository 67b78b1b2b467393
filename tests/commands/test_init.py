"""`init` for files as they are found: whatever it writes is launched as it is, and the table equals the files."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from backfill_assets.core.calendar.windows import Window
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.files.source import FilesSource
from tests.commands.schema_project import Project
from tests.support.shop import content, launch, multiset

START = datetime(2024, 2, 28, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [
    {"id": n, "at": START + timedelta(hours=5 * n), "code": f"{n:03}", "price": Decimal(f"{n}.5") if n % 3 else None}
    for n in range(30)
]
"""Seven days, from one month to the next."""


def as_json(row: dict[str, Any]) -> str:
    return json.dumps({**row, "at": f"{row['at']:%Y-%m-%dT%H:%M:%SZ}", "price": row["price"] and float(row["price"])})


def as_csv(row: dict[str, Any]) -> str:
    return f"{row['id']};{row['at']:%Y-%m-%dT%H:%M:%SZ};{row['code']};{row['price'] or ''}"


def write(root: Path, path: str, *, is_csv: bool) -> None:
    """Write each row into the file whose path, a format of the row's instant, says."""
    files: dict[str, list[str]] = {}
    for row in ROWS:
        files.setdefault(format(row["at"], path), []).append(as_csv(row) if is_csv else as_json(row))
    for name, lines in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(["id;at;code;price", *lines] if is_csv else lines) + "\n"
        (root / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())


@pytest.mark.prove
@pytest.mark.parametrize(
    ("path", "arguments", "expected"),
    [
        ("%Y/%m/%d/%H/part.json", (), ("hourly", "{year}/{month}/{day}/{hour}", date(2024, 2, 28))),
        ("orders_%Y-%m-%d.csv.gz", (), ("daily", "orders_{date}.csv.gz", date(2024, 2, 28))),
        ("%Y/orders_%Y-%m.csv", (), ("monthly", "{year}/orders_{year}-{month}.csv", date(2024, 2, 1))),
        ("year=%Y/orders.json", ("--grain", "weekly"), ("weekly", "year={year}", date(2024, 1, 1))),
        ("all.csv", (), ("daily", "flat", date(2024, 2, 28))),
    ],
    ids=["hours", "names of files", "months", "a year, by weeks", "no time"],
)
def test_what_it_writes_loads_the_files(
    project: Project, path: str, arguments: tuple[str, ...], expected: tuple[str, str, date]
):
    """Grain, layout and first day are found, hours to years, in folders and in names; all rows are loaded."""
    name = f"t_{abs(hash(path)) % 10**8}"
    write(project.landing / name, path, is_csv=".csv" in path)
    result = project.run("init", f"bronze/{name}", "--from", name, "--output", "-", *arguments)
    assert result.exit_code == 0, result.output
    attributes = yaml.safe_load(result.stdout)["attributes"]
    source = attributes["source"]
    assert (attributes["grain"], source["layout"], attributes["start"]) == expected
    assert (attributes["key_columns"], attributes["event_time"]) == (["id"], "at")
    if ".csv" in path:
        assert source["csv"] == {"delimiter": ";"}
    if source["layout"] == "flat":
        assert source["complete_until"] == date(2024, 3, 5)
        source["complete_until"] = date(2024, 3, 6)
    else:
        source |= {"gaps": "allowed"}  # rows are five hours apart
    if "year" in path.lower() and "--grain" in arguments:
        source["complete_until"] = date(2025, 1, 1)
    spec = TableSpec.model_validate(attributes)
    assert spec.columns["code"].type == "string"
    folder = f"{project.root}/lakehouse/tables/bronze/{name}"
    table = LakeTable(project.spark, spec, folder)
    files = FilesSource(project.spark, spec, spec.source, f"{project.landing}/{name}")
    launch(table, files, spec.grid.covering(Window(START, ROWS[-1]["at"] + timedelta(hours=1))))
    assert content(Path(folder), spec.columns) == multiset(ROWS, spec.columns)


def test_parts_of_a_day_with_the_same_keys(project: Project):
    """Each region counts its sales from 0: they are no versions of one another, so the draft lets none win over another."""
    root = project.landing / "regions"
    for region in ("eu", "us"):
        folder = root / "dt=2024-02-28" / f"region={region}"
        folder.mkdir(parents=True)
        lines = [{"sale_id": n, "at": "2024-02-28T10:00:00Z", "updated_at": "2024-02-28T11:00:00Z"} for n in range(50)]
        (folder / "a.json").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    drafted = project.run("init", "bronze/sales", "--from", "regions", "--output", "-")
    assert drafted.exit_code == 0, drafted.output
    attributes = yaml.safe_load(drafted.stdout)["attributes"]
    assert (attributes["key_columns"], "latest_wins_by" in attributes) == ([], False)


def test_folders_that_differ_in_more_than_their_time(project: Project):
    """All of them are read, and the draft says that this is a guess; where no layout fits them, nothing is written."""
    for region in ("eu", "us"):
        write(project.landing / "halves", f"region={region}/dt=%Y-%m-%d/a.csv", is_csv=True)
    drafted = project.run("init", "bronze/halves", "--from", "halves", "--output", "-")
    assert '    layout: "region=*/dt={date}"  # from 7 days; guess: all that `*` stands for' in drafted.stdout, (
        drafted.output
    )
    write(project.landing / "halves", "export_%d_of_all.csv", is_csv=True)
    refused = project.run("init", "bronze/halves", "--from", "halves", "--output", "-")
    assert refused.exit_code == 2
    assert "does not fit 7 of 21 files, the first of them `export_" in refused.stderr


def test_a_file_is_no_folder(project: Project):
    """The folder is asked for, by name of the file."""
    write(project.landing / "single", "all.csv", is_csv=True)
    refused = project.run("init", "bronze/single", "--from", "single/all.csv", "--output", "-")
    assert (refused.exit_code, "is a file." in refused.stderr) == (2, True), refused.stderr
