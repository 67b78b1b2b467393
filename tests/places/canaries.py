"""What happens to a lakehouse whose settings hold secrets: a launch, a refusal, a JVM that is killed; servers away.

    python -m tests.places.canaries <root of a lakehouse>

All of it happens in one process, over a DAGSTER_HOME of its own. What ended how is written to standard output as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from pathlib import Path

import dagster as dg
import psutil

from backfill_assets.cli import main as command
from tests.places.slow_shop import SLOW, slow_totals
from tests.support.launching import TOTALS, Lake, Ran
from tests.support.shop import Row, json_line, orders

DAY_1, DAY_2, DAY_3 = "2024-01-01", "2024-01-02", "2024-01-03"
LIVE_DAY, SLOW_ROWS = "2024-01-04", 200
LIVE = {"latest_wins_by": ["ordered_at"], "live": {"path": "events", "starts": LIVE_DAY}}


def kill_the_jvm() -> None:
    """Kill Spark's JVM, as the system does when memory runs out."""
    for child in psutil.Process().children(recursive=True):
        if "java" in child.name():
            child.kill()


def told(lake: Lake) -> dict[str, str]:
    """Do all of it, and say how each launch ended."""
    ended: dict[str, Ran] = {}
    lake.export(DAY_1, orders(DAY_1))
    lake.export(DAY_2, orders(DAY_2, SLOW_ROWS, customer=SLOW))
    ended["launched"] = lake.launch(DAY_1, DAY_2)
    lake.export(DAY_3, orders(DAY_3) + orders(DAY_1, 1, order_id=7))  # a row of another day
    ended["refused"] = lake.launch(DAY_3)
    land(lake.root / "landing/events", orders(LIVE_DAY))
    ended["written live"] = lake._execute(lake.definitions.resolve_job_def("live_bronze_orders"), None, None, {}, None)
    threading.Timer(4, kill_the_jvm).start()
    ended["killed"] = lake.launch(DAY_1, DAY_2, tables=(TOTALS,))
    os.environ["SPARK_REMOTE"] = os.environ["A_REMOTE"]
    del os.environ["SPARK_MASTER"]
    ended["without a server"] = lake.launch(DAY_1)
    return {name: ran.run.status.value for name, ran in ended.items()}


def land(folder: Path, rows: list[Row]) -> None:
    """Land events for the live writer."""
    folder.mkdir(parents=True)
    (folder / "a.json").write_text("".join(f"{json_line(row)}\n" for row in rows))


def exit_code(*words: str) -> str:
    """Run a command of the shop here."""
    try:
        command(words)
    except SystemExit as ended:
        return str(ended.code)
    except Exception:  # noqa: BLE001 (as the interpreter ends a command of which it is not caught)
        traceback.print_exc()
        return "1"
    return ""


def of_commands(root: Path) -> dict[str, str]:
    """Run a capture whose database is away, and a command whose history is."""
    os.environ["LAKEHOUSE_ROOT"] = str(root)
    codes = {"without a database": exit_code("capture", "shop", "--once")}
    home = root / "home_of_postgres"
    home.mkdir()
    (home / "dagster.yaml").write_text("storage: {postgres: {postgres_url: {env: DAGSTER_POSTGRES_URL}}}\n")
    os.environ["DAGSTER_HOME"] = str(home)
    return {**codes, "without a history": exit_code("status", "bronze/orders")}


def main(root: Path) -> None:
    with dg.DagsterInstance.get() as instance:
        ended = told(Lake(root, instance, LIVE, slow_totals))
    ended |= of_commands(root)
    sys.stdout.write("\n" + json.dumps(ended))
    sys.stdout.flush()
    os._exit(0)  # delta-rs has threads that the interpreter's end can trip over


if __name__ == "__main__":
    main(Path(sys.argv[1]))
