"""What the README says: its commands, its YAML, its Python and its links."""

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner
from dagster_dg_cli.cli.launch import launch_command

from backfill_assets.cli import main
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.definitions import defs
from backfill_assets.runs.launch_config import LaunchConfig

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    """Return the fenced blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands(program):
    """Return the arguments of every command that starts with a program."""
    joined = "\n".join(blocks("console")).replace("\\\n", " ")
    lines = [line.removeprefix("$ ").split(" > ")[0] for line in joined.splitlines() if line.startswith("$ ")]
    words = [shlex.split(line, comments=True) for line in lines]
    return [arguments for first, *arguments in words if first == program]


def test_every_make_target_exists():
    """What the README tells to make, the Makefile makes."""
    targets = {words[0] for words in commands("make")} | set(re.findall(r"`make ([a-z-]+)`", README))
    assert {"demo", "test", "ui", "lint", "bench"} <= targets
    assert targets <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


@pytest.mark.parametrize("arguments", commands("backfill-assets"), ids=" ".join)
def test_every_command_of_ours_is_understood(arguments):
    """Each of our commands in the README parses: the same words with --help print the help of a real command."""
    result = CliRunner().invoke(main, [*arguments, "--help"])
    assert result.exit_code == 0
    assert all(word in result.output for word in arguments if word.startswith("--"))


@pytest.mark.parametrize("arguments", commands("dg"), ids=" ".join)
def test_every_command_of_dagster_is_understood(arguments):
    """Each `dg` command in the README exists, with its options; what it selects and configures is there."""
    known = (
        {option for parameter in launch_command.params for option in parameter.opts}
        if arguments[0] == "launch"
        else set()
    )
    assert arguments[0] == "launch" or arguments == ["check", "defs"]
    assert {word for word in arguments if word.startswith("--")} <= known
    options = dict(pairwise(arguments))
    keys = re.findall(r'key:"([^"]+)"', options.get("--assets", ""))
    loaded = {key.to_user_string() for key in defs(None).resolve_all_asset_keys()}
    assert set(keys) <= loaded | {"bronze/visits"}, "the table that the README adds, and those that are there"
    if "--config-json" in options:
        for op in json.loads(options["--config-json"])["ops"].values():
            assert LaunchConfig(**{**op["config"], "only": op["config"]["only"].lower()}).reason


def test_the_yaml_of_a_table_is_a_table():
    """The table that the README shows can be copied as it is; so can the source of a table made of others."""
    table, source = (yaml.safe_load(block) for block in blocks("yaml"))
    spec = TableSpec(**table["attributes"])
    assert (spec.key, table["type"]) == ("bronze/visits", "backfill_assets.LakehouseTable")
    assert TableSpec(**{**table["attributes"], **source}).source.transform == ".transform.daily_sales"


def test_the_python_makes_definitions():
    """The Python that the README shows runs, and what it makes loads."""
    (code,) = blocks("python")
    names = {}
    exec(code, names)
    dg.Definitions.validate_loadable(names["defs"])


def test_every_variable_is_read():
    """Every environment variable of the configuration table is one that the code reads."""
    code = "".join(path.read_text() for path in (ROOT / "backfill_assets").rglob("*.py"))
    named = re.findall(r"^\| `([A-Z_]+)` \|", README, flags=re.MULTILINE)
    assert len(named) == 9
    assert [name for name in named if f'"{name}"' not in code] == []
