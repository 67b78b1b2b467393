"""What docs/promises.md says: each promise once, with a test that exists and that `make test` runs."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.+) \| `(tests/[\w/]+\.py)(?:::(test_\w+))?` \|$")
LINES = [line for line in (ROOT / "docs/promises.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
ROWS = [match.groups() for line in LINES if (match := ROW.match(line))]


def is_in_the_gate(file: str, name: str | None) -> bool:
    """Whether the file has that test (without a name: any test), and neither it nor the file is marked `prove`."""
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    of_file = [
        node.value for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == (name or node.name) and node.name.startswith("test_"):
            own = [mark for mark in node.decorator_list if "parametrize" not in ast.unparse(mark)]
            return not any("mark.prove" in ast.unparse(mark) for mark in [*of_file, *own])
    return False


def test_every_promise_has_one_test_in_the_gate():
    """Each row names one test: it is in that file, and the gate runs it."""
    assert [f"{file}::{name}" for _, _, file, name in ROWS if not is_in_the_gate(file, name)] == []


def test_every_row_is_there_once():
    """No promise is missing, and no line of the page is in another form."""
    ids = [row[0] for row in ROWS]
    assert Counter(name[0] for name in ids) == {"G": 25, "E": 21, "B": 17, "L": 13, "T": 18, "R": 9, "I": 23}
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    assert [line for line in LINES if not ROW.match(line) and line != "| | promise | test |"] == []
