"""SQL text: quoted whatever the names are."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backfill_assets.core import sql
from backfill_assets.errors import NaiveInstantError

PACKAGE = Path(__file__).parents[1] / "backfill_assets"
ODD = [
    "plain",
    "two words",
    "a`b",
    "``",
    "it's",
    '"',
    "a\\b",
    "\\",
    "\\'",
    "a\nb",
    "'; DROP TABLE x; --",
    "`); --",
    "é",
]
any_text = st.text(st.characters(codec="utf-8"), max_size=20)

# -- quoting -----------------------------------------------------------------------------------------------------------


def name_in(quoted: str) -> str:
    """Read a quoted name as Spark's parser does: it ends at the first backtick that is not doubled."""
    found = re.match(r"`((?:[^`]|``)*)`", quoted)
    assert found is not None
    assert found.end() == len(quoted), f"the name ends before the text does: {quoted}"
    return found[1].replace("``", "`")


def text_in(literal: str) -> str:
    """Read a text literal as Spark's parser does: a backslash goes with what follows it."""
    found = re.match(r"'((?:[^'\\]|\\.)*)'", literal, re.DOTALL)
    assert found is not None
    assert found.end() == len(literal), f"the literal ends before the text does: {literal}"
    return re.sub(r"\\(.)", r"\1", found[1], flags=re.DOTALL)


@pytest.mark.parametrize("name", ODD)
def test_an_odd_name_is_one_name(name):
    """Backticks, quotes, backslashes and line ends in a name are letters of it, as a column and as a table's path."""
    assert name_in(sql.quoted(name)) == name
    assert name_in(sql.table_at(name).removeprefix("delta.")) == name


@pytest.mark.parametrize("text", ODD)
def test_odd_text_is_one_literal(text):
    """Quotes, backslashes and line ends in a value are letters of it."""
    assert text_in(sql.text_literal(text)) == text
    assert text_in(sql.literal(text)) == text


@given(any_text)
@example("\\'")
def test_any_text_is_quoted_whole(text):
    """Whatever a name or a value is, what Spark reads out of the quotes is the same again."""
    assert name_in(sql.quoted(text)) == text
    assert text_in(sql.text_literal(text)) == text


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        (date(2024, 2, 29), "DATE'2024-02-29'"),
        (date(1, 1, 1), "DATE'0001-01-01'"),
        ("2024-01-01-05", "'2024-01-01-05'"),
    ],
)
def test_values_of_the_partition_column(value, literal):
    """A day is a DATE, an hour is text."""
    assert sql.literal(value) == literal


@pytest.mark.parametrize(
    ("instant", "literal"),
    [
        (datetime(2024, 1, 1, 5, tzinfo=UTC), "TIMESTAMP'2024-01-01 05:00:00Z'"),
        (datetime(2024, 1, 1, 5, 0, 0, 1, tzinfo=UTC), "TIMESTAMP'2024-01-01 05:00:00.000001Z'"),
        (datetime(2024, 1, 1, 5, tzinfo=timezone(timedelta(hours=2))), "TIMESTAMP'2024-01-01 03:00:00Z'"),
        (datetime(1, 1, 1, tzinfo=UTC), "TIMESTAMP'0001-01-01 00:00:00Z'"),
    ],
)
def test_instants(instant, literal):
    """An instant is written in UTC, to the microsecond, whatever zone it came in."""
    assert sql.instant_literal(instant) == literal


def test_an_instant_without_a_zone_is_refused():
    """Nobody guesses what a naive instant means."""
    with pytest.raises(NaiveInstantError):
        sql.instant_literal(datetime(2024, 1, 1))


@pytest.mark.parametrize("name", ODD)
def test_statements_quote_every_name_and_value(name):
    """In each statement every name stands between backticks and every value between quotes."""
    column, text = sql.quoted(name), sql.text_literal(name)
    table = f"delta.{column}"

    assert sql.create_table(
        name, {name: "int", "dt": "date"}, not_null={"dt"}, partitioned_by=name, properties={name: name}
    ) == (
        f"CREATE TABLE IF NOT EXISTS {table} ({column} int, `dt` date NOT NULL) USING DELTA "
        f"PARTITIONED BY ({column}) TBLPROPERTIES ({text} = {text})"
    )
    assert sql.set_properties(name, {"a": name, name: "b"}) == (
        f"ALTER TABLE {table} SET TBLPROPERTIES ('a' = {text}, {text} = 'b')"
    )
    assert sql.add_columns(name, {name: ("int", name or "said"), "b": ("string", "")}) == (
        f"ALTER TABLE {table} ADD COLUMNS ({column} int COMMENT {sql.text_literal(name or 'said')}, `b` string)"
    )
    assert sql.drop_not_null(name, name) == f"ALTER TABLE {table} ALTER COLUMN {column} DROP NOT NULL"
    assert sql.show_properties(name) == f"SHOW TBLPROPERTIES {table}"
    assert sql.describe_detail(name) == f"DESCRIBE DETAIL {table}"
    assert sql.describe_history(name) == f"DESCRIBE HISTORY {table}"
    assert sql.describe_history(name, newest=50) == f"DESCRIBE HISTORY {table} LIMIT 50"


def test_a_table_may_have_neither_partitions_nor_properties():
    """What is not asked for is not in the statement."""
    assert sql.create_table("/t", {"a": "int"}) == "CREATE TABLE IF NOT EXISTS delta.`/t` (`a` int) USING DELTA"
