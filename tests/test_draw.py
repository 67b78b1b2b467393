"""Of tests that take long the gate draws some: all of a file together, or all variants of a test; the same for one seed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FILES = {
    "conftest.py": """
from tests.conftest import pytest_addoption, pytest_collection_modifyitems, pytest_configure
""",
    "test_scene.py": """
import pytest
pytestmark = [pytest.mark.drawn]
def test_first(): pass
def test_second(): pass
""",
    "test_many.py": """
import pytest
def test_always(): pass
@pytest.mark.drawn
@pytest.mark.parametrize("variant", "ab")
def test_variants(variant): pass
@pytest.mark.drawn
def test_last(): pass
@pytest.mark.drawn
@pytest.mark.e2e
def test_of_processes(): pass
""",
    "pytest.ini": "[pytest]\nmarkers = [drawn, e2e]\n",
}
UNITS = [{"test_first", "test_second"}, {"test_variants[a]", "test_variants[b]"}, {"test_last"}]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def found(project: Path, *options: str) -> set[str]:
    """Return the tests that run."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options]
    told = subprocess.run(
        command, cwd=project, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True, timeout=60
    )
    return set(re.findall(r"^test_\w+\.py::(\S+)$", told.stdout, flags=re.MULTILINE))


def test_a_third_is_drawn(project: Path):
    """Of three units one, which seeds choose differently; of the only one with processes that one; what is not drawn always."""
    draws = [found(project, "--draw", "3", "--order-seed", str(seed)) for seed in range(6)]
    always = {"test_always", "test_of_processes"}
    assert all(draw - always in UNITS and always <= draw for draw in draws)
    assert len(set(map(frozenset, draws))) > 1
    assert found(project, "--draw", "3", "--order-seed", "0") == draws[0]


def test_who_does_not_ask_for_it_gets_all(project: Path):
    """Without `--draw` each of them runs, as in `make prove` and where somebody names a test."""
    assert found(project) == {"test_always", "test_of_processes"}.union(*UNITS)
