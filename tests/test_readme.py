"""What the README and the pages show: their commands, YAML, Python and variables."""

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
TUTORIAL = (ROOT / "docs/first-table.md").read_text()
PAGES = "\n".join(page.read_text() for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]))


def blocks(page, language):
    """Return the fenced blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)


def commands(page, program):
    """Return the arguments of every command that starts with a program, each once."""
    joined = "\n".join(blocks(page, "console")).replace("\\\n", " ")
    lines = [line.removeprefix("$ ").split(" > ")[0] for line in joined.splitlines() if line.startswith("$ ")]
    words = [shlex.split(part, comments=True) for line in lines for part in line.split(" && ")]
    return sorted({tuple(arguments) for first, *arguments in words if first == program})


def test_the_index_lists_every_page():
    """Each page of docs is linked from the index, under one of the four kinds."""
    index = (ROOT / "docs/README.md").read_text()
    assert re.findall(r"^## (.*)$", index, flags=re.MULTILINE) == ["Tutorial", "How-to", "Reference", "Explanation"]
    linked = set(re.findall(r"\]\(([a-z-]+\.md)\)", index))
    assert linked == {page.name for page in ROOT.glob("docs/*.md")} - {"README.md"}


def test_every_make_target_exists():
    """What a page tells to make, the Makefile makes."""
    targets = {words[0] for words in commands(PAGES, "make")} | set(re.findall(r"`make ([a-z0-9-]+)`", PAGES))
    assert {"demo", "test", "ui", "lint", "bench"} <= targets
    assert targets <= set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


@pytest.mark.parametrize("arguments", commands(PAGES, "backfill-assets"), ids=" ".join)
def test_every_command_of_ours_is_understood(arguments):
    """Each of our commands on a page parses: the same words with --help print the help of a real command."""
    words = [word for word in arguments if word != "&"]
    result = CliRunner().invoke(main, [*words, "--help"])
    assert result.exit_code == 0
    assert all(word in result.output for word in words if word.startswith("--") and word != "--help")


@pytest.mark.parametrize("arguments", commands(README + TUTORIAL, "dg"), ids=" ".join)
def test_every_command_of_dagster_is_understood(arguments):
    """Each `dg` command of a first table exists, with its options; what it selects and configures is there."""
    known = {option for parameter in launch_command.params for option in parameter.opts}
    assert arguments[0] == "launch"
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
    (table,) = (yaml.safe_load(block) for block in blocks(README, "yaml"))
    (source,) = (yaml.safe_load(block) for block in blocks(TUTORIAL, "yaml"))
    spec = TableSpec(**table["attributes"])
    assert (spec.key, table["type"]) == ("bronze/visits", "backfill_assets.LakehouseTable")
    assert TableSpec(**{**table["attributes"], **source}).source.transform == ".transform.daily_sales"


def test_the_python_makes_definitions():
    """The Python of the tutorial runs, and what it makes loads."""
    (code,) = blocks(TUTORIAL, "python")
    names = {}
    exec(code, names)
    dg.Definitions.validate_loadable(names["defs"])


def test_every_variable_is_read():
    """Every environment variable of the configuration table is one that the code reads."""
    code = "".join(path.read_text() for path in (ROOT / "backfill_assets").rglob("*.py"))
    page = (ROOT / "docs/configuration.md").read_text()
    named = re.findall(r"^\| `([A-Z_]+)` \|", page, flags=re.MULTILINE)
    assert len(named) == 9
    assert [name for name in named if f'"{name}"' not in code] == []
