"""What docs/promises.md says: every test that it names is there, and runs where it says."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import PROVED

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/promises.md").read_text(encoding="utf-8")


def rows() -> list[tuple[str, set[str], set[str]]]:
    """Return each promise with the tests of `make test` and those of `make prove`."""
    lines = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line] for line in lines if not set("".join(line)) <= set("- ")]
    return [(promise, names_in(gate), names_in(prove)) for promise, gate, prove in cells if promise != "promise"]


def names_in(cell: str) -> set[str]:
    return set(re.findall(r"`(test_\w+)`", cell))


@dataclass(frozen=True)
class Function:
    """A test as it is written: its file and its name, and the marks of both."""

    file: str
    name: str
    marks: str


def functions() -> Iterator[Function]:
    for path in (ROOT / "tests").rglob("test_*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        of_all = [n.value for n in body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "pytestmark"]
        for node in body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                own = [mark for mark in node.decorator_list if "parametrize" not in ast.unparse(mark)]
                yield Function(
                    path.relative_to(ROOT).as_posix(), node.name, " ".join(map(ast.unparse, [*own, *of_all]))
                )


@pytest.fixture(scope="module")
def proved(pytestconfig: pytest.Config) -> set[str]:
    """The tests of which `make prove` runs at least one variant, as pytest finds them: here, if it looked at all of them."""
    if [(ROOT / path).resolve() for path in pytestconfig.args] == [ROOT / "tests"]:
        return pytestconfig.stash[PROVED]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "prove", "-p", "no:cacheprovider"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    return set(re.findall(r"^tests/\S+::(test_\w+)", found.stdout, flags=re.MULTILINE))


def test_every_promise_has_a_test():
    """Each row names at least one test, and every name is that of a test."""
    written = {function.name for function in functions()}
    assert [promise for promise, gate, prove in rows() if not gate | prove] == []
    assert {name for _, gate, prove in rows() for name in gate | prove} - written == set()


def test_what_is_named_in_the_gate_runs_there():
    """A test of the second column is not one that `make prove` has for itself."""
    only_proved = {function.name for function in functions() if "pytest.mark.prove" in function.marks}
    assert {name for _, gate, _ in rows() for name in gate} & only_proved == set()


def test_third_column_is_run_by_make_prove(proved: set[str]):
    """Each test that it names has at least one variant that only `make prove` runs."""
    assert {name for _, _, prove in rows() for name in prove} - proved == set()
