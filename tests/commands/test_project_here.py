"""The project that a command is called in: its definitions, its lakehouse, its history."""

from __future__ import annotations

import gc
import os

import dagster as dg
import pytest
from click.testing import CliRunner

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.cli import main
from backfill_assets.commands.project import Project
from backfill_assets.commands.terminal import DEFINITIONS, DOTENV, definitions_here, one_message_for_an_error
from backfill_assets.demo.place import refuse_dotenv
from backfill_assets.errors import ConfigurationError
from backfill_assets.runs.resources import Lakehouse
from tests.support.shop import orders_spec


@pytest.mark.parametrize(
    ("files", "module"),
    [
        ({}, "backfill_assets.definitions"),
        ({"pyproject.toml": '[project]\nname = "other"\n'}, "backfill_assets.definitions"),
        ({"pyproject.toml": '[tool.dg.project]\nroot_module = "shop"\n'}, "shop.definitions"),
        ({"dg.toml": '[project]\nroot_module = "shop"\ncode_location_target_module = "shop.all"\n'}, "shop.all"),
    ],
)
def test_the_definitions_are_those_of_the_project_in_this_folder(tmp_path, monkeypatch, files, module):
    """As `dg` finds them, in a folder below too: of a project of one's own no other tables are looked at."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert definitions_here() == module


def test_a_command_called_below_a_project_acts_on_what_is_the_projects(tmp_path, monkeypatch):
    """Its lakehouse and its history, with its settings: an empty place of its own would have no gaps."""
    (tmp_path / "pyproject.toml").write_text('[tool.dg.project]\nroot_module = "shop"\n')
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (tmp_path / "below").mkdir()
    monkeypatch.setenv("DAGSTER_HOME", "put back at the end of the test")
    monkeypatch.delenv("DAGSTER_HOME")
    monkeypatch.setenv("LAKEHOUSE_ROOT", "")
    monkeypatch.chdir(tmp_path / "below")
    with one_message_for_an_error():
        assert Lakehouse().root_uri == str(tmp_path / ".lakehouse")
        assert os.environ["DAGSTER_HOME"] == str(tmp_path / ".dagster")
    assert (tmp_path / ".dagster/dagster.yaml").read_text() == "telemetry: {enabled: false}\n"
    assert not (tmp_path / "below/.dagster").exists()


def test_a_command_acts_on_what_dg_acts_on(tmp_path, monkeypatch):
    """`dg` sets what the project's `.env` sets, over the environment unless it gives way: another place would be an empty one."""
    (tmp_path / "pyproject.toml").write_text('[tool.dg.project]\nroot_module = "shop"\n')
    (tmp_path / ".env").write_text(
        f'LAKEHOUSE_ROOT={tmp_path}/lake # ours\nDAGSTER_HOME="${{DAGSTER_HOME:-{tmp_path}/history}}"\nSHOP_TOKEN\n'
    )
    (tmp_path / "below").mkdir()
    monkeypatch.setenv("DAGSTER_HOME", "put back at the end of the test")
    monkeypatch.delenv("DAGSTER_HOME")
    monkeypatch.setenv("LAKEHOUSE_ROOT", str(tmp_path / "of-the-shell"))
    monkeypatch.setenv("SHOP_TOKEN", "1")
    monkeypatch.setenv(DOTENV, "")
    monkeypatch.chdir(tmp_path / "below")
    with one_message_for_an_error():
        assert Lakehouse().root_uri == str(tmp_path / "lake")
        assert os.environ["DAGSTER_HOME"] == str(tmp_path / "history")
        assert os.environ["SHOP_TOKEN"] == "1"
        os.environ["LAKEHOUSE_ROOT"] = "what a command sets for its own processes"
    with one_message_for_an_error():
        assert os.environ["LAKEHOUSE_ROOT"] == "what a command sets for its own processes"
    monkeypatch.setenv(DOTENV, "")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "mine"))
    with one_message_for_an_error():
        assert os.environ["DAGSTER_HOME"] == str(tmp_path / "mine")


def test_what_a_project_sets_is_read_as_of_its_own_folder(tmp_path, monkeypatch):
    """A relative root is one folder, wherever below it a command is called; definitions are named in the environment alone."""
    (tmp_path / "pyproject.toml").write_text('[tool.dg.project]\nroot_module = "shop"\n')
    (tmp_path / ".env").write_text("LAKEHOUSE_ROOT=lake\nBACKFILL_ASSETS_DEFINITIONS=other\n")
    (tmp_path / "below").mkdir()
    for name, value in (("DAGSTER_HOME", str(tmp_path)), ("LAKEHOUSE_ROOT", ""), (DOTENV, ""), (DEFINITIONS, "mine")):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path / "below")
    with one_message_for_an_error():
        assert Lakehouse().root_uri == str(tmp_path / "lake")
        assert os.environ[DEFINITIONS] == "mine"


def test_settings_that_cannot_be_read_are_one_clear_error(tmp_path, monkeypatch):
    """What they name would be another history."""
    (tmp_path / ".env").write_bytes(b"LAKEHOUSE_ROOT=caf\xe9\n")
    monkeypatch.setenv(DOTENV, "")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["gaps"])
    assert (result.exit_code, f"`{tmp_path}/.env` cannot be read" in result.stderr) == (2, True)


def test_a_story_is_not_led_elsewhere(tmp_path, monkeypatch):
    """Dagster's own command line reads the file again, in each process that the story starts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEHOUSE_ROOT", str(tmp_path / "story"))
    refuse_dotenv()
    (tmp_path / ".env").write_text(f"OTHER=1\nLAKEHOUSE_ROOT={tmp_path}/story\n")
    refuse_dotenv()
    (tmp_path / ".env").write_text("LAKEHOUSE_ROOT=/data/lake\n")
    with pytest.raises(ConfigurationError, match="sets LAKEHOUSE_ROOT, and so does the demo"):
        refuse_dotenv()


def test_a_project_that_cannot_be_read_is_not_taken_for_the_shop(tmp_path, monkeypatch):
    """Nothing is looked at, instead of other tables."""
    (tmp_path / "pyproject.toml").write_text("[tool.dg")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["gaps"])
    assert (result.exit_code, f"`{tmp_path}/pyproject.toml` cannot be read" in result.output) == (2, True)


def test_closed_project_leaves_no_instance_behind(tmp_path, monkeypatch):
    """The lakehouse was opened while an instance of Dagster was, and is closed after it: definitions load again."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    table = build_lakehouse_table(orders_spec())
    with Project("shop", lakehouse_definitions(table, lakehouse=Lakehouse(root=f"{tmp_path}/lake"))) as project:
        with dg.DagsterInstance.get():
            assert project.lakehouse.root_uri
        gc.collect()
    assert lakehouse_definitions(build_lakehouse_table(orders_spec())).get_repository_def()
