"""A module of definitions whose lakehouse is configured in code, while the environment names another one."""

from __future__ import annotations

import hashlib
import shutil
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner, Result

from backfill_assets.cli import main
from tests.support import launching
from tests.support.launching import WITHOUT_CAPTURE, Lake, new_lake

MODULE = "a_shop_with_a_root_of_its_own"


@dataclass(frozen=True)
class Place:
    """A lakehouse that the definitions name, and another that the environment names.

    Args:
        lake: What the definitions name, with a history of its own.
        elsewhere: What `LAKEHOUSE_ROOT` names.
        home: DAGSTER_HOME of the commands.
    """

    lake: Lake
    elsewhere: Path
    home: Path

    def run(self, *arguments: str, definitions: dg.Definitions | None = None) -> Result:
        """Run a command in this process, as another process would with the environment that names the other root.

        Whatever it does, nothing comes to be there: all tests of a place hold that of the commands that they run. Other
        definitions may have the environment's root.
        """
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LAKEHOUSE_ROOT", str(self.elsewhere))
            patch.setenv("DAGSTER_HOME", str(self.home))
            patch.setitem(sys.modules, MODULE, SimpleNamespace(defs=definitions or self.lake.definitions))
            try:
                result = CliRunner().invoke(main, [*arguments, "--definitions", MODULE])
                assert definitions or not self.elsewhere.exists(), (
                    f"{arguments} made something below the environment's root"
                )
                return result
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)

    def history(self, check: dg.AssetCheckKey) -> list[Any]:
        """The evaluations of a check that the commands recorded, newest first."""
        with self.instance() as instance:
            return list(instance.event_log_storage.get_asset_check_execution_history(check, limit=100))

    @contextmanager
    def instance(self) -> Iterator[dg.DagsterInstance]:
        """The history that the commands write."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DAGSTER_HOME", str(self.home))
            with dg.DagsterInstance.get() as instance:
                yield instance


def new_place(root: Path, **changes: Any) -> Place:
    """Return an empty lakehouse below `root/lake`; `root/elsewhere` is what the environment names, and is not there."""
    (root / "home").mkdir(parents=True)
    settings = (Path(__file__).parents[2] / "dagster.yaml").read_text()
    (root / "home" / "dagster.yaml").write_text(f"{settings}\n{yaml.safe_dump(WITHOUT_CAPTURE)}")
    return Place(new_lake(root / "lake", **changes), root / "elsewhere", root / "home")


def copied(place: Place, root: Path) -> Place:
    """Return a place that is as another one is now, and shares nothing with it."""
    shutil.copytree(place.home, root / "home")
    return Place(launching.copied(place.lake, root / "lake"), root / "elsewhere", root / "home")


def below(root: Path) -> dict[str, str]:
    """Every path below a lakehouse's root, with a digest of its bytes; not the history that tests keep at its top."""
    return {
        str(path.relative_to(root)): _digest(path) if path.is_file() else ""
        for path in root.rglob("*")
        if path.relative_to(root).parts[0] != "history"
    }


def said_in(home: Path) -> dict[str, str]:
    """Every file of Dagster's home with a digest: of a database what it says, since opening it may move its pages."""
    files = [path for path in home.rglob("*") if path.is_file() and path.suffix not in (".db-wal", ".db-shm")]
    return {str(path.relative_to(home)): _told(path) if path.suffix == ".db" else _digest(path) for path in files}


def _told(database: Path) -> str:
    with closing(sqlite3.connect(database)) as opened:
        return hashlib.sha256("\n".join(opened.iterdump()).encode()).hexdigest()


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
