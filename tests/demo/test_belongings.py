"""A demo writes over what a demo has made, and over nothing else."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from click.testing import CliRunner

from backfill_assets.cli import main
from backfill_assets.demo.belongings import Belongings
from backfill_assets.demo.place import TABLE
from backfill_assets.errors import ConfigurationError
from tests.demo.made import made


def of(root: Path) -> Belongings:
    return Belongings(root, "landing/.demo", (root / "landing/orders",), (root / "tables/bronze/orders",))


def test_a_table_that_somebody_made_after_a_demo_is_not_the_demos(tmp_path: Path):
    """It has the name of one of the demo's, and lies where that lay; the next demo would delete it, or write into it."""
    ours = of(tmp_path)
    ours.refuse_others()
    ours.claim()
    with suppress(KeyboardInterrupt), ours.noted():  # however it ends
        made(ours.tables[0])
        raise KeyboardInterrupt
    ours.folders[0].mkdir()
    (ours.folders[0] / "export").touch()
    ours.refuse_others()
    deltalake.write_deltalake(ours.tables[0], pa.table({"n": [2]}), mode="overwrite")
    ours.refuse_others()
    theirs = made(ours.tables[0])
    with pytest.raises(
        ConfigurationError, match=r"orders`: that is there already, and this demo did not make it\. Nothing"
    ):
        ours.refuse_others()
    assert theirs.version() == 0


@pytest.mark.parametrize(
    "name",
    [
        f"tables/{TABLE}/diary.txt",
        "landing/orders/2024/diary.txt",
    ],
)
def test_no_story_begins_over_what_somebody_else_has(tmp_path: Path, monkeypatch, name: str):
    """The exit code is 2, and nothing is written."""
    root = tmp_path / "lakehouse"
    (root / name).parent.mkdir(parents=True)
    (root / name).write_text("mine")
    monkeypatch.setenv("LAKEHOUSE_ROOT", str(root))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    ran = CliRunner().invoke(main, ["demo"])
    assert ran.exit_code == 2
    assert "is there already, and this demo did not make it" in ran.stderr
    assert [path for path in root.rglob("*") if path.is_file()] == [root / name]


def test_what_cannot_be_told_is_somebody_elses(tmp_path: Path):
    """A table whose log is damaged: it is left as it is, and a story that ends beside it ends as it would."""
    ours = of(tmp_path)
    (ours.tables[0] / "_delta_log").mkdir(parents=True)
    (ours.tables[0] / "_delta_log/00000000000000000000.json").write_text("{")
    with pytest.raises(ConfigurationError, match="this demo did not make it"):
        ours.refuse_others()
    with suppress(KeyboardInterrupt), ours.noted():
        raise KeyboardInterrupt


def test_what_tells_tables_apart_is_asked_for(tmp_path: Path, monkeypatch):
    """Without the extra nobody knows whose a table is."""
    made(of(tmp_path).tables[0])
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(
        ConfigurationError, match=r"`deltalake` is not installed.*pip install 'backfill-assets\[demo\]'"
    ):
        of(tmp_path).refuse_others()
