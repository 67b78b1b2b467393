"""Standard output of every command carries the answer and nothing else, however much Spark's JVM prints to its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml

from backfill_assets.commands.terminal import DEFINITIONS, SHOP
from tests.e2e.world import ORDERS, new_world, shop_orders

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.prove]

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
    ["verify", ORDERS, "--json"],
    ["preview", ORDERS, "--partition", DAY, "--json"],
    ["stop", ORDERS, "--json"],
    ["resume", ORDERS, "--json"],
    ["reset", ORDERS, "--yes", ORDERS, "--json"],
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
    ["verify", ORDERS],
)
VISITS, OWN, VISITED = "bronze/visits", ["--definitions", "visits.definitions"], "2024-01-01"
NEW = ["version", "new", VISITS, "--from", "version", "--no-stream", *OWN]
OF_VERSIONS = (
    ["plan", VISITS, "--partition-range", f"{VISITED}...{VISITED}", "--output", "visits.json", "--json", *OWN],
    ["apply", "visits.json", "--json", *OWN],
    ["version", "deploy", VISITS, "--rehearse", "rehearsal", "--json", *OWN],
    ["version", "deploy", VISITS, "--json", *OWN],
    ["version", "cutover", VISITS, "--json", *OWN],
    ["version", "rollback", VISITS, "--json", *OWN],
    ["version", "retire", f"{VISITS}__v2", "--yes", f"{VISITS}__v2", "--json", *OWN],
)
VIEWS = ["views", *OWN]
COMMANDS = [*AS_JSON, AS_YAML, *AS_TEXT, NEW, *OF_VERSIONS, VIEWS]
END, EXIT = "\x1e", "-- exit code"

PROJECT = {
    "pyproject.toml": """
[tool.dg]
directory_type = "project"
[tool.dg.project]
root_module = "visits"
code_location_target_module = "visits.definitions"
""",
    "visits/__init__.py": "",
    "visits/definitions.py": """
from pathlib import Path
from backfill_assets import lakehouse_definitions, load_tables
defs = lakehouse_definitions(load_tables(Path(__file__).parent))
""",
    "visits/defs/bronze/visits/defs.yaml": f"""
type: backfill_assets.LakehouseTable
attributes:
  key: {VISITS}
  columns: {{visit_id: bigint not null, visited_at: timestamp not null}}
  key_columns: [visit_id]
  event_time: visited_at
  grain: daily
  start: {VISITED}
  source: {{kind: files, path: visits, format: json}}
""",
    "lakehouse/landing/visits/2024/01/01/a.json": f'{{"visit_id": 7, "visited_at": "{VISITED}T08:00:00Z"}}',
}
"""A table of its own, so that the specs of versions are not written among the shop's."""

SCRIPT = f"""
import json, os, sys
from backfill_assets.cli import main
for words in json.loads(sys.argv[1]):
    sys.stderr.write(f"\\n-- {{words}}\\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "visits"]:
        del sys.modules[name]
    code = 0
    try:
        words = [json.load(open("plan.json"))["id"] if word == {PLAN!r} else word for word in words]
        main(words)
    except SystemExit as ended:
        code = ended.code or 0
    sys.stderr.write(f"\\n{EXIT} {{code}}\\n")
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
    for name, text in PROJECT.items():
        (world.root / name).parent.mkdir(parents=True, exist_ok=True)
        (world.root / name).write_text(text)
    environment = world.environment
    environment["SPARK_EXTRA_CONF"] += f";{NOISY}"
    environment[DEFINITIONS] = SHOP  # of the commands that name none; the folder's own project is `visits`
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
    for words, answer in zip(OF_VERSIONS, given[COMMANDS.index(NEW) + 1 :], strict=False):
        assert json.loads(answer), words
    statements = given[COMMANDS.index(VIEWS)].strip().splitlines()
    assert statements
    assert all(line.startswith(("--", "CREATE ", "BEGIN ", "COMMIT")) for line in statements), statements


def test_no_answer_has_a_line_of_the_jvm(ran: subprocess.CompletedProcess[str]):
    """Answers for people have none of its lines either, and nothing comes after the last one."""
    *given, rest = answers(ran)
    assert (len(given), rest) == (len(COMMANDS), "")
    assert [
        answer for answer in given if "MaxHeapSize" in answer or "[gc" in answer or "[Global flags]" in answer
    ] == []


def test_every_exit_code_is_what_its_command_says(ran: subprocess.CompletedProcess[str]):
    """0 where nothing is wrong, 1 where a day is not launched yet, 2 where nobody has said where the database is."""
    codes = [int(line.rpartition(" ")[2]) for line in ran.stderr.splitlines() if line.startswith(EXIT)]
    assert {" ".join(words): code for words, code in zip(COMMANDS, codes, strict=True) if code} == {
        f"reconcile {ORDERS} --json": 1,
        "capture shop --once": 2,
    }
