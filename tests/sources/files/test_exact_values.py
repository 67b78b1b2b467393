"""Texts become values exactly or not at all: every case that the code documents, in history of JSON and of CSV, and live."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession

from backfill_assets.core.calendar.layouts import Layout
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.sources.files.exact_values import ExactValues
from backfill_assets.sources.files.json_lines import JsonLinesFormat
from backfill_assets.sources.files.json_text import misread
from backfill_assets.sources.files.listing import list_files
from backfill_assets.sources.files.text_values import typed
from tests.sources.files.landing import files_spec
from tests.sources.files.ways_of_reading import outcomes, staged, streamed
from tests.support.docstring_tables import table_of
from tests.support.shop import folder_of

AT = "2024-01-01T00:00:00Z"
IS_JSON = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false")


@dataclass(frozen=True)
class Case:
    """One text of one type, and what it stands for."""

    number: int
    kind: str
    zone: str | None
    text: str
    value: str
    in_csv: str

    @property
    def column(self) -> str:
        return re.sub(r"\W", "_", self.kind).strip("_")

    @property
    def expected(self) -> str:
        return self.text if self.value == "as it is" else self.value


def documented() -> list[Case]:
    rows = [(row, text) for row in table_of(ExactValues) for text in json.loads(f"[{row['texts']}]")]
    return [
        Case(number, row["type"], row["zone"] or None, text, row["value"], row["CSV"] or row["value"])
        for number, (row, text) in enumerate(rows)
    ]


CASES = documented()
ZONES = sorted({case.zone for case in CASES}, key=str)


def spec_of(zone: str | None, format_: str) -> TableSpec:
    columns: dict[str, Any] = {"id": "bigint", "at": "timestamp"}
    columns |= {case.column: {"type": case.kind, "optional": True} for case in CASES}
    source = {"format": format_, "timestamps_without_zone": zone}
    return files_spec(columns=columns, key_columns=["id"], event_time="at", source=source)


def misfits(
    found: dict[int, tuple[dict[str, str | None], str | None]], cases: Iterable[Case], *, in_csv: bool
) -> list[str]:
    """The cases that became something else than the table says."""
    wrong: list[str] = []
    for case in cases:
        values, problem = found[case.number]
        expected = case.expected if not in_csv or case.in_csv == case.value else case.in_csv
        said = "refused" if problem is not None else values[case.column]
        if (said is None and expected != "NULL") or (said is not None and said != expected):
            wrong.append(f"{case.text!r} as {case.kind} ({case.zone}): {said!r}, not {expected!r} ({problem})")
        elif problem is not None and not problem.startswith(f"`{case.column}` is no {case.kind}"):
            wrong.append(f"{case.text!r} as {case.kind} ({case.zone}): {problem}")
    return wrong


def test_the_table_has_every_type():
    """The table says of more than two hundred texts what they are, each once, and of every type both what fits and what does not."""
    assert len(CASES) > 200
    assert len({(case.kind, case.zone, case.text) for case in CASES}) == len(CASES)
    kinds = {case.kind for case in CASES if case.kind != "string"}
    assert {case.kind for case in CASES if case.value == "refused"} == kinds
    assert {case.kind for case in CASES if case.value not in ("refused", "as it is")} == kinds


@pytest.mark.prove
@pytest.mark.parametrize("zone", ZONES, ids=str)
def test_every_text_of_the_table(spark, tmp_path, zone):
    """In a field of CSV, in a text and in a number of JSON, of history and live alike, each text is the value that the table says, or refused."""
    cases = [case for case in CASES if case.zone == zone]
    lines = [json.dumps({"id": case.number, "at": AT, case.column: case.text}, ensure_ascii=False) for case in cases]
    bare = [case for case in cases if IS_JSON.fullmatch(case.text)]
    lines += [f'{{"id": {case.number + 1000}, "at": "{AT}", "{case.column}": {case.text}}}' for case in bare]
    folder = folder_of(tmp_path / "json", "2024-01-01")
    folder.mkdir(parents=True)
    (folder / "lines.json").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    spec = spec_of(zone, "json")

    for rows in (staged(spark, spec, tmp_path / "json"), streamed(spark, spec, folder, zone)):
        found = outcomes(spec, rows)
        assert misfits(found, cases, in_csv=False) == []
        numbers = {case.number: found[case.number + 1000] for case in bare}
        assert misfits(numbers, bare, in_csv=False) == []

    spec = spec_of(zone, "csv")
    written = io.StringIO()
    writer = csv.DictWriter(written, list(spec.columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows({"id": case.number, "at": AT, case.column: case.text} for case in cases)
    folder = folder_of(tmp_path / "csv", "2024-01-01")
    folder.mkdir(parents=True)
    (folder / "records.csv").write_text(written.getvalue(), encoding="utf-8", newline="")

    assert misfits(outcomes(spec, staged(spark, spec, tmp_path / "csv")), cases, in_csv=True) == []


BY_FORMAT = " (the column's `format` can say how it is written)"
FINER = " (a `decimal` with more digits behind the point would hold it)"


def larger(scale: int) -> str:
    return f" (`decimal(38,{scale})` would hold it)"


HINTS = [
    ("timestamp", "9/1/2014 07:00:00", BY_FORMAT),
    ("timestamp", "1719828000", BY_FORMAT),
    ("timestamp", "2024-07-01T10:00:00", " with a zone (`timestamps_without_zone` would give it one)"),
    ("timestamp", "2024-02-30T10:00:00Z", ""),
    ("timestamp", "20240-01-01T10:00:00Z", ""),
    ("timestamp", "soon", ""),
    ("date", "29.02.2024", BY_FORMAT),
    ("date", "2024-02-29 00:00:00", BY_FORMAT),
    ("date", "2024-02-29T10:00:00Z", ""),
    ("bigint", "3.0", larger(0)),
    ("bigint", "9223372036854775808", larger(0)),
    ("bigint", "12.5", FINER),
    ("bigint", "1,000", BY_FORMAT),
    ("bigint", ".", ""),
    ("bigint", "A-1", ""),
    ("decimal(18,2)", "10000000000000000.00", larger(2)),
    ("decimal(18,2)", "1.005", FINER),
    ("decimal(18,2)", "1.000,50", BY_FORMAT),
    ("decimal(18,2)", "1,5", BY_FORMAT),
    ("decimal(18,2)", f"0.{'1' * 38}", ""),
    ("double", "1,5", BY_FORMAT),
    ("double", "1e400", ""),
    ("boolean", "1", ""),
]


def test_a_refusal_says_what_would_let_it_be_read(spark):
    """A text is refused with the field of the spec that would let it be read, if there is one."""
    names = [re.sub(r"\W", "_", kind) for kind, _, _ in HINTS]
    columns = dict(zip(names, (kind for kind, _, _ in HINTS), strict=True)) | {"at": "timestamp"}
    spec = files_spec(columns=columns, key_columns=[], event_time="at")
    cells = [*spec.columns, "_ba_broken"]
    texts = [{name: text} for name, (_, text, _) in zip(names, HINTS, strict=True)]
    rows = spark.createDataFrame(
        [tuple(map(row.get, cells)) for row in texts], ", ".join(f"{name} string" for name in cells)
    )

    said = [row["_ba_problem"] for row in typed(spec, rows, None).collect()]

    assert said == [
        f"`{name}` is no {kind}{hint}: {text}" for name, (kind, text, hint) in zip(names, HINTS, strict=True)
    ]


LINES = [(row["id"], line) for row in table_of(misread) for line in json.loads(f"[{row['lines']}]")]
LINES.append(("refused", '{"id":5,"x":"\udcff"}'))  # a byte that is not UTF-8


@pytest.fixture(scope="module")
def read_lines(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """What each line is by each way of reading it; each lies in a file of its own."""
    root = tmp_path_factory.mktemp("lines")
    folder = folder_of(root, "2024-01-01")
    folder.mkdir(parents=True)
    for number, (_, line) in enumerate(LINES):
        # nothing strips a mark behind the first line
        (folder / f"{number:03}.json").write_bytes(f"\n{line}\n".encode(errors="surrogateescape"))
    columns = {"id": {"type": "bigint", "optional": True}, "at": "timestamp"}
    spec = files_spec(columns=columns, key_columns=[], event_time="at", source={"format": "json"})
    format_ = JsonLinesFormat(spark, spec, spec.source)
    listing = list_files(
        spark,
        spec.key,
        spec.source,
        Layout(spec.source.layout, spec.time_zone),
        str(root),
        grid=spec.grid,
    )
    files = {file.file_id: file for file in listing.files}

    def number_of(file: str) -> int:
        return int(file.rpartition("/")[2].removesuffix(".json"))

    ways: dict[str, dict[int, str]] = {"history": {}, "named": {}, "live": {}}
    counts = format_.count(listing.files)
    rows = format_.rows(listing.files).select("_ba_file_id", "id", "_ba_problem").collect()
    for file_id, file in files.items():
        mine = [row for row in rows if row["_ba_file_id"] == file_id]
        counted = counts[file_id]
        if counted.misread or any(row["_ba_problem"] for row in mine):
            said = "refused"
        elif not counted.rows and not mine:
            said = "blank"
        else:
            assert (len(mine), counted.rows) == (1, 1), file.path
            said = str(mine[0]["id"]) if mine[0]["id"] is not None else "NULL"
        ways["history"][number_of(file.path)] = said
    for row in format_.numbered(listing.files).select("_ba_file", "_ba_line", "id", "_ba_problem").collect():
        assert row["_ba_line"] == 2
        ways["named"][number_of(row["_ba_file"])] = _said(row["id"], row["_ba_problem"])
    for row in streamed(spark, spec, folder, None).select("_ba_file", "id", "_ba_problem").collect():
        problem = None if row["_ba_problem"] == "`at` is NULL" else row["_ba_problem"]
        ways["live"][number_of(row["_ba_file"])] = _said(row["id"], problem)
    return {
        way: {line: found.get(number, "blank") for number, (_, line) in enumerate(LINES)} for way, found in ways.items()
    }


def _said(value: int | None, problem: str | None) -> str:
    if problem is not None:
        return "refused"
    return "NULL" if value is None else str(value)


@pytest.mark.parametrize("way", ["history", "named", "live"])
def test_every_line_of_the_table(read_lines, way):
    """A line is one JSON object by the standard, each of whose fields is there once, or it is refused: two that are glued together are never one."""
    assert read_lines[way] == {line: said for said, line in LINES}
