"""SQL text: the predicate that replaces partitions, and names between backticks."""

from __future__ import annotations

import re
from datetime import date
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backfill_assets.core.calendar.partitions import Grid
from backfill_assets.core.calendar.windows import Grain
from backfill_assets.core.sql import quoted, replace_where
from tests.core.calendar.grids import DAILY, grids
from tests.support.docstring_tables import table_of

_RANGE = re.compile(
    r"`(?P<name>(?:[^`]|``)+)` >= (?P<kind>DATE)?'(?P<first>[\d-]+)' AND `(?P=name)` < (?P=kind)?'(?P<end>[\d-]+)'"
)


_LIST = re.compile(r"`(?P<name>(?:[^`]|``)+)` IN \((?P<values>(?:DATE)?'[\d-]+'(?:, (?:DATE)?'[\d-]+')*)\)")


def holds_for(predicate: str, value: date | str) -> bool:
    """Evaluate a predicate over one date, or one text, as Spark would; any other form of predicate is an error."""
    assert ("DATE'" in predicate) == isinstance(value, date), "a date is compared with dates, a text with texts"
    if match := _RANGE.fullmatch(predicate):
        return match["first"] <= str(value) < match["end"]
    match = _LIST.fullmatch(predicate)
    assert match, f"not a predicate of literals: {predicate}"
    return str(value) in re.findall(r"'([\d-]+)'", match["values"])


@pytest.mark.parametrize("row", table_of(replace_where), ids=lambda row: row["partitions"])
def test_the_predicate_is_what_its_docstring_says(row):
    """Every row of the table in `replace_where` holds."""
    assert replace_where("dt", [DAILY.partition(key) for key in row["partitions"].split(", ")]) == row["predicate"]


def test_hours_and_months_are_listed():
    """A value between two months, or two hours, that is no partition is not replaced with them."""
    months, hours = Grid(Grain.MONTHLY, date(2023, 1, 1)), Grid(Grain.HOURLY, date(2023, 1, 1))
    two = [months.partition("2024-02-01"), months.partition("2024-03-01")]
    assert replace_where("dt", two) == "`dt` IN (DATE'2024-02-01', DATE'2024-03-01')"
    assert not holds_for(replace_where("dt", two), date(2024, 2, 15))
    night = [hours.partition("2024-01-01-00:00"), hours.partition("2024-01-01-01:00")]
    assert replace_where("dt", night) == "`dt` IN ('2024-01-01-00', '2024-01-01-01')"
    assert not holds_for(replace_where("dt", night), "2024-01-01-00-copy")


def test_a_predicate_for_nothing_cannot_be_made():
    """An overwrite without a partition is refused, since it could only replace everything or nothing."""
    with pytest.raises(ValueError, match="an overwrite needs at least one partition"):
        replace_where("dt", [])


@given(grids(), st.sets(st.integers(0, 30), min_size=1), st.randoms())
@example(DAILY, {0, 1, 2}, Random(0))
@example(DAILY, {0, 2}, Random(0))
def test_the_predicate_holds_exactly_for_its_partitions(grid, chosen, random):
    """Of all partitions around, in any order given, the predicate holds for the chosen ones and no other."""
    around = [grid.partition_of(grid.start_utc)]
    for _ in range(31):
        around.append(grid.following(around[-1]))
    wanted = [around[n] for n in chosen]
    random.shuffle(wanted)
    predicate = replace_where("dt", [*wanted, wanted[0]])
    assert {p.key for p in around if holds_for(predicate, p.value)} == {p.key for p in wanted}


@pytest.mark.parametrize(
    ("name", "sql"),
    [("dt", "`dt`"), ("order day", "`order day`"), ("a`b", "`a``b`"), ("x` = 1 OR `y", "`x`` = 1 OR ``y`")],
)
def test_identifiers_are_quoted(name, sql):
    """A name is never SQL, whatever is in it."""
    assert quoted(name) == sql
    assert replace_where(name, [DAILY.partition("2024-01-01")]).startswith(f"{sql} >= DATE'")
