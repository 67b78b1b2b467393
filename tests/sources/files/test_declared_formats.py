"""Texts in a declared format become values exactly or not at all: every case that the code documents, in history and live."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.core.schema.compare import compare_events
from backfill_assets.core.spec.columns import Column
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.sources.files.declared_formats import DeclaredFormat
from backfill_assets.sources.files.observed import columns_of_lines
from tests.sources.files.landing import files_spec
from tests.sources.files.ways_of_reading import outcomes, staged, streamed
from tests.support.docstring_tables import table_of
from tests.support.shop import folder_of

AT = 1704067200000
ZONE = "Europe/Berlin"
FOLDER = "2024-01-01"
IS_JSON = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false")


@dataclass(frozen=True)
class Case:
    """One text of one format, and what it stands for."""

    number: int
    kind: str
    format: str
    text: str
    value: str


ROWS = [(row, text) for row in table_of(DeclaredFormat) for text in json.loads(f"[{row['texts']}]")]
CASES = [Case(n, row["type"], row["format"], text, row["value"]) for n, (row, text) in enumerate(ROWS)]
FORMATS = list(dict.fromkeys((case.kind, case.format) for case in CASES))
COLUMNS = {form: f"c{i}" for i, form in enumerate(FORMATS)}
BARE = [case for case in CASES if IS_JSON.fullmatch(case.text)]


def spec_of(format_: str) -> TableSpec:
    columns: dict[str, Any] = {"id": "bigint", "at": {"type": "timestamp", "format": "epoch_millis"}}
    columns |= {name: {"type": k, "format": written, "optional": True} for (k, written), name in COLUMNS.items()}
    source = {"format": format_, "timestamps_without_zone": ZONE}
    return files_spec(columns=columns, key_columns=["id"], event_time="at", source=source)


def misfits(found: dict[int, tuple[dict[str, str | None], str | None]], *, in_csv: bool, first: int = 0) -> list[str]:
    """The cases that became something else than the table says, or for another reason."""
    wrong: list[str] = []
    for case in BARE if first else CASES:
        values, problem = found[case.number + first]
        name = COLUMNS[case.kind, case.format]
        expected = None if in_csv and not case.text else case.value
        said = "refused" if problem is not None else values[name]
        if said != expected:
            wrong.append(f"{case.text!r} as {case.kind} ({case.format}): {said!r}, not {expected!r} ({problem})")
        elif problem is not None and not problem.startswith(f"`{name}` is no {case.kind} (`format: {case.format}`): "):
            wrong.append(problem)
    return wrong


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with each case as a text, and as a number where it is one in JSON."""
    root = tmp_path_factory.mktemp("json")
    folder = folder_of(root, FOLDER)
    folder.mkdir(parents=True)
    written = [{"id": c.number, "at": AT, COLUMNS[c.kind, c.format]: c.text} for c in CASES]
    rows = [json.dumps(row, ensure_ascii=False) for row in written]
    rows += [f'{{"id": {c.number + 1000}, "at": "{AT}", "{COLUMNS[c.kind, c.format]}": {c.text}}}' for c in BARE]
    (folder / "lines.json").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return root


def test_each_format_has_what_fits_and_what_does_not():
    """The table says of some two hundred texts what they are, each once, and of every format both what fits and what does not."""
    assert len(CASES) > 200
    assert len({(case.kind, case.format, case.text) for case in CASES}) == len(CASES)
    assert {(c.kind, c.format) for c in CASES if c.value != "refused"} == set(FORMATS)
    assert {(c.kind, c.format) for c in CASES if c.value == "refused"} >= set(FORMATS) - {("decimal(38,2)", "1'234.56")}


@pytest.mark.prove
@pytest.mark.parametrize("way", ["history", "live"])
def test_every_text_in_a_declared_format(spark, lines, way):
    """In a text and in a number of JSON, of history and live alike, each is the value that the table says, or is refused with its format."""
    spec = spec_of("json")
    rows = staged(spark, spec, lines) if way == "history" else streamed(spark, spec, folder_of(lines, FOLDER), ZONE)
    found = outcomes(spec, rows)
    assert misfits(found, in_csv=False) == []
    assert misfits(found, in_csv=False, first=1000) == []


@pytest.mark.prove
def test_every_record_in_a_declared_format(spark, tmp_path):
    """In a field of CSV each is the same value, or refused; a field without anything is NULL."""
    spec = spec_of("csv")
    written = io.StringIO()
    writer = csv.DictWriter(written, list(spec.columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows({"id": case.number, "at": AT, COLUMNS[case.kind, case.format]: case.text} for case in CASES)
    folder = folder_of(tmp_path, FOLDER)
    folder.mkdir(parents=True)
    (folder / "records.csv").write_text(written.getvalue(), encoding="utf-8", newline="")

    assert misfits(outcomes(spec, staged(spark, spec, tmp_path)), in_csv=True) == []


def test_schema_proposes_nothing_for_a_declared_format():
    """A field that is written as its column says has the column's type, whatever JSON calls it."""
    column = {
        "ordered_at": Column(type="timestamp", format="epoch_millis"),
        "day": Column(type="date", format="dd.MM.yyyy"),
    }
    spec = files_spec(columns=column, event_time="ordered_at", key_columns=[], source={"format": "json"})
    rows = [{"ordered_at": AT, "day": "29.02.2024"}, {"ordered_at": str(AT), "day": None}]
    assert columns_of_lines(rows, spec) == {"ordered_at": "timestamp", "day": "date"}
    wrong = [{"ordered_at": "2024-02-29T10:00:00Z", "day": "2024-02-29"}, {"ordered_at": AT * 1000, "day": None}]
    for row in wrong:
        assert columns_of_lines([row], spec)["ordered_at"] == "not in `format: epoch_millis`"
    assert columns_of_lines(wrong, spec)["day"] == "not in `format: dd.MM.yyyy`"
    changes = {change.column: change for change in compare_events(spec, columns_of_lines(wrong, spec), None, [])}
    assert set(changes) == {"ordered_at", "day"}
