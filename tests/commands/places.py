"""A module of definitions whose lakehouse is configured in code, while the environment names another one."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner, Result

from backfill_assets.cli import main
from tests.support import launching
from tests.support.launching import Lake, new_lake

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

        Whatever it does, nothing comes to be there: all tests of a place hold that of the commands that they run.
        """
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LAKEHOUSE_ROOT", str(self.elsewhere))
            patch.setenv("DAGSTER_HOME", str(self.home))
            patch.setitem(sys.modules, MODULE, SimpleNamespace(defs=definitions or self.lake.definitions))
            try:
                result = CliRunner().invoke(main, [*arguments, "--definitions", MODULE])
                assert not self.elsewhere.exists(), f"{arguments} made something below the environment's root"
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
    return Place(new_lake(root / "lake", **changes), root / "elsewhere", root / "home")


def copied(place: Place, root: Path) -> Place:
    """Return a place that is as another one is now, and shares nothing with it."""
    shutil.copytree(place.home, root / "home")
    return Place(launching.copied(place.lake, root / "lake"), root / "elsewhere", root / "home")


def below(root: Path) -> dict[str, int]:
    """Every path below a lakehouse's root, with when it was changed; not the history that tests keep there."""
    return {
        str(Path(folder, name).relative_to(root)): Path(folder, name).stat().st_mtime_ns
        for folder, folders, files in os.walk(root)
        for name in (*folders, *files)
        if "history" not in Path(folder, name).relative_to(root).parts
    }
