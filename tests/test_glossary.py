"""The words of the project: what the pages name is in the code, and words that were given up do not come back."""

from __future__ import annotations

import ast
import io
import re
import tokenize
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

GIVEN_UP_NAMES = {
    r"Tell|Told": "LaunchReport",
    r"Pace": "Effects, or PublishPace",
    r"insist": "retry_until_committed",
    r"sign": "tag_with_process",
    r"Held|held|hold|holding|stage_and_hold": "StagedChunk, lake.stage, same_as, earlier_tally",
    r"Staged": "Scan",
    r"keep_rows|keeping": "persist, caching",
    r"_ba_home|homes?_of|homes": "_ba_file_id, partition_by_file",
    r"uncovered|_uncovered": "rows_at_stake",
    r"unaccounted|_unaccounted": "partitions_with_foreign_rows",
    r"_?in_our_words|_?our_words": "translate_spark_error",
    r"in_dagsters_words": "failures_for_dagster",
    r"made_apart|one_made_apart": "iterate_in_thread",
    r"put_back": "restore",
    r"touched_between": "versions_writing",
    r"FilesBelowFolders": "FilesSource",
    r"DeltaSource": "TablesSpec",
    r"DeltaTable": "LakeTable; the name is Delta's own",
    r"Accounts": "FileTallies",
    r"Records": "FileFormat",
}
"""Names that were given up, and what is used now. A class, a function, a variable: the whole name."""

GIVEN_UP_PROSE = {
    r"in our words": "as an error of this project",
    r"(fails?|failed) of (it|the|a|this|that)\b": "fails with, fails because of",
    r"\b(is|are) dear\b": "costs much",
    r"\bwhat is no\b": "what is not, what cannot be read as",
    r"\bparted (at|by) (the|a) fence": "split at the fence",
    r"\ba stretch of time\b": "a time, a gap",
    r"\b[Ll]ets? (it|them) go\b|\b[Ll]ets? go of\b|\b(is|are|was|were) let go\b|\blets go\b": "release, close, discard, allow",
    r"(?<![Tt]here )\bis no table\b": "is not a table",
    r"\b(goes|go) on (with|where|from)\b": "continue",
    r"\bfor good\b": "permanently",
    r"\bmade anew\b": "made again",
    r"\bmade apart\b": "made in another thread",
    r"\bwhat becomes of\b": "what happens to",
    r"\bcannot be had\b": "cannot be published",
}
"""Ways to say something that are not English usage, and what is said now. Looked for in pages, docstrings and messages."""


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


# -- words that were given up ------------------------------------------------------------------------------------------


def tokens(file: Path) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(file.read_text()).readline)


def python_files(*folders: str) -> list[Path]:
    return [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]


def test_names_that_were_given_up_do_not_come_back():
    """No class, function or variable of the package has a name that was given up for another one."""
    given_up = re.compile("|".join(f"(?:{names})" for names in GIVEN_UP_NAMES))
    found = [
        f"{file.relative_to(ROOT)}:{token.start[0]}: {token.string}"
        for file in python_files("backfill_assets")
        for token in tokens(file)
        if token.type == tokenize.NAME and given_up.fullmatch(token.string) and "deltalake.DeltaTable" not in token.line
    ]
    assert found == []


@cache
def said(file: Path) -> str:
    """What a file says to people: a page whole; of a module its texts and comments, with the lines of one text joined."""
    if file.suffix == ".md":
        return re.sub(r"\s+", " ", file.read_text())
    kinds = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    texts = (token.string.strip("\"'# ") for token in tokens(file) if token.type in kinds)
    return re.sub(r"\s+", " ", " ".join(texts))


@pytest.mark.parametrize("phrase", GIVEN_UP_PROSE)
def test_prose_is_plain_english(phrase: str):
    """No page, docstring, comment or message says it in the way that was given up."""
    places = [*PAGES, *python_files("backfill_assets")]
    found = [
        f"{file.relative_to(ROOT)}: ...{text[max(0, match.start() - 40) : match.end() + 20]}..."
        for file in places
        for text in [said(file)]
        for match in re.finditer(phrase, text)
    ]
    assert found == [], f"say: {GIVEN_UP_PROSE[phrase]}"


def test_names_of_tests_are_plain_english():
    """What a test is called is read in the map of promises: no name says it in a way that was given up."""
    given_up = re.compile("|".join(GIVEN_UP_PROSE))
    found = [
        f"{file.relative_to(ROOT)}: {node.name}"
        for file in python_files("tests")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef) and given_up.search(node.name.replace("_", " "))
    ]
    assert found == []


def test_the_detector_notices():
    """The patterns find what they are meant to find."""
    for phrase, text in (
        (r"(fails?|failed) of (it|the|a|this|that)\b", "every writer in flight fails of it"),
        (r"\bmade anew\b", "whatever was wrong is made anew"),
    ):
        assert phrase in GIVEN_UP_PROSE
        assert re.search(phrase, text)
    assert any(re.fullmatch(names, "homes") for names in GIVEN_UP_NAMES)
    assert not any(re.fullmatch(names, "discard_uncovered_rows") for names in GIVEN_UP_NAMES)
