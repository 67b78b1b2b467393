"""`make prove`: every part is run, whatever another came to, and the end says how long each took and which failed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import prove
from tests.prove import PARTS, Part, main

ROOT = Path(__file__).parents[1]


def python(code: str, **settings: str) -> Part:
    return Part(("-c", code), settings)


def test_a_part_that_fails_keeps_no_other_from_running(capfd: pytest.CaptureFixture[str]):
    """Its seconds and its exit code are said, at once and at the end; the exit code of all is 1."""
    parts = {
        "one": python("import os; print('it is', os.environ['SCHEDULES'])", SCHEDULES="5"),
        "broken": python("import sys; sys.exit(3)"),
        "last": python("print('it ran')"),
    }
    assert main([], parts) == 1
    said = re.sub(r"\d+ s", "N s", capfd.readouterr().out).splitlines()
    assert said == [
        "== one: python -c import os; print('it is', os.environ['SCHEDULES'])", "it is 5", "== one: N s",
        "== broken: python -c import sys; sys.exit(3)", "== broken: N s, FAILED with exit code 3",
        "== last: python -c print('it ran')", "it ran", "== last: N s",
        "",
        "one     N s",
        "broken  N s, FAILED with exit code 3",
        "last    N s",
        "N s; not proved: broken",
    ]  # fmt: skip
    assert main(["last"], parts) == 0
    assert capfd.readouterr().out.endswith("s; all proved\n")


def test_parts_may_be_named(capfd: pytest.CaptureFixture[str]):
    """Those and no others; a name that is none is refused before anything runs."""
    parts = {"one": python("print(1)"), "two": python("print(2)")}
    assert main(["two"], parts) == 0
    assert "python -c print(1)" not in capfd.readouterr().out
    assert main(["two", "three"], parts) == 2
    assert capfd.readouterr().out == "There is no part three; there are one, two.\n"


def test_what_was_interrupted_is_not_proved(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Ctrl-C ends the part that runs and all after it, and says so of each."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prove.subprocess, "run", interrupted)
    assert main([], {"one": python("print(1)"), "two": python("print(2)")}) == 1
    assert "two  was not run" in capfd.readouterr().out


def test_every_part_is_on_its_page_and_runs_something():
    """The page of tests lists the parts in their order, and the files of tests that they name are there."""
    table = (ROOT / "docs/testing.md").read_text().partition("## What `make prove` runs")[2]
    assert re.findall(r"^\| `([a-z-]+)` \|", table, flags=re.MULTILINE) == list(PARTS)
    named = [word for part in PARTS.values() for word in part.arguments if word.startswith("tests/")]
    assert [file for file in named if not (ROOT / file).exists()] == []
    assert len(named) == 11
