"""Standard output of every command carries the answer and nothing else, however much Spark's JVM prints to its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml

from backfill_assets.cli import main
from tests.e2e.world import ORDERS, new_world, shop_orders

pytestmark = pytest.mark.e2e

DAY = "2023-01-01"
NOISY = "spark.driver.extraJavaOptions=-XX:+PrintFlagsFinal -Xlog:gc*:stdout"
"""At the start thousands of lines, and then some whenever memory is collected."""

PLAN = "(the id of plan.json)"
AS_JSON = (
    ["fence", ORDERS, "--json"],
    ["once", "bronze/registration_events", "--json"],
    ["schema", ORDERS, "--json"],
    ["reconcile", ORDERS, "--json"],
    ["plan", ORDERS, "--partition-range", f"{DAY}...{DAY}", "--output", "plan.json", "--json"],
    ["apply", "plan.json", "--json"],
    ["history", ORDERS, "--json"],
    ["undo", PLAN, "--dry-run", "--json"],
    ["gaps", ORDERS, "--json"],
    ["status", "--json"],
    ["certify", ORDERS],
    ["preview", ORDERS, "--partition", DAY, "--json"],
    ["stop", ORDERS, "--json"],
    ["resume", ORDERS, "--json"],
    ["reset", ORDERS, "--yes", ORDERS, "--json"],
    ["json-schema"],
    ["estimate", "--json"],
    ["version", "status", "--json"],
)
AS_YAML = ["init", "bronze/copies", "--from", "orders", "--output", "-"]
AS_TEXT = (
    ["reconcile", ORDERS],
    ["fence", ORDERS],
    ["schema", ORDERS],
    ["live", ORDERS, "--once"],
    ["capture", "shop", "--once"],
    ["certify", ORDERS, "-o", "certificate.json"],
    ["verify", "certificate.json"],
)
COMMANDS = [*AS_JSON, AS_YAML, *AS_TEXT]
END = "\x1e"

SCRIPT = f"""
import json, os, sys
from backfill_assets.cli import main
for words in json.loads(sys.argv[1]):
    sys.stderr.write(f"\\n-- {{words}}\\n")
    try:
        words = [json.load(open("plan.json"))["id"] if word == {PLAN!r} else word for word in words]
        main(words, standalone_mode=False)
    except SystemExit:
        pass
    sys.stdout.write({END!r})
    sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """All commands, one after another, over one Spark that prints all the time."""
    world = new_world(tmp_path_factory.mktemp("noise"))
    world.export(DAY, shop_orders(DAY))
    (world.lakehouse / "landing/order_events").mkdir(parents=True)
    environment = world.environment
    environment["SPARK_EXTRA_CONF"] += f";{NOISY}"
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(COMMANDS)],
        cwd=world.root, env=environment, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip


def answers(ran: subprocess.CompletedProcess[str]) -> list[str]:
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout.split(END)


def test_the_jvm_is_noisy(ran: subprocess.CompletedProcess[str]):
    """What it prints at its start and later is on standard error, so that the other tests say something."""
    assert "MaxHeapSize" in ran.stderr
    assert "[gc" in ran.stderr.rpartition("'reconcile'")[2]


def test_every_answer_can_be_read_by_a_program(ran: subprocess.CompletedProcess[str]):
    """Each command with `--json` prints one object, `init` one YAML document, in which nothing else stands."""
    given = answers(ran)
    for words, answer in zip(AS_JSON, given, strict=False):
        assert json.loads(answer), words
    assert yaml.safe_load(given[len(AS_JSON)])["type"] == "backfill_assets.LakehouseTable"


def test_no_answer_has_a_line_of_the_jvm(ran: subprocess.CompletedProcess[str]):
    """Answers for people have none of its lines either, and nothing comes after the last one."""
    *given, rest = answers(ran)
    assert (len(given), rest) == (len(COMMANDS), "")
    assert [
        answer for answer in given if "MaxHeapSize" in answer or "[gc" in answer or "[Global flags]" in answer
    ] == []


def test_no_command_is_left_out():
    """Every command is among them; the demo prints a story, and starts the others."""
    assert {words[0] for words in COMMANDS} == set(main.commands) - {"demo"}
