"""What a few rows tell of a source: types, event time, key, and instants without a zone."""

from __future__ import annotations

import ast
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from backfill_assets.core.calendar.layouts import ANY_TIME, Unit
from backfill_assets.core.calendar.windows import Window
from backfill_assets.core.schema.inference import (
    OBJECT,
    decides,
    event_time_of,
    fits,
    instant_of,
    key_of,
    kind_of_values,
    lacks_zone,
    latest_by_of,
    value_of_text,
)
from tests.support.docstring_tables import table_of


def read(cell: str) -> list[Any]:
    """Values of a table in a docstring, numbers with a point as Decimal, as lines are read."""
    values = ast.literal_eval(f"[{cell}]")
    return [
        Decimal(part.strip()) if isinstance(value, float) else value
        for value, part in zip(values, cell.split(","), strict=True)
    ]


@pytest.mark.parametrize("row", table_of(kind_of_values), ids=lambda row: row["values"])
def test_the_type_of_values(row):
    """The narrowest type that takes all of them."""
    assert kind_of_values(read(row["values"])) == row["type"]


def test_an_object_is_no_type():
    """Objects and arrays are seen, beside NULL too."""
    assert kind_of_values([None, {"a": 1}]) == kind_of_values([[1]]) == OBJECT


@pytest.mark.parametrize("row", table_of(fits), ids=lambda row: f"{row['value']} as {row['type']}")
def test_what_fits_a_type(row):
    """As the reader of JSON lines would have it."""
    assert fits(read(row["value"])[0], row["type"]) is (row[""] == "yes")


@pytest.mark.parametrize("row", table_of(value_of_text), ids=lambda row: row["text"])
def test_the_value_of_a_text(row):
    """A number, a truth value or NULL where the text says no more than that; else the text."""
    assert repr(value_of_text(ast.literal_eval(row["text"]))) == row["value"]


def test_the_event_time_lies_in_its_folder():
    """The timestamp whose values lie in the day of their path, and not one that was written later; an instant before a date."""
    rows = [
        (
            Window(datetime(2024, 1, d, tzinfo=UTC), datetime(2024, 1, d + 1, tzinfo=UTC)),
            {"made": f"2024-01-0{d} 10:00:00", "day": date(2024, 1, d), "changed": datetime(2024, 1, 9)},
        )
        for d in (1, 2)
    ]
    kinds = {"changed": "timestamp", "day": "date", "made": "timestamp"}
    guess = event_time_of(kinds, rows, Unit.DAY)
    assert (guess.value, guess.why) == ("made", "100% of 2 sampled values lie inside the day that their path names")
    assert event_time_of({"changed": "timestamp"}, rows, Unit.DAY) is None
    assert event_time_of({"made": "string"}, rows, Unit.DAY) is None


def test_the_event_time_where_paths_name_none():
    """The first instant by which no row is changed."""
    row = {"day": "2024-01-01", "updated_at": "2024-01-02T10:00:00Z", "at": "2024-01-01T10:00:00+02:00"}
    guess = event_time_of(
        {"day": "date", "updated_at": "timestamp", "at": "timestamp"}, [(ANY_TIME, row)] * 2, Unit.ANY
    )
    assert guess.value == "at"


@pytest.mark.parametrize(
    ("value", "hour"),
    [
        ("2024-01-01T10:00:00+02:00", 8),
        ("2024-01-01 10:00:00.123456789 UTC", 10),
        (datetime(2024, 1, 1, 10), 10),
        (date(2024, 1, 1), 0),
        ("9999-12-31T23:59:59-05:00", None),
        ("tomorrow", None),
    ],
)
def test_the_instant_of_a_value(value: object, hour: int | None):
    """In UTC, for which one without a zone is taken."""
    found = instant_of(value)
    assert (found and found.hour) == hour


def test_sizes_of_numbers_are_exact():
    """Of any number of digits, and of exponents that nobody could write out."""
    assert kind_of_values([Decimal("1234567890123456789012345678.12")]) == "decimal(38,2)"
    assert not fits(Decimal("1.00000000000000000000000000000000001"), "decimal(18,2)")
    assert fits(Decimal("1.5000000000000000000000000000000000"), "decimal(18,2)")
    assert kind_of_values([Decimal("1E+999999999")]) == "double"
    assert kind_of_values([value_of_text("9" * 5000)]) == "double"


def test_what_decides_between_rows_of_one_key():
    """Only a sample in which keys come twice shows that a column tells the newest row each time."""
    once = [{"id": n, "updated_at": "2024-01-01"} for n in range(3)]
    assert not decides("updated_at", "id", once)
    assert not decides("updated_at", "id", [*once, once[0]])
    assert decides("updated_at", "id", [*once, {"id": 0, "updated_at": "2024-01-02"}])
    assert not decides("updated_at", "id", [*once, {"id": 0, "updated_at": None}])


def test_a_key_is_unique_and_looks_like_one():
    """`order_id` before `customer_id` for orders; a number that is no id is no key; a repetition is let pass where the latest wins."""
    rows = [{"customer_id": i, "order_id": i, "amount": i} for i in range(100)]
    kinds = {"customer_id": "bigint", "order_id": "bigint", "amount": "bigint"}
    key = key_of(kinds, rows, "orders", None)
    assert (key.value, key.why) == ("order_id", "unique in 100 sampled rows")
    assert key_of({"amount": "bigint"}, rows, "orders", None) is None
    twice = [*rows[1:], rows[1]]
    assert key_of({"order_id": "bigint"}, twice, "orders", None) is None
    latest = latest_by_of({"order_id": "bigint", "updated_at": "timestamp"})
    assert key_of({"order_id": "bigint"}, twice, "orders", latest) is None
    told = [{**row, "updated_at": n} for n, row in enumerate(twice)]
    assert key_of({"order_id": "bigint"}, told, "orders", latest) is not None
    assert latest_by_of({"updated_at": "string"}) is None


def test_instants_without_a_zone_are_noticed():
    """A time of day without a zone; a plain date has none to lack."""
    assert lacks_zone(["2024-01-01T00:00:00Z", "2024-01-01 00:00:00"])
    assert not lacks_zone(["2024-01-01T00:00:00+01:00", "2024-01-01", None])
