"""A project of its own for each test; and somebody who is told of alerts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from backfill_assets.assets.alerts import ALERTS_URL
from tests.assets.projects import Project
from tests.support.alert_office import Office
from tests.support.alert_receiver import Receiver, receiving


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    package = f"shop_{abs(hash(tmp_path)):x}"  # imported once in this process, so never the same twice
    made = Project(tmp_path, package)
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "{package}"\nregistry_modules = ["backfill_assets"]\n'
    )
    made.write("__init__.py", "")
    made.write("defs/__init__.py", "")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield made
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        del sys.modules[name]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving() as made:
        monkeypatch.setenv(ALERTS_URL, made.url)
        yield made


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield Office(instance)
