"""That history is written in one way only, and Spark used as a client would: read from the package's own source."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import backfill_assets
from backfill_assets.lake.overwrite import REFUSED_SETTINGS

PACKAGE = Path(backfill_assets.__file__).parent
WHAT_IS_CURRENT = "lake/current_table.py"
"""Replaces the whole of one small table, which has no rows of anybody's: where the current versions lie."""

LIVE = ("live/", "lake/side_tables.py", WHAT_IS_CURRENT)
"""The live writers may use transaction ids; history never does."""

NOT_OURS = "demo/shop_database.py"
"""What clients do in a database; it writes no table of ours."""


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    """Every module of the package, parsed."""
    names = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
    return {name: ast.parse(path.read_text()) for name, path in names.items() if not name.startswith(NOT_OURS)}


@cache
def nodes_of(tree: ast.AST) -> list[ast.AST]:
    return list(ast.walk(tree))


def calls_of(tree: ast.AST, name: str) -> list[ast.Call]:
    return [
        node for node in nodes_of(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name
    ]  # fmt: skip


def texts_of(tree: ast.AST) -> list[str]:
    """Every string of a module that is not documentation, parts of f-strings included."""
    documented = {
        id(statement.value)
        for node in nodes_of(tree)
        if isinstance(body := getattr(node, "body", None), list)
        for statement in body
        if isinstance(statement, ast.Expr)
    }
    return [
        node.value for node in nodes_of(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented
    ]  # fmt: skip


def test_there_is_one_overwrite(modules):
    """Exactly one place that writes rows of a table saves in the mode `overwrite`, and it names a predicate."""
    found = [
        (module, call) for module, tree in modules.items() for call in calls_of(tree, "mode")
        if [getattr(argument, "value", None) for argument in call.args] == ["overwrite"]
    ]  # fmt: skip
    assert sorted(module for module, _ in found) == [WHAT_IS_CURRENT, "lake/overwrite.py"]
    options = {call.args[0].value for call in calls_of(modules["lake/overwrite.py"], "option")}
    assert options == {"replaceWhere", "userMetadata"}


def test_nothing_else_writes_over_rows(modules):
    """No dynamic partition overwrite, no `DELETE`, `INSERT`, `MERGE`, `TRUNCATE` or `UPDATE`, no writer of another kind."""
    statement = re.compile(
        r"^\s*(DELETE\s+FROM|INSERT\s+(INTO|OVERWRITE)|MERGE\s+INTO|TRUNCATE|UPDATE\s+\w|RESTORE\s|REPLACE\s)",
        re.IGNORECASE,
    )
    for module, tree in modules.items():
        assert not [text for text in texts_of(tree) if statement.search(text)], module
        for name in ("insertInto", "saveAsTable", "overwritePartitions", "writeTo", "replaceUsing", "mergeInto"):
            assert not calls_of(tree, name), f"{module}: {name}"
        assert "dynamic" not in texts_of(tree), module


def test_history_carries_no_transaction_id(modules):
    """No history write names a transaction id, under which Delta would skip it without a word."""
    for module, tree in modules.items():
        if not module.startswith(LIVE):
            named = {text for text in texts_of(tree) if "txnAppId" in text or "txnVersion" in text}
            assert named <= set(REFUSED_SETTINGS), module


def test_spark_is_used_as_a_client_would(modules):
    """Nothing that needs the driver's JVM is used outside two files, so that Spark Connect works too."""
    forbidden = {"sparkContext", "_jvm", "_jsc", "_jdf", "rdd", "newSession", "toJSON"}
    for module, tree in modules.items():
        if module in ("spark/session.py", "table/transaction.py"):
            continue
        used = {node.attr for node in nodes_of(tree) if isinstance(node, ast.Attribute)} & forbidden
        assert not used, module
        imported = {node.module for node in nodes_of(tree) if isinstance(node, ast.ImportFrom)}
        assert not imported & {"delta", "delta.tables"}, module
