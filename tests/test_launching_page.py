"""What docs/launching.md says: its commands, its YAML, its GraphQL and its links."""

from __future__ import annotations

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path
from textwrap import dedent

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner
from dagster._cli.asset import asset_materialize_command
from dagster._cli.job import job_execute_command
from dagster_dg_cli.cli.launch import launch_command

from backfill_assets.assets.catch_up import wrong_crons
from backfill_assets.cli import main
from backfill_assets.core.spec.table import CatchUp
from backfill_assets.definitions import defs
from backfill_assets.runs.launch_config import LaunchConfig
from tests.support.shop import orders_spec

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "launching.md").read_text()
COMMANDS = {"dg launch": launch_command, "dagster asset": asset_materialize_command, "dagster job": job_execute_command}


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return [
        dedent(block) for block in re.findall(rf"^ *```{language}\n(.*?)^ *```", PAGE, flags=re.DOTALL | re.MULTILINE)
    ]


LINES = [line.removeprefix("$ ") for line in "".join(blocks("console")).splitlines()]


@pytest.fixture(scope="module")
def loaded() -> dg.Definitions:
    return defs(None)


@pytest.mark.parametrize("line", LINES)
def test_every_command_is_understood(loaded: dg.Definitions, line: str):
    """Each command exists with its options; what it selects, runs and configures is there."""
    words = shlex.split(line)
    if words[0] == "backfill-assets":
        assert CliRunner().invoke(main, [*words[1:], "--help"]).exit_code == 0
        return
    known = {option for parameter in COMMANDS[" ".join(words[:2])].params for option in parameter.opts}
    assert {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)} <= known
    options = dict(pairwise(words))
    for key in re.findall(r'key:"([^"]+)"', line):
        assert dg.AssetKey(key.split("/")) in loaded.resolve_all_asset_keys()
    if job := options.get("--job") or options.get("-j"):
        assert loaded.resolve_job_def(job)
    if "--config-json" in options:
        is_launch_config(json.loads(options["--config-json"]))
    if "--tags" in options:
        assert sorted(json.loads(options["--tags"])) == [
            "dagster/asset_partition_range_end",
            "dagster/asset_partition_range_start",
        ]


def is_launch_config(config: dict) -> None:
    (op,) = config["ops"].values()
    assert LaunchConfig(**{**op["config"], "only": op["config"]["only"].lower()})


def test_the_yaml_is_right(loaded: dg.Definitions):
    """The run config is one of a launch; the schedule's fields are a spec's, and the schedule has the name that the page says."""
    config, spec = (yaml.safe_load(block) for block in blocks("yaml"))
    is_launch_config(config)
    assert not list(wrong_crons(orders_spec(catch_up=CatchUp(**spec["catch_up"]).model_dump())))
    names = {schedule.name for schedule in loaded.schedules or [] if isinstance(schedule, dg.ScheduleDefinition)}
    assert set(re.findall(r"`(catch_up_\w+)`", PAGE)) <= names


def test_the_graphql_is_right():
    """The mutation is one that the webserver understands, with all of its fields."""
    from dagster_graphql.schema import create_schema
    from graphql import parse, validate

    (mutation,) = blocks("graphql")
    assert validate(create_schema().graphql_schema, parse(mutation)) == []


def test_the_picture_of_the_dialog_is_there_and_small():
    """The picture and the test that the page names exist; the picture is small."""
    (picture,) = re.findall(r"!\[.*\]\((.*)\)", PAGE)
    assert (DOCS / picture).stat().st_size < 200_000
    assert (DOCS.parent / "tests/e2e/test_ways_in.py").exists()
