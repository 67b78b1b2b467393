"""What the first records of CSV files say of their form, and their values."""

from __future__ import annotations

from decimal import Decimal

import pytest

from backfill_assets.core.spec.files import CsvForm
from backfill_assets.sources.files.csv_sample import csv_form, csv_rows
from backfill_assets.sources.files.sample import sample_of
from tests.support.shop import folder_of


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(mark: str):
    """The one with which all records have one length, whatever stands in quotes or in a text."""
    other = ";" if mark == "," else ","
    lines = ["", *(mark.join(line) for line in (
        ("id", "at", "amount", "note"),
        ("1", "2024-01-01T10:00:00Z", "1.50", f'"a{mark}b{other}c"'),
        ("2", "2024-01-01T11:00:00Z", "", f"d{other}e{other}f"),
    ))]  # fmt: skip
    form = csv_form(lines)
    assert form == CsvForm(delimiter=mark)
    assert csv_rows(lines, form) == [
        {"id": 1, "at": "2024-01-01T10:00:00Z", "amount": Decimal("1.50"), "note": f"a{mark}b{other}c"},
        {"id": 2, "at": "2024-01-01T11:00:00Z", "amount": None, "note": f"d{other}e{other}f"},
    ]


def test_files_without_a_header():
    """A first record with a number or a day in it names no columns."""
    for lines in (["1,2024-01-01,a", "2,2024-01-02,b"], ["x,2024-01-01,a", "y,2024-01-02,b"]):
        form = csv_form(lines)
        assert not form.header
        rows = csv_rows(lines, form)
        assert [(list(row), row["column_2"]) for row in rows] == [
            (["column_1", "column_2", "column_3"], day) for day in ("2024-01-01", "2024-01-02")
        ]


def test_types_are_those_of_all_files(spark, tmp_path):
    """A file whose amounts are all whole says little of the others, and one without a row says nothing; a column may be in some files alone."""
    for day, text in (
        ("2024-01-01", "id,amount\n1,2\n"),
        ("2024-01-02", "id,amount,note\n2,2.5,x\n"),
        ("2024-01-03", "id\n"),
    ):
        folder_of(tmp_path, day).mkdir(parents=True)
        (folder_of(tmp_path, day) / "a.csv").write_text(text)
    assert sample_of(spark, "bronze/orders", str(tmp_path)).kinds == [
        {"id": "bigint", "amount": "decimal(18,2)"},
        {"id": "bigint", "amount": "decimal(18,2)", "note": "string"},
    ]


def test_what_cannot_be_a_record_is_left_aside():
    """A field without an end is no reason to see nothing; a header may lack the name of an index."""
    lines = [",id,at", "0,1,2024-01-01", '1,2,"' + "x" * 200_000, "2,3,2024-01-02", "3,4"]
    form = csv_form(lines)
    assert form.header
    assert [row["id"] for row in csv_rows(lines, form)] == [1, 3]
    assert csv_rows([], form) == []
