"""SQL text is made in few files: whatever else of the package hands a statement to Spark or to a database is found."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "backfill_assets"
MAKES_SQL = PACKAGE / "core" / "sql.py"
MAKES_VIEWS = PACKAGE / "core" / "view_sql.py"
MAKES_POSTGRES_SQL = {
    *(PACKAGE / "core" / "postgres" / f"{name}.py" for name in ("sql", "queries", "questions")),
    *(PACKAGE / "demo" / f"{name}.py" for name in ("postgres", "shop_database")),  # a client's own
}

STATEMENTS = {"sql", "expr", "selectExpr"}
"""Calls that take SQL: even a whole statement without a name or a value in it belongs into `core/sql.py` or `core/postgres`."""

TO_A_DATABASE = {
    "execute": slice(1),
    "executemany": slice(1),
    "copy": slice(1),
    "ask": slice(2),
    "jdbc": slice(1, None),
}
"""The same, with which of its arguments are SQL: values stand beside it, and an address before it."""

FILTERS = {"where", "filter"}
"""Calls that take a predicate: a constant one may stand where it is used."""


def taken_as_sql(tree: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """Every argument that Spark takes for SQL, and whether a constant may stand there."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr in STATEMENTS | FILTERS | TO_A_DATABASE.keys():
            given = call.args[TO_A_DATABASE.get(call.func.attr, slice(None))]
            given = [*given, *(named.value for named in call.keywords if named.arg in BY_NAME)]
            yield from ((argument, call.func.attr in FILTERS) for argument in given)
        if call.func.attr == "option" and is_text(call.args[0], "replaceWhere"):
            yield call.args[1], False
        yield from (
            (named.value, False)
            for named in call.keywords
            if call.func.attr == "options" and named.arg == "replaceWhere"
        )


BY_NAME = {"sqlQuery", "query", "table", "predicates", "condition", "str"}
"""Parameters that these calls may be given by name."""


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
            return isinstance(node.value, str | bytes) and not constants_may
        case ast.BinOp(op=ast.Add() | ast.Mod()):
            return any(is_made_here(part, assigned, False, seen) for part in (node.left, node.right))
        case ast.Call(func=ast.Attribute(attr="format" | "join" | "replace" | "format_map", value=text)):
            return is_text(text) or isinstance(text, ast.JoinedStr) or is_made_here(text, assigned, False, seen)
        case ast.Call(func=ast.Attribute(attr="encode" | "strip", value=text)):  # the same text in bytes, or shorter
            return is_made_here(text, assigned, constants_may, seen)
        case ast.Subscript(value=ast.Name() as table):  # a table of statements
            return is_made_here(table, assigned, constants_may, seen)
        case ast.ListComp(elt=value) | ast.GeneratorExp(elt=value):
            return is_made_here(value, assigned, constants_may, seen)
        case ast.Dict(values=values) | ast.List(elts=values) | ast.Tuple(elts=values):
            return any(is_made_here(value, assigned, constants_may, seen) for value in values)
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
        if path not in {MAKES_SQL, MAKES_VIEWS, *MAKES_POSTGRES_SQL}
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
        "connection.execute(f'DROP TABLE {name}'.encode())",
        "connection.execute(b'VACUUM')",
        "statement = f'DROP TABLE {name}'\nconnection.execute(statement.encode(), values)",
        "connection.execute(query='VACUUM')",
        "connection.cursor().copy(f'COPY {name} FROM STDIN')",
        "database.ask(connection, 'SELECT ' + name, (1,))",
        "OF = {'all': f'SELECT * FROM {name}'}\ndatabase.ask(connection, OF['all'])",
        "spark.read.jdbc(url, f'(SELECT * FROM {name}) AS t', properties=settings)",
        "spark.read.jdbc(url, query, predicates=[f'id = {n}' for n in numbers])",
        "spark.read.jdbc(url, query, predicates=['id < 5'])",
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
        "connection.execute(queries.rows().encode(), ('shop', 'orders'))",
        "database.ask(connection, questions.SIZE, {'name': 'orders'})",
        "spark.read.jdbc(f'jdbc:postgresql://{host}', queries.rows(), predicates=[queries.stretch(s) for s in spans])",
        "hashlib.sha256(f'{key}:{file}'.encode())",
        "shutil.copy(here, there)",
    ],
)
def test_other_texts_are_left_alone(line):
    """Constant filters, columns, and text from `core/sql.py` are as they should be."""
    assert made_elsewhere(line) == []
