"""A database whose customers a project of its own follows, and the project's commands as processes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psycopg

from tests.live.changes.world import COLUMNS, DAYS
from tests.support import postgres
from tests.support.interpreted import extra_conf

CUSTOMERS_TABLE = f"""
from datetime import date
from backfill_assets import TableSpec, build_lakehouse_table, lakehouse_definitions

customers = TableSpec(
    key="bronze/customers", columns={COLUMNS!r}, key_columns=["id"], event_time="signed_up", grain="monthly",
    start=date(2024, 1, 1), source={{"kind": "jdbc", "connection": "SHOP_DATABASE", "table": "customers"}},
    changes={{"capture": "shop", "refresh_seconds": 1, "backfill": "automatic"}},
)
"""
FEED = "landing/changes/shop"

_MODULE = "customers_project"
_COMMAND = str(Path(sys.executable).parent / "backfill-assets")


def new_environment(root: Path, server: postgres.Server, definitions: str) -> Mapping[str, str]:
    """Write a project's definitions; return the environment of its commands."""
    define(root, definitions)
    (root / "home").mkdir()
    return {
        **os.environ,
        "PYTHONPATH": str(root),
        "LAKEHOUSE_ROOT": f"{root}/lakehouse",
        "DAGSTER_HOME": f"{root}/home",
        "SHOP_DATABASE": server.address(),
        "SPARK_EXTRA_CONF": extra_conf({}),
    }


def define(root: Path, definitions: str) -> None:
    (root / f"{_MODULE}.py").write_text(CUSTOMERS_TABLE + definitions)


def command(*arguments: str) -> list[str]:
    return [_COMMAND, *arguments, "--definitions", _MODULE]


def started(environment: Mapping[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    log = Path(environment["DAGSTER_HOME"]) / f"{arguments[0]}.log"
    with log.open("ab") as out:
        return subprocess.Popen(command(*arguments), env=environment, stdout=out, stderr=out, start_new_session=True)


def ran(environment: Mapping[str, str], *arguments: str, code: int = 0) -> str:
    """Run a command to its end; return what it says, with why where it fails as it should."""
    done = subprocess.run(
        command(*arguments), env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + (done.stderr if code else "")


def change(client: psycopg.Connection, dice: random.Random) -> None:
    """Insert, update, move, delete."""
    key, day = dice.randrange(1, 120), dice.choice(DAYS)
    client.execute(
        dice.choice(
            [
                "INSERT INTO customers VALUES (%(key)s, 'new', 1, NULL, NULL, %(at)s) ON CONFLICT DO NOTHING",
                "UPDATE customers SET balance = balance + 1 WHERE id = %(key)s",
                "UPDATE customers SET signed_up = signed_up + interval '40 days' WHERE id = %(key)s AND signed_up < '2024-06-01'",
                "DELETE FROM customers WHERE id = %(key)s",
            ]
        ),
        {"key": key, "at": f"{day} 10:00Z"},
    )
    time.sleep(0.02)
