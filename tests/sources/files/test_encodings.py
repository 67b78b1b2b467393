"""Files in another encoding than UTF-8: every byte is the character that it stands for, or its line is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.core.spec.encodings import NOTHING, upper_half
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import SchemaMismatchError
from backfill_assets.lake.table import LakeTable
from tests.sources.files.landing import days, files_spec, source_of, staged_rows
from tests.support.shop import folder_of, launch, refusals

DAY, OTHER = "2024-01-01", "2024-01-02"
ENCODINGS = ["windows-1252", *(pytest.param(name, marks=pytest.mark.prove) for name in ("cp850", "windows-1255"))]


def spec_of(encoding: str, format_: str) -> TableSpec:
    columns = {"id": "bigint", "at": "timestamp", "größe": "string"}
    if encoding == "windows-1255":  # has no `ö`
        columns = {"id": "bigint", "at": "timestamp", "size": "string"}
    source = {"format": format_, "encoding": encoding}
    return files_spec(columns=columns, key_columns=["id"], event_time="at", source=source)


def written(folder: Path, spec: TableSpec, rows: list[dict[str, Any]], more: bytes = b"") -> None:
    """Write rows of one day, and a line of bytes behind them."""
    assert spec.source.kind == "files"
    folder.mkdir(parents=True)
    if spec.source.format == "json":
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    else:
        lines = [",".join(spec.columns), *(",".join(str(value) for value in row.values()) for row in rows)]
    text = "".join(f"{line}\r\n" for line in lines).encode(spec.source.encoding)
    (folder / f"lines.{spec.source.format}").write_bytes(text + more)


@pytest.mark.parametrize("format_", ["json", "csv"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_each_byte_is_its_character(spark, tmp_path, encoding, format_):
    """Each character that the encoding has comes out as it went in, in values and in the names of columns."""
    spec = spec_of(encoding, format_)
    name = list(spec.columns)[-1]
    texts = {i: f"a{letter}z" for i, letter in enumerate(upper_half(encoding)) if letter != NOTHING}
    written(
        folder_of(tmp_path, DAY), spec, [{"id": i, "at": f"{DAY}T00:00:00Z", name: text} for i, text in texts.items()]
    )

    rows = staged_rows(source_of(spark, spec, tmp_path), days(spec, DAY))

    assert {row["id"]: row[name] for row in rows if row["_ba_problem"] is None} == texts


@pytest.mark.parametrize("format_", ["json", pytest.param("csv", marks=pytest.mark.prove)])
def test_a_byte_that_the_encoding_lacks_is_named(spark, tmp_path, format_):
    """A line with a byte that stands for nothing fails its own day, even if it would be UTF-8."""
    spec = spec_of("windows-1252", format_)
    line = {
        "json": b'{"id": 2, "at": "2024-01-01T00:00:00Z", "gr\xf6\xdfe": "\xc2\x81"}\n',
        "csv": b"2,2024-01-01T00:00:00Z,\xc2\x81\n",
    }
    written(folder_of(tmp_path, DAY), spec, [{"id": 1, "at": f"{DAY}T00:00:00Z", "größe": "groß"}], line[format_])
    written(folder_of(tmp_path, OTHER), spec, [{"id": 3, "at": f"{OTHER}T00:00:00Z", "größe": "€"}])
    source, both = source_of(spark, spec, tmp_path), days(spec, DAY, OTHER)

    rows = staged_rows(source, both)

    assert {row["id"]: row["größe"] for row in rows if row["_ba_problem"] is None} == {1: "groß", 3: "€"}
    (bad,) = [row["_ba_problem"] for row in rows if row["_ba_problem"] is not None]
    assert bad.startswith("not windows-1252: ")
    scan = source.scan(both, source.survey(both))
    assert [scan.evidence[p.key].raw_rows for p in both] == [2, 1]


def test_schema_reads_the_names_of_fields(spark, tmp_path):
    """What JSON files have is found by the names that are meant."""
    spec = spec_of("windows-1252", "json")
    written(folder_of(tmp_path, DAY), spec, [{"id": 1, "at": f"{DAY}T00:00:00Z", "größe": "groß"}])
    source = source_of(spark, spec, tmp_path)
    assert [seen.columns for seen in source.observed_columns()] == [
        {"id": "bigint", "at": "timestamp", "größe": "string"}
    ]
    assert source.check_schema(days(spec, DAY)) == []


@pytest.mark.prove
@pytest.mark.parametrize(
    ("encoding", "format_"), [("utf-16", "json"), ("utf-16-le", "csv"), ("utf-16-be", "csv without a header")]
)
def test_utf_16_without_a_word_of_it_is_recognised(spark, tmp_path, encoding, format_):
    """A file of two bytes for each character is refused with what makes UTF-8 of it, with a mark in front or without."""
    source = {"format": format_[:4].strip(), "layout": "{date}.*"}
    if format_ == "csv without a header":
        source["csv"] = {"header": False}
    spec = files_spec(columns={"id": "bigint", "at": "timestamp"}, key_columns=["id"], event_time="at", source=source)
    text = f'{{"id": 1, "at": "{DAY}T00:00:00Z"}}\n' if format_ == "json" else f"id,at\n1,{DAY}T00:00:00Z,x\n"
    (tmp_path / f"{DAY}.{source['format']}").write_bytes((text * 2).encode(encoding))
    table = LakeTable(spark, spec, f"{tmp_path}-table")
    table.create()
    try:
        said = refusals(launch(table, source_of(spark, spec, tmp_path), days(spec, DAY)))[DAY]
    except SchemaMismatchError as error:  # no file has the columns
        said = str(error)
    assert "(is the file UTF-16? `iconv -f UTF-16 -t UTF-8` writes it in UTF-8)" in said, said
