"""Rules of the linters that are not followed somewhere: each with its reason where it is ignored."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
IGNORES = re.compile(r"(?:ruff: )?(?:noqa|type: ignore|pyright: ignore)")
WITH_REASON = re.compile(
    r"(?:(?:ruff: )?noqa: [A-Z]+[0-9]+(?:, [A-Z]+[0-9]+)*|(?:type|pyright): ignore\[[\w, -]+\]) \(.*[a-z].*\)"
)


def unexplained(text: str) -> list[str]:
    """Return the comments of a module that ignore a rule and say neither which nor why."""
    comments = (t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT)
    parts = (part.strip() for comment in comments for part in re.split(r"#+", comment))
    return [part for part in parts if IGNORES.match(part) and not WITH_REASON.match(part)]


def test_every_ignored_rule_has_its_reason():
    """In the package, its tests, its benchmarks and examples: which rule, and in brackets why."""
    files = [
        file
        for folder in ("backfill_assets", "tests", "benchmarks", "examples")
        for file in (ROOT / folder).rglob("*.py")
    ]
    found = {str(file.relative_to(ROOT)): wrong for file in files if (wrong := unexplained(file.read_text()))}
    assert found == {}


def test_no_test_silences_a_type_checker():
    """Tests are not checked for types: a comment that says so to nobody would only be believed."""
    silenced = re.compile(r"#\s*(?:type|pyright): " + "ignore")
    files = [file for folder in ("tests", "benchmarks") for file in (ROOT / folder).rglob("*.py")]
    assert [str(file.relative_to(ROOT)) for file in files if silenced.search(file.read_text())] == []


def test_rules_that_are_ignored_everywhere_have_their_reasons():
    """Each rule that pyproject.toml takes away, from all files or from some, has a line of its own that says why."""
    lint = (ROOT / "pyproject.toml").read_text().partition("[tool.ruff.lint]\n")[2].partition("[tool.pyright]")[0]
    ignored = lint.partition("\nignore = [")[2]
    lines = [line.strip() for line in ignored.splitlines() if re.search(r'"[A-Z]+[0-9]*"', line)]
    assert len(lines) > 30
    assert [
        line for line in lines if not re.fullmatch(r'"[A-Z]+[0-9]*", +# \S.+|"\S+" = \["[A-Z]+[0-9]*"\] +# \S.+', line)
    ] == []


def test_an_ignore_without_a_reason_is_noticed():
    """One without a rule, one without a reason, one whose reason is empty, and the second of a line."""
    for text in ("noqa", "noqa: S101", "noqa: S101 ()", "type: ignore", "type: ignore[misc]", "pyright: ignore[x]"):
        assert unexplained(f"a = 1  # {text}\n") == [text]
    mixed = "type: ignore[misc] (as it is)  # " + "noqa: B018"
    assert unexplained(f"a = 1  # {mixed}\n") == ["noqa: B018"]
    assert unexplained("a = '# noqa'  # noqa: S101, B018 (a reason), and more\n") == []
