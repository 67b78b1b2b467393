"""What our commands say: help that can be read, and one clear error for each wrong input, before anything is started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException

from backfill_assets.cli import main
from backfill_assets.commands.terminal import WIDTH_IN_A_FILE, new_console
from tests.e2e.test_standard_output import COMMANDS as LOOKED_AT

COMMANDS = [
    ["reconcile"],
    ["fence"],
    ["live"],
    ["once"],
    ["schema"],
    ["views"],
    ["init"],
    ["demo"],
    ["demo", "events"],
]


HEAVY = ("dagster", "pyspark", "py4j", "delta", "pydantic", "yaml", "rich", "numpy", "pyarrow")
"""What no help may import: each of them costs more than all of the help does."""


@pytest.mark.parametrize("words", [["--help"], ["reconcile", "--help"], ["demo", "--help"]], ids=" ".join)
def test_help_is_shown_at_once(words):
    """Help imports neither Dagster nor Spark, nor anything else that takes long."""
    code = (
        f"import sys; sys.argv[1:] = {words!r}\n"
        "from backfill_assets.cli import main\n"
        "main(standalone_mode=False)\n"
        f"print('heavy:', sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("Usage: ")
    assert ran.stdout.endswith("heavy: []\n")


@pytest.mark.parametrize("command", [[], *COMMANDS], ids=" ".join)
def test_help_keeps_its_lines(command):
    """Examples are shown line by line, with no marks of the formatter among them."""
    result = CliRunner().invoke(main, [*command, "--help"])
    assert result.exit_code == 0
    assert "\\b" not in result.output
    if command and command[0] in ("reconcile", "fence", "live", "schema", "init"):
        assert f"\n    backfill-assets {command[0]} bronze/orders" in result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["fence", "bronze/nope"],
            ["There is no table `bronze/nope`", "There are: bronze/audit_log, bronze/customers, bronze/orders"],
        ),
        (["live", "bronze/nope"], ["There is no table `bronze/nope`"]),
        (
            ["fence", "silver/daily_sales"],
            ["`silver/daily_sales` has no live stream, and so no fence.", "Add `live:` to its spec"],
        ),
        (["live", "silver/daily_sales"], ["`silver/daily_sales` has no live stream"]),
        (["fence", "bronze/orders", "--at", "2026-02-01"], ["has no time zone"]),
        (["fence", "bronze/orders", "--at", "2026-02-01T00:00:00"], ["has no time zone"]),
        (
            ["fence", "bronze/orders", "--at", "2042-01-01T00:00:00Z"],
            ["is far ahead of now, and a fence is never moved back", "was not moved", "with `--yes`"],
        ),
        (["fence", "bronze/orders", "--at", "9999-12-31T23:00:00-05:00"], ["is not an instant.", "was not moved"]),
        (["fence", "bronze/orders", "--at", "next week"], ["`next week` is not an instant.", "was not moved"]),
        (["once", "bronze/nope"], ["There is no table `bronze/nope`"]),
        (["once", "bronze/orders"], ["`bronze/orders` has no once-flows.", "Add `once:` to its spec"]),
        (
            ["once", "bronze/registration_events", "--reset", "registration_events_1999"],
            [
                "`bronze/registration_events` has no once-flow `registration_events_1999`.",
                "There are: registration_events_2022, ",
            ],
        ),
        (["live", "bronze/orders", "--definitions", "no.such"], ["There is no module `no.such`"]),
        (
            ["schema", "bronze/nope"],
            ["There is no table `bronze/nope`", "There are: bronze/audit_log, bronze/customers, bronze/orders"],
        ),
        (["schema", "bronze/orders", "--write", "--apply"], ["--write changes the YAML, --apply the table"]),
        (
            ["init", "orders", "--from", "orders", "--output", "-"],
            ["`orders` is not a key of a table.", "`layer/name`"],
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_wrong_input_is_one_clear_error(tmp_path, monkeypatch, arguments, says):
    """What failed, the state, what to do; exit code 2; no JVM was started and no folder made below the root."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LAKEHOUSE_ROOT", str(tmp_path / "lakehouse"))
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2, result.output
    assert all(words in result.stderr for words in says), result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "lakehouse").exists()


@pytest.mark.parametrize(("content", "says"), [(b"\xff\xfe{", "cannot be read"), (b"[" * 100_000, "is no ")])
def test_a_file_that_is_not_ours_is_one_clear_error(tmp_path, monkeypatch, content, says):
    """No text at all, or JSON that nobody can read."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    (tmp_path / "file.json").write_bytes(content)
    result = CliRunner().invoke(main, ["apply", str(tmp_path / "file.json")])
    assert (result.exit_code, "Traceback" in result.output) == (2, False), result.output
    assert says in result.stderr


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("import yaml\n\nyaml.safe_load('key: [')\n", "ParserError: while parsing a flow node"),
        ("def (\n", "SyntaxError: invalid syntax"),
        ("defs = {}['defs']\n", "KeyError: 'defs'"),
    ],
)
def test_definitions_that_cannot_be_loaded_are_one_clear_error(tmp_path, monkeypatch, module, says):
    """Exit code 2, never that of partitions that differ: a YAML nobody can read, or an error in anybody's Python."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_definitions.py").write_text(module)
    result = CliRunner().invoke(main, ["gaps", "--definitions", "broken_definitions"])
    assert (result.exit_code, "Traceback" in result.output) == (2, False), result.output
    assert f"The definitions of `broken_definitions` cannot be loaded: {says}" in result.stderr


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("telemetry: {enabled: [", "Dagster's history cannot be used: while parsing a flow node"),
        ("no_setting: 1", 'Received unexpected config entry "no_setting"'),
        ("", "Dagster's history cannot be used: file is not a database."),
        (None, "is no absolute path"),
    ],
)
def test_a_history_that_cannot_be_used_is_one_clear_error(tmp_path, monkeypatch, settings, says):
    """Its settings, its database, or where it is said to be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGSTER_HOME", "home" if settings is None else str(tmp_path / "home"))
    (tmp_path / "home/history").mkdir(parents=True)
    (tmp_path / "home/history/runs.db").write_text("no database")
    (tmp_path / "home/dagster.yaml").write_text(settings or "")
    result = CliRunner().invoke(main, ["stop", "bronze/orders"])
    assert (result.exit_code, "Traceback" in result.output) == (2, False), result.output
    assert says in result.stderr


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RuntimeError("something else"), "`main stop`: RuntimeError: something else (test_cli.py, line "),
        (PySparkException("[TASK_WRITE_FAILED] Task failed."), "`main stop`: Spark failed: [TASK_WRITE_FAILED] Task"),
    ],
)
@pytest.mark.parametrize("shows", [True, False])
def test_what_nobody_foresaw_is_no_answer(tmp_path, monkeypatch, error, says, shows):
    """It is one message, with a stack trace if that is asked for; its exit code is not that of a difference."""

    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setenv("BACKFILL_ASSETS_TRACEBACK", "1" if shows else "")

    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setattr("backfill_assets.commands.stop._stop", fails)
    result = CliRunner().invoke(main, ["stop", "bronze/orders"])
    assert result.exit_code == 2
    assert says in result.stderr
    assert ("Traceback" in result.stderr) is shows


def test_a_command_that_is_stopped_has_no_answer(tmp_path, monkeypatch):
    """Ctrl-C ends with 130, as shells have it: 1 would say that there are gaps."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("backfill_assets.commands.project.Project.load", stopped)
    ran = CliRunner().invoke(main, ["gaps"])
    assert (ran.exit_code, ran.stdout, ran.stderr) == (130, "", "Stopped.\n")


@pytest.mark.parametrize(
    ("more", "said"), [([], ["Loading shop_of_this_test", "no Dagster yet"]), (["--json"], ["no Dagster yet"])]
)
def test_a_slow_command_says_at_once_what_it_waits_for(tmp_path, more, said):
    """On standard error, before Dagster is imported; a program that asks for JSON gets nothing but the answer."""
    (tmp_path / "shop_of_this_test.py").write_text(
        "import sys\nprint('Dagster' if 'dagster' in sys.modules else 'no Dagster yet', file=sys.stderr)\n"
    )
    command = [sys.executable, "-m", "backfill_assets.cli", "gaps", "--definitions", "shop_of_this_test", *more]
    home = {**os.environ, "DAGSTER_HOME": str(tmp_path), "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[1]}"}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=home)
    lines = ran.stderr.splitlines()[: len(said)]
    assert [line.startswith(words) for line, words in zip(lines, said, strict=True)] == [True] * len(said), ran.stderr


@pytest.mark.parametrize("printed", ["click.echo('x' * 9**4)", "new_console().print('x' * 9**4)"])
def test_an_answer_that_nobody_reads_has_no_code_of_an_answer(tmp_path, printed):
    """`gaps | head -1` ends with 141, as shells have it: 1 would say that there are gaps. The rest is not complained of."""
    code = (
        "import click\nfrom backfill_assets.cli import main\n"
        "from backfill_assets.commands.terminal import new_console, one_message_for_an_error\n"
        f"@main.command()\ndef long():\n  with one_message_for_an_error():\n    {printed}\n"
        "main(['long'])"
    )
    command = [sys.executable, "-c", code]
    reader, writer = os.pipe()
    os.close(reader)
    home = {**os.environ, "DAGSTER_HOME": str(tmp_path)}
    with os.fdopen(writer, "wb") as closed:
        ran = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, check=False, env=home)
    assert (ran.returncode, ran.stderr) == (141, "")


def test_a_question_that_is_stopped_has_no_answer(tmp_path, monkeypatch):
    """Ctrl-C at a question is Ctrl-C."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))

    def stopped(*_: object, **__: object) -> None:
        raise click.Abort

    monkeypatch.setattr("backfill_assets.commands.project.Project.load", stopped)
    ran = CliRunner().invoke(main, ["reset", "bronze/orders"])
    assert (ran.exit_code, ran.stdout, ran.stderr) == (130, "", "Stopped.\n")


def test_a_live_writer_on_a_connect_server_is_refused(tmp_path, monkeypatch):
    """The writer needs a driver of its own; it says so instead of failing inside Spark."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost:15002")
    monkeypatch.delenv("SPARK_MASTER", raising=False)
    result = CliRunner().invoke(main, ["live", "bronze/orders"])
    assert result.exit_code == 2
    assert "needs a Spark driver of its own" in result.stderr


@pytest.mark.parametrize("root", ["s3a://bucket/lakehouse", "hdfs:/lakehouse"])
def test_a_demo_on_another_storage_is_refused(tmp_path, monkeypatch, root):
    """The demo makes its data in a local folder, and says so."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LAKEHOUSE_ROOT", root)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 2
    assert "makes its data in a local folder" in result.stderr


def test_tables_are_whole_in_a_file(capsys, monkeypatch):
    """Where no terminal shows them, an id is not cut in pieces; `COLUMNS` says otherwise."""
    monkeypatch.delenv("COLUMNS", raising=False)
    assert new_console().width == WIDTH_IN_A_FILE
    monkeypatch.setenv("COLUMNS", "90")
    assert new_console().width == 90


def paths_of(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
    """The words of each command, those of its groups in front."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from paths_of(command, *above, name)
        else:
            yield (*above, name)


def test_no_command_is_left_out():
    """The standard output of each is looked at, of those of groups too; the demo prints a story, and starts the others."""
    known = {path for path in paths_of(main) if path[0] != "demo"}
    run = {path for path in known for words in LOOKED_AT if tuple(words[: len(path)]) == path}
    assert run == known
