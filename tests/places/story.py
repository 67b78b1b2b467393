"""A few launches of one table in one process, wherever the environment says that Spark runs.

    python -m tests.places.story <root of a lakehouse> <file for what happened> <scene> ...

The first scene wants an empty lakehouse, the others what the first one left. What happened is written as JSON; the tests read
it, and the tables with another reader.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.places.slow_shop import SLOW
from tests.support.launching import ORDERS, TOTALS, Lake, Ran, new_lake
from tests.support.shop import orders, rows_in

DAYS = DAY_1, DAY_2, DAY_3, DAY_4, DAY_5 = tuple(f"2024-01-0{n}" for n in range(1, 6))
SLOW_ROWS = 120
FIRST, LATER = ("first",), ("again", "mended", "reconciled")


def told(ran: Ran, lake: Lake) -> dict[str, Any]:
    return {
        "status": ran.run.status.value,
        "recorded": {ORDERS: ran.recorded(), TOTALS: ran.recorded(TOTALS)},
        "verdicts": ran.verdicts(),
        "launch": ran.launch if "bronze__orders" in ran.steps else "",
        "failure": "" if ran.succeeded else ran.failure,
        "customers": customers(lake),
        "log": ran.log,
    }


def customers(lake: Lake) -> dict[str, list[str]]:
    """Who ordered, by day, as delta-rs reads it: never Spark, which is what is tested."""
    found: dict[str, set[str]] = {}
    for row in rows_in(lake.path()):
        found.setdefault(str(row["dt"]), set()).add(row["customer"])
    return {day: sorted(names) for day, names in sorted(found.items())}


def scenes(lake: Lake) -> dict[str, Callable[[], Ran]]:
    def first() -> Ran:
        for day in DAYS:
            lake.export(day, orders(day, SLOW_ROWS, customer=SLOW) if day == DAY_5 else orders(day))
        return lake.launch(DAY_1, DAY_5, tables=(ORDERS, TOTALS), max_partitions_per_chunk=3)

    def again() -> Ran:
        lake.export(DAY_2, orders(DAY_2, customer="corrected"))
        lake.export(DAY_3, orders(DAY_3) + orders(DAY_3))  # every key twice
        return lake.launch(DAY_1, DAY_5)

    def mended() -> Ran:
        lake.export(DAY_3, orders(DAY_3, customer="mended"))
        return lake.launch(DAY_1, DAY_5, only="MISSING")

    return {
        "first": first,
        "again": again,
        "mended": mended,
        "reconciled": lambda: lake.reconcile(DAY_1, DAY_5),
    }


def main(root: Path, told_to: Path, *names: str) -> None:
    lake = new_lake(root)
    told_to.write_text(json.dumps({name: told(scenes(lake)[name](), lake) for name in names}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
    sys.stdout.flush()
    os._exit(0)  # delta-rs has threads that the interpreter's end can trip over
