"""The pages: each link, file and name that they mention exists in the project."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "backfill_assets"
ARCHITECTURE = ROOT / "docs/architecture.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


# -- what pages name ---------------------------------------------------------------------------------------------------


def links(page: Path) -> Iterator[tuple[str, Path]]:
    """Every link of a page into the project: its text, and the file or folder that it leads to."""
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for text, target in LINK.findall(prose):
        if "://" not in target and not target.startswith("#"):
            yield text, (page.parent / target.partition("#")[0]).resolve()


@cache
def symbols(file: Path) -> frozenset[str]:
    """The classes, functions and values of a module, and the members of its classes as `Class.member`."""
    found: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        found |= names_bound_by(node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for inner in node.body for name in names_bound_by(inner)}
    return frozenset(found)


def names_bound_by(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
    return set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path):
    """Files and folders that a page links to exist, inside the project."""
    wrong = [str(target) for _, target in links(page) if not target.exists() or not target.is_relative_to(ROOT)]
    assert wrong == []


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", prose, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_anchor_is_a_heading(page: Path):
    """A link into a page, or within one, names a heading that is there."""
    targets = [target for _, target in LINK.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))]
    parts = [target.partition("#") for target in targets if "://" not in target and "#" in target]
    into = [((page.parent / name).resolve() if name else page, anchor) for name, _, anchor in parts]
    assert [(str(there), anchor) for there, anchor in into if anchor not in anchors(there)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_link_names_is_in_its_file(page: Path):
    """A link whose text is a name in the code leads to the module that has it; one whose text is a file, to that file."""
    wrong = []
    for text, target in links(page):
        name = text.strip("`")
        if target.suffix != ".py" or not text.startswith("`"):
            continue
        is_there = target.as_posix().endswith(name) if name.endswith(".py") else name in symbols(target)
        if not is_there:
            wrong.append(f"{name} in {target.relative_to(ROOT)}")
    assert wrong == []


def test_every_word_of_the_glossary_is_in_the_code():
    """Each word of the glossary comes once, says what it means, and names what stands for it in the code."""
    section = ARCHITECTURE.read_text().partition("\n## Words\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if "|" in line][2:]
    words = [row[0] for row in rows]
    assert len(words) > 30
    assert len(words) == len(set(words))
    assert [row[0] for row in rows if len(row) != 3 or not row[1] or not LINK.search(row[2])] == []


def test_the_layers_are_those_that_are_held():
    """The page has the layers in the order in which import-linter holds them, and a row for every folder of the package."""
    page = ARCHITECTURE.read_text()
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    held = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    held = [[layer.replace("backfill_assets.", "") for layer in layers] for layers in held]
    for beginning in ("definitions ─▶", "inside core: "):
        (line,) = re.findall(rf"^{beginning}.*$", page, flags=re.MULTILINE)
        assert [part.strip() for part in line.removeprefix("inside core:").split("─▶")] in held

    folders = {path.parent.relative_to(PACKAGE).parts[:2] for path in PACKAGE.rglob("*.py")}
    named = {"/".join(parts[: 2 if parts[0] == "core" else 1]) for parts in folders if parts}
    assert {name for name in named if f"| `{name}` |" not in page} <= {"core"}
