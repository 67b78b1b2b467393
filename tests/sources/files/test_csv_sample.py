"""What the first records of CSV files say of their form."""

from __future__ import annotations

import pytest

from backfill_assets.core.calendar.layouts import ANY_TIME
from backfill_assets.core.spec.files import CsvForm
from backfill_assets.sources.files.csv_sample import CsvSample

KINDS = {"id": "bigint", "at": "timestamp", "amount": "decimal(18,2)", "note": "string"}


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(mark: str):
    """The one with which all records have one length, whatever stands in quotes or in a text."""
    other = ";" if mark == "," else ","
    lines = [mark.join(line) for line in (
        ("id", "at", "amount", "note"),
        ("1", "2024-01-01T10:00:00Z", "1.50", f'"a{mark}b{other}c"'),
        ("2", "2024-01-01T11:00:00Z", "", f"d{other}e{other}f"),
    )]  # fmt: skip
    found = CsvSample.of([(ANY_TIME, ["", *lines])])
    assert (found.form, found.kinds) == (CsvForm(delimiter=mark), [KINDS])
    assert [row["note"] for _, row in found.rows] == [f"a{mark}b{other}c", f"d{other}e{other}f"]
    assert [row["amount"] for _, row in found.rows] == ["1.50", None]


def test_files_without_a_header():
    """A first record with a number in it names no columns."""
    found = CsvSample.of([(ANY_TIME, ["1,2024-01-01,a", "2,2024-01-02,b"])])
    assert (found.form.header, found.kinds) == (
        False,
        [{"column_1": "bigint", "column_2": "date", "column_3": "string"}],
    )
    assert len(found.rows) == 2


def test_types_are_those_of_all_files():
    """A file whose amounts are all whole says little of the others; a column may be in some files alone."""
    found = CsvSample.of([(ANY_TIME, ["id,amount", "1,2"]), (ANY_TIME, ["id,amount,note", "2,2.5,x"]), (ANY_TIME, [])])
    assert found.kinds == [
        {"id": "bigint", "amount": "decimal(18,2)"},
        {"id": "bigint", "amount": "decimal(18,2)", "note": "string"},
        {},
    ]


def test_what_cannot_be_a_record_is_left_aside():
    """A field without an end is no reason to see nothing; a header may lack the name of an index."""
    found = CsvSample.of([(ANY_TIME, [",id,at", "0,1,2024-01-01", '1,2,"' + "x" * 200_000, "2,3,2024-01-02"])])
    assert found.form.header
    assert found.kinds == [{"": "bigint", "id": "bigint", "at": "date"}]
    assert len(found.rows) == 2
