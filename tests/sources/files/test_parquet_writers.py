"""The table of `docs/sources.md`: what pandas, polars, DuckDB, Spark and pyarrow write, and how it is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest

from backfill_assets.lake.table import LakeTable
from tests.sources.files.landing import days, files_spec, source_of
from tests.sources.files.tools import Place
from tests.sources.files.written_by import CASES
from tests.support.shop import folder_of, launch, published_keys, refusals, rows_in

PAGE = (Path(__file__).parents[3] / "docs/sources.md").read_text(encoding="utf-8")
FIRST = date(2024, 1, 1)
BERLIN = ZoneInfo("Europe/Berlin")


@dataclass(frozen=True)
class Case:
    """One row of the page, and one of the tools that it names.

    Args:
        kind: Type of the column in the table.
        words: In the refusal; None if the file is read.
    """

    what: str
    tool: str
    kind: str
    words: str | None
    day: date

    @property
    def column(self) -> str:
        return "v_" + re.sub(r"\W+", "_", self.kind).strip("_")

    @property
    def is_read(self) -> bool:
        return self.words is None


def cases() -> Iterator[Case]:
    section = PAGE.partition("\n## Parquet\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if line[:2] == "| "
    ]
    number = 0
    for what, who, outcome in rows[1:]:
        said = re.match(r'(read|refused) as `([^`]+)`(?:: "([^"]+)")?', outcome)
        assert said is not None, outcome
        assert (said[1] == "refused") == (said[3] is not None), outcome
        for tool in who.split("; ") if ";" in who else who.split(", "):
            yield Case(what, tool, said[2], said[3], FIRST + timedelta(days=number))
            number += 1


ALL = list(cases())
LAST = ALL[-1].day


def test_the_page_and_the_cases_are_the_same():
    """Every row of the page is tried with every tool that it names, and nothing is tried that is not on the page."""
    assert [(case.what, case.tool) for case in ALL] == [(what, tool) for what, tools in CASES.items() for tool in tools]


@pytest.fixture(scope="module")
def written(spark, tmp_path_factory):
    """One launch over a day for each case, and the table's rows by day."""
    root = tmp_path_factory.mktemp("written")
    kinds = {case.column: {"type": case.kind, "optional": True} for case in ALL}
    spec = files_spec(
        columns={"id": "bigint not null", "day": "date not null", **kinds},
        key_columns=["id"],
        event_time="day",
        source={"timestamps_without_zone": "Europe/Berlin"},
    )
    for case in ALL:
        CASES[case.what][case.tool](Place(spark, folder_of(root, str(case.day)), case.day, case.column))
    table = LakeTable(spark, spec, f"{tmp_path_factory.mktemp('tables')}/written")
    outcomes = launch(table, source_of(spark, spec, root), days(spec, str(FIRST), str(LAST)))
    by_day: dict[date, list[dict[str, Any]]] = {}
    for row in sorted(rows_in(table.path), key=lambda row: row["id"]):
        by_day.setdefault(row["day"], []).append(row)
    return root, by_day, outcomes


def read_by(tool: str, folder: Path, column: str) -> list[Any]:
    """The values as the tool that wrote them reads them, by their row's `id`."""
    file = max(folder.rglob("*.parquet"), key=lambda path: path.stat().st_size)
    if tool.startswith("pandas"):
        rows = pd.read_parquet(file).to_dict("records")
    elif tool == "polars":
        rows = pl.read_parquet(file).to_dicts()
    elif tool == "DuckDB":
        found = duckdb.sql(f"SELECT * FROM '{file}'")
        rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
    else:
        rows = pq.read_table(file, coerce_int96_timestamp_unit="us").to_pylist()
    lower = [{name.lower(): value for name, value in row.items()} for row in rows]
    return [row[column] for row in sorted(lower, key=lambda row: row["id"])]


def as_in_the_table(value: Any, zone: ZoneInfo | Any) -> Any:
    """A tool's value as the table has it."""
    if isinstance(value, pd.Timestamp):
        value = value.to_pydatetime()
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=zone)).astimezone(UTC)
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if hasattr(value, "bytes"):
        return value.bytes
    return None if value is None or value is pd.NaT or value != value else value


@pytest.mark.prove
def test_every_file_is_read_exactly(written):
    """What the page says is read has the values that the tool itself reads; everything else is refused."""
    root, by_day, outcomes = written

    read = {(case.what, case.tool) for case in ALL if case.is_read}
    found = published_keys(outcomes)
    assert {(case.what, case.tool) for case in ALL if str(case.day) in found} == read, refusals(outcomes)
    for case in ALL:
        if case.is_read:
            zone = UTC if "INT96" in case.what else BERLIN
            own = read_by(case.tool, folder_of(root, str(case.day)), case.column)
            expected = [as_in_the_table(value, zone) for value in own]
            got = [row[case.column] for row in by_day[case.day]]
            assert got == expected, f"{case.what} of {case.tool}"
            assert [row["id"] for row in by_day[case.day]] == [1, 2]


@pytest.mark.prove
def test_a_file_that_is_not_read_is_refused_in_words(written):
    """The refusal names file and column, says what it is, and what to do: as the page says."""
    root, by_day, outcomes = written
    said = refusals(outcomes)

    for case in ALL:
        if not case.is_read:
            words = said[str(case.day)]
            assert case.words in words, words
            assert str(folder_of(root, str(case.day))) in words
            assert case.column in words or "cannot be read" in words, words
            assert case.day not in by_day
