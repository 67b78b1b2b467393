"""How large files, functions and lists of arguments may be: in the package, its tests and its benchmarks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("backfill_assets", "tests", "benchmarks")
MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_POSITIONAL = 300, 60, 5
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def files() -> list[Path]:
    return [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]


def functions() -> Iterator[tuple[str, FUNCTION]]:
    """Every function and method, named by its file and by what it stands in."""

    def inside(node: ast.AST, where: str) -> Iterator[tuple[str, FUNCTION]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, FUNCTION | ast.ClassDef):
                if not isinstance(child, ast.ClassDef):
                    yield f"{where}.{child.name}", child
                yield from inside(child, f"{where}.{child.name}")
            else:
                yield from inside(child, where)

    for file in files():
        yield from inside(ast.parse(file.read_text()), str(file.relative_to(ROOT)))


def above(found: dict[str, int], ceiling: int) -> dict[str, int]:
    return {name: count for name, count in found.items() if count > ceiling}


def test_no_source_file_is_long():
    """A file that holds more than one idea is split; 300 lines are a sign of it."""
    lines = {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in files()}
    assert above(lines, MAX_FILE_LINES) == {}


def test_no_function_is_long():
    """A function is seen at a glance: 60 lines, its docstring included. Tables of cases are data, and stand at their file's head."""
    lines = {f"{name} (lines)": (node.end_lineno or 0) - node.lineno + 1 for name, node in functions()}
    assert above(lines, MAX_FUNCTION_LINES) == {}


def test_no_call_has_to_be_counted_out():
    """Nobody has to count commas: five parameters may be given by position, `self` aside; the others by name."""
    positional = {
        f"{name} (parameters)": len(
            [a for a in (*node.args.posonlyargs, *node.args.args) if a.arg not in ("self", "cls")]
        )
        for name, node in functions()
        if not node.name.startswith("test_")  # pytest gives them by name
    }
    assert above(positional, MAX_POSITIONAL) == {}


# -- values ------------------------------------------------------------------------------------------------------------


def is_value(node: ast.ClassDef) -> bool:
    decorated = any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
    return decorated or any(ast.unparse(base) == "NamedTuple" for base in node.bases)


def values_of(module: str, tree: ast.Module) -> set[tuple[str, str]]:
    """Return the classes of a module whose constructor takes its fields, with the module."""
    return {(module, node.name) for node in tree.body if isinstance(node, ast.ClassDef) and is_value(node)}


def made_by_position(module: str, tree: ast.Module, values: set[tuple[str, str]]) -> list[str]:
    """Return where a function makes such a value with more than five fields by position, or with a starred list.

    At the head of a module they are rows of a table, which are read in columns.
    """
    known = {name for where, name in values if where == module}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            known |= {one.asname or one.name for one in node.names if (node.module or "", one.name) in values}
    inside = [call for node in ast.walk(tree) if isinstance(node, FUNCTION) for call in ast.walk(node)]
    found = {
        (call.lineno, call.func.id)
        for call in inside
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in known
        if len(call.args) > MAX_POSITIONAL
    }
    return [f"{module}:{line}: {name}" for line, name in sorted(found)]


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    files = sorted((ROOT / "backfill_assets").rglob("*.py"))
    return {".".join(f.relative_to(ROOT).with_suffix("").parts): ast.parse(f.read_text()) for f in files}


def test_no_value_has_to_be_counted_out(modules: dict[str, ast.Module]):
    """The same of values that the package makes of its own classes: five fields by position, the others by name."""
    values = {value for module, tree in modules.items() for value in values_of(module, tree)}
    assert len(values) > 200
    assert [found for module, tree in modules.items() for found in made_by_position(module, tree, values)] == []


def test_a_value_of_six_is_noticed():
    """Of a class of the module or of another one, under another name; six at the head of a module are a row of a table."""
    other = {("there", "Six")}
    made = "from there import Six as S\nROWS = [S(1, 2, 3, 4, 5, 6)]\ndef f():\n    return S(1, 2, 3, 4, 5, {})\n"
    assert made_by_position("here", ast.parse(made.format("6")), other) == ["here:4: S"]
    assert made_by_position("here", ast.parse(made.format("six=6")), other) == []
    own = ast.parse("@dataclass(slots=True)\nclass Own:\n    a: int\ndef f():\n    return Own(1, 2, 3, 4, 5, 6)\n")
    assert made_by_position("here", own, values_of("here", own)) == ["here:5: Own"]


def test_every_test_says_what_it_holds():
    """Every test has a docstring that states the behaviour."""
    silent = [name for name, node in functions() if node.name.startswith("test_") and not ast.get_docstring(node)]
    assert silent == []
