"""History in CSV: records by name or by position, plain or packed, and every kind of bad record named by its line."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import zstandard
from pyspark.sql import SparkSession

from backfill_assets.core.history.outcomes import Outcome
from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import SchemaMismatchError
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.files.source import FilesSource
from tests.support.shop import (
    COLUMNS,
    Row,
    content,
    launch,
    multiset,
    orders,
    orders_spec,
    published_keys,
    refusals,
    rows_in,
)

HEADER = "order_id,customer,amount,ordered_at"
WITH_NOTE = {**COLUMNS, "note": {"type": "string", "optional": True}}


def csv_spec(*, csv: Mapping[str, Any] | None = None, columns: Mapping[str, Any] = COLUMNS, **source: Any) -> TableSpec:
    facts = {
        "kind": "files",
        "path": "orders",
        "format": "csv",
        "layout": "orders_{date}.csv*",
        **({"csv": csv} if csv else {}),
        **source,
    }
    return orders_spec(source=facts, columns=columns)


def source_of(spark: SparkSession, spec: TableSpec, root: Path, **changes: Any) -> FilesSource:
    assert isinstance(spec.source, FilesSpec)
    return FilesSource(spark, spec, spec.source, str(root), **changes)


def record(row: Row, columns: Iterable[str] = COLUMNS, delimiter: str = ",") -> str:
    return delimiter.join(
        value.isoformat() if isinstance(value := row[name], datetime) else str(value) for name in columns
    )


def text_of(rows: Iterable[Row | str], header: str | None = HEADER, end: str = "\n") -> bytes:
    lines = [*([] if header is None else [header]), *(row if isinstance(row, str) else record(row) for row in rows)]
    return "".join(line + end for line in lines).encode()


@pytest.fixture(scope="module")
def csv_days(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, LakeTable, list[Outcome], list[str]]:
    """One launch over days of CSV, most of them bad, each in its own way; the date is in the file's name."""
    root = tmp_path_factory.mktemp("csv [days] ü#%41")
    spec = csv_spec(columns=WITH_NOTE)

    def write(day: int, *more: str, data: bytes | None = None, ending: str = "") -> None:
        rows: list[Row | str] = [*orders(f"2024-01-{day:02}"), *more]
        (root / f"orders_2024-01-{day:02}.csv{ending}").write_bytes(text_of(rows) if data is None else data)

    at = "2024-01-{:02}T00:00:00Z".format
    write(1, data=b"\xef\xbb\xbf" + text_of(["", *orders("2024-01-01"), "   "], end="\r\n"))
    write(2, data=gzip.compress(text_of(orders("2024-01-02"))), ending=".gz")
    write(3, data=zstandard.compress(text_of(orders("2024-01-03"))), ending=".zst")
    swapped = ["note", "ordered_at", "amount", "order_id", "extra", "customer"]
    turned = [{**row, "note": '"a ""quoted"", text"', "extra": "x"} for row in orders("2024-01-04")]
    write(4, data=text_of([record(row, swapped) for row in turned], ",".join(swapped)))
    write(5, f'9,"",1.50,{at(5)}', f"8,,,{at(5)}", f'7,5" pipe,"",{at(5)}')
    write(6, f"9,unclosed,1.50,{at(6)},more")
    write(7, "9,short")
    write(8, '9,"over two', f'lines",1.50,{at(8)}')
    write(9, f'9,"x"y,1.50,{at(9)}')
    write(10, f"9,x,1.505,{at(10)}")
    write(11, "9,x,1.50,2024-01-11T00:00:00")
    write(12, data=text_of(orders("2024-01-12"), "order_id,Customer,amount,ordered_at"))
    write(13, HEADER, record(orders("2024-01-13", 1, order_id=5)[0]))
    packed = gzip.compress(text_of([{**row, "customer": os.urandom(20).hex()} for row in orders("2024-01-14", 500)]))
    write(14, data=packed[: len(packed) // 2], ending=".gz")
    write(15, data=zstandard.compress(os.urandom(3000))[:900], ending=".zst")
    write(16, data=text_of(orders("2024-01-16")) + b"9,\xff\xfe,1.50,2024-01-16T00:00:00Z\n")
    write(17, data=text_of([]))
    write(18, data=text_of([record(row) for row in orders("2024-01-18")], None))
    write(19, data=text_of(["1,x,1.50,x,y"], "order_id,customer,amount,ordered_at,customer"))
    write(20)
    write(21, data=text_of(orders("2024-01-21"), "order_id,The customer,amount,ordered_at"))
    (root / "readme.txt").write_text("which is no order")
    table = LakeTable(spark, spec, f"{tmp_path_factory.mktemp('tables')}/orders")
    table.create()
    said: list[str] = []
    source = source_of(spark, spec, root, log=said.append)
    return root, table, launch(table, source, spec.grid.between("2024-01-01", "2024-01-21"), log=said.append), said


def test_good_csv_is_published_beside_bad(csv_days):
    """With a mark in front, either end of line, packed either way, columns in any order: each is published, and what fits none is said."""
    root, table, outcomes, said = csv_days

    assert published_keys(outcomes) == [f"2024-01-{day:02}" for day in (1, 2, 3, 4, 5, 17, 20)]
    fifth = [
        {"order_id": 9, "customer": "", "amount": Decimal("1.50"), "ordered_at": datetime(2024, 1, 5, tzinfo=UTC)},
        {"order_id": 8, "customer": None, "amount": None, "ordered_at": datetime(2024, 1, 5, tzinfo=UTC)},
        {"order_id": 7, "customer": '5" pipe', "amount": None, "ordered_at": datetime(2024, 1, 5, tzinfo=UTC)},
    ]
    assert content(table.path) == multiset(
        [*fifth, *(row for d in (1, 2, 3, 4, 5, 20) for row in orders(f"2024-01-{d:02}"))]
    )
    assert {row["note"] for row in rows_in(table.path) if row["dt"] == date(2024, 1, 4)} == {'a "quoted", text'}
    assert any(
        f"1 files do not fit the layout `orders_{{date}}.csv*` and are left out (first `file:{root}/readme.txt`)" in s
        for s in said
    )


@pytest.mark.parametrize(
    ("day", "words"),
    [
        (6, ["1 line cannot be read", ".csv line 5: not 4 fields: 9,unclosed,1.50"]),
        (7, [".csv line 5: not 4 fields: 9,short"]),
        (8, ["2 lines cannot be read", '.csv line 5: a quote is not closed on its line: 9,"over two (does the record go on in the next line? Export such data as Parquet or JSON lines)', '.csv line 6: not 4 fields: lines"']),
        (9, ['.csv line 5: a quote is not closed on its line: 9,"x"y']),
        (10, [".csv line 5: `amount` is no decimal(18,2) (a `decimal` with more digits behind the point would hold it): 1.505"]),
        (11, [".csv line 5: `ordered_at` is no timestamp with a zone"]),
        (12, ["schema_matches", "orders_2024-01-12.csv`: `customer` is missing; its header is `order_id,Customer,amount,ordered_at`"]),
        (13, ["schema_matches", "its header comes 2 times, so that it may be several files in one"]),
        (14, ["files_are_readable", "orders_2024-01-14.csv.gz` cannot be read to its end ("]),
        (15, ["files_are_readable", "orders_2024-01-15.csv.zst` cannot be read to its end ("]),
        (16, [".csv line 5: not UTF-8: 9,"]),
        (18, ["schema_matches", "orders_2024-01-18.csv`: `order_id` is missing; `customer` is missing"]),
        (19, ["its header names `customer` twice"]),
        (21, ["`customer` is missing; its header is `order_id,The customer,amount,ordered_at`; `The customer` cannot be the name of a column here: rename it in the export"]),
    ],
    ids=["too many", "too few", "two lines", "after a quote", "digits", "no zone", "other name", "header twice", "cut gz", "broken zst", "not UTF-8", "no header", "name twice", "name with a space"],
)  # fmt: skip
def test_a_bad_record_is_named(csv_days, day, words):
    """What is wrong is said with the path, the line and the value; nothing is miscounted on the way."""
    root, _, outcomes, _ = csv_days

    said = refusals(outcomes)[f"2024-01-{day:02}"]

    for part in [*words, f"{root}/orders_2024-01-{day:02}.csv"]:
        assert part in said, said
    assert "rows_are_accounted_for" not in said


def test_records_without_a_header(spark, tmp_path):
    """Columns come in the spec's order; delimiter, quote, escape and what stands for NULL are as the spec says."""
    form = {"header": False, "delimiter": ";", "quote": "'", "escape": "\\", "null_value": "\\N"}
    spec = csv_spec(csv=form, layout="{year}/orders_{year}{month}{day}.csv")
    lines = [
        "1;'it\\'s; here';1.50;2024-01-01T00:00:00Z",
        "2;\\N;\\N;2024-01-01T01:00:00Z",
        "3;;2.00;2024-01-01T02:00:00Z",
        '4;";0.10;2024-01-01T03:00:00Z',
    ]
    (tmp_path / "2024").mkdir()
    (tmp_path / "2024" / "orders_20240101.csv").write_text("\n".join(lines))
    source, named = source_of(spark, spec, tmp_path), spec.grid.between("2024-01-01", "2024-01-01")

    assert source.check_schema(named) == []
    scan = source.scan(named, source.survey(named))

    assert scan.evidence["2024-01-01"].raw_rows == 4
    found = {row["order_id"]: (row["customer"], row["amount"], row["_ba_problem"]) for row in scan.rows.collect()}
    assert found == {
        1: ("it's; here", Decimal("1.50"), None), 2: (None, None, None), 3: ("", Decimal("2.00"), None), 4: ('"', Decimal("0.10"), None)
    }  # fmt: skip


def test_csv_with_another_header_is_refused_as_a_whole(spark, tmp_path):
    """If neither the oldest nor the newest file has the spec's columns nothing is read; more columns than those are remarked on."""
    (tmp_path / "orders_2024-01-01.csv").write_text(f"{HEADER},extra\n")
    spec, other = csv_spec(), csv_spec(columns={**COLUMNS, "country": "string"})
    named = spec.grid.between("2024-01-01", "2024-01-01")

    (remark,) = source_of(spark, spec, tmp_path).check_schema(named)
    assert "the files also have ['extra']" in remark
    with pytest.raises(
        SchemaMismatchError,
        match="orders_2024-01-01.csv` does not have the spec's columns: `country` is missing; its header",
    ):
        source_of(spark, other, tmp_path).check_schema(named)


@pytest.mark.parametrize("quote", ['"', pytest.param("", marks=pytest.mark.prove)])
def test_a_nul_is_a_letter_as_others_are(spark, tmp_path, quote):
    """In quotes, beside an escaped one, at the beginning and alone: Spark's parser takes it for a mark of its own if it may."""
    texts = ["\0b", "a\0b", "\0", "a\0", f"\0{quote}\0"]
    kept = [quote + text.replace(quote, quote * 2) + quote if quote else text for text in texts]
    lines = [f"{number},{text},2024-01-01T00:00:00Z\n" for number, text in enumerate(kept)]
    (tmp_path / "orders_2024-01-01.csv").write_text("order_id,customer,ordered_at\n" + "".join(lines), encoding="utf-8")
    columns = {name: kind for name, kind in COLUMNS.items() if name != "amount"}
    spec = csv_spec(csv={"quote": quote, "escape": quote} if quote else {"quote": ""}, columns=columns)
    source, named = source_of(spark, spec, tmp_path), spec.grid.between("2024-01-01", "2024-01-01")

    rows = source.scan(named, source.survey(named)).rows.collect()

    assert [row["customer"] for row in sorted(rows, key=lambda row: row["order_id"])] == texts


@pytest.mark.prove
def test_a_first_line_that_is_no_header_fails_its_own_day(spark, tmp_path):
    """A file of NUL bytes, as a crash leaves it, and one line without an end: they are named by length, and good days are published."""
    (tmp_path / "orders_2024-01-01.csv").write_bytes(b"\0" * 200_000)
    (tmp_path / "orders_2024-01-02.csv").write_bytes(text_of(orders("2024-01-02"), HEADER + "," + "x" * 140_000))
    (tmp_path / "orders_2024-01-03.csv").write_bytes(text_of(orders("2024-01-03")))
    table = LakeTable(spark, csv_spec(), f"{tmp_path}-table")
    table.create()
    source, named = source_of(spark, table.spec, tmp_path), table.spec.grid.between("2024-01-01", "2024-01-03")

    assert source.check_schema(named) == []
    outcomes = launch(table, source, named)

    assert published_keys(outcomes) == ["2024-01-03"]
    for day, length in (("2024-01-01", 200_000), ("2024-01-02", len(HEADER) + 140_001)):
        what = f"orders_{day}.csv`: its first line has {length:,} characters; it is no header."
        assert what in refusals(outcomes)[day]
