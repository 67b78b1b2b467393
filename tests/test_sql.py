"""SQL text: quoted whatever the names are, and made in one file of the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backfill_assets.core import sql
from backfill_assets.errors import NaiveInstantError

PACKAGE = Path(__file__).parents[1] / "backfill_assets"
MAKES_SQL = PACKAGE / "core" / "sql.py"
MAKES_VIEWS = PACKAGE / "core" / "view_sql.py"
MAKES_POSTGRES_SQL = {
    *(PACKAGE / "core" / f"postgres_{name}.py" for name in ("sql", "queries", "questions")),
    *(PACKAGE / "demo" / f"{name}.py" for name in ("postgres", "shop_database", "database_story")),  # a client's own
}
DOES_AS_PEOPLE_DO = PACKAGE / "demo" / "hazards"
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


# -- made in one file --------------------------------------------------------------------------------------------------

STATEMENTS = {"sql", "expr", "selectExpr", "execute", "ask"}
"""Calls that take SQL: even a whole statement without a name or a value in it belongs into `core/sql.py`."""

FILTERS = {"where", "filter"}
"""Calls that take a predicate: a constant one may stand where it is used."""


def taken_as_sql(tree: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """Every argument that Spark takes for SQL, and whether a constant may stand there."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr in STATEMENTS | FILTERS:
            yield from ((argument, call.func.attr in FILTERS) for argument in call.args)
        if call.func.attr == "option" and is_text(call.args[0], "replaceWhere"):
            yield call.args[1], False
        yield from (
            (named.value, False)
            for named in call.keywords
            if call.func.attr == "options" and named.arg == "replaceWhere"
        )


def is_text(node: ast.expr, text: str | None = None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and text in (None, node.value)


def is_made_here(
    node: ast.expr, assigned: dict[str, list[ast.expr]], constants_may: bool, seen: frozenset[str]
) -> bool:
    """Say whether an expression is text that this module puts together, be it by way of a variable."""
    match node:
        case ast.JoinedStr():
            return any(isinstance(part, ast.FormattedValue) for part in node.values) or not constants_may
        case ast.Constant():
            return isinstance(node.value, str) and not constants_may
        case ast.BinOp(op=ast.Add() | ast.Mod()):
            return any(is_made_here(part, assigned, False, seen) for part in (node.left, node.right))
        case ast.Call(func=ast.Attribute(attr="format" | "join" | "replace" | "format_map", value=text)):
            return is_text(text) or isinstance(text, ast.JoinedStr) or is_made_here(text, assigned, False, seen)
        case ast.IfExp():
            return any(is_made_here(part, assigned, constants_may, seen) for part in (node.body, node.orelse))
        case ast.BoolOp():
            return any(is_made_here(part, assigned, constants_may, seen) for part in node.values)
        case ast.Starred():
            return is_made_here(node.value, assigned, constants_may, seen)
        case ast.Name() if node.id not in seen:
            inside = seen | {node.id}
            return any(is_made_here(value, assigned, constants_may, inside) for value in assigned.get(node.id, []))
        case _:
            return False


def made_elsewhere(source: str) -> list[str]:
    """Return the SQL that a module makes by itself."""
    tree = ast.parse(source)
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in (target for target in node.targets if isinstance(target, ast.Name)):
                assigned.setdefault(target.id, []).append(node.value)
        if isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and isinstance(node.target, ast.Name):
            assigned.setdefault(node.target.id, []).extend([node.value] if node.value else [])
    return [
        f"line {argument.lineno}: {ast.unparse(argument)}"
        for argument, constants_may in taken_as_sql(tree)
        if is_made_here(argument, assigned, constants_may, frozenset())
    ]


def test_sql_is_made_in_one_file():
    """No other module of the package hands Spark a text that it put together, or a statement that it wrote out."""
    found = {
        str(path.relative_to(PACKAGE)): made
        for path in sorted(PACKAGE.rglob("*.py"))
        if path not in {MAKES_SQL, MAKES_VIEWS, *MAKES_POSTGRES_SQL} and not path.is_relative_to(DOES_AS_PEOPLE_DO)
        if (made := made_elsewhere(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "spark.sql(f'DESCRIBE HISTORY {path}')",
        "spark.sql('VACUUM t')",
        "spark.sql('DROP TABLE ' + name)",
        "spark.sql('DROP TABLE %s' % name)",
        "spark.sql('DROP TABLE {}'.format(name))",
        "statement = f'DROP TABLE {name}'\nspark.sql(statement)",
        "statement: str = 'DROP TABLE ' + name\nself.spark.sql(statement)",
        "F.expr(f\"DATE'{day}'\")",
        "rows.where(f'`dt` = {day}')",
        "rows.filter('`dt` = ' + day)",
        "rows.where(' OR '.join(parts))",
        "rows.where(everything if wanted else f'a = {b}')",
        "rows.selectExpr('a', f'{b} AS c')",
        "rows.write.option('replaceWhere', f'dt = {day}')",
        "rows.write.options(replaceWhere='dt = 1')",
    ],
)
def test_sql_that_is_made_elsewhere_is_found(line):
    """Each way to put SQL together is seen, also by way of a variable."""
    assert made_elsewhere(line)


@pytest.mark.parametrize(
    "line",
    [
        "spark.sql(sql.describe_history(path))",
        "rows.where('_ba_rank = 1')",
        "rows.where(F.col('a') > 1)",
        "rows.where(replace_where('dt', partitions))",
        "predicate = replace_where('dt', partitions)\nrows.write.option('replaceWhere', predicate)",
        "F.expr(instant_literal(value))",
        "F.filter(numbers, lambda number: number > 1)",
        "F.concat(F.lit(f'`{name}` is NULL'))",
    ],
)
def test_what_is_no_sql_made_elsewhere_is_left_alone(line):
    """Constant filters, columns, and text from `core/sql.py` are as they should be."""
    assert made_elsewhere(line) == []
