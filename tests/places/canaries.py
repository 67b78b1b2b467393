"""What happens to a lakehouse whose settings hold secrets: a launch, a refusal, a stop, and a JVM that is killed.

    python -m tests.places.canaries <root of a lakehouse>

All of it happens in one process, over a DAGSTER_HOME of its own. What ended how is written to standard output as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import psutil

from tests.places.slow_shop import SLOW, slow_totals
from tests.support.launching import TOTALS, Lake, Ran
from tests.support.shop import orders

DAY_1, DAY_2, DAY_3 = "2024-01-01", "2024-01-02", "2024-01-03"
SLOW_ROWS = 200


@contextmanager
def in_the_middle(act: Callable[[], None]) -> Iterator[None]:
    """Act when a job of Spark has begun."""

    def wait_and_act() -> None:
        time.sleep(4)
        act()

    threading.Thread(target=wait_and_act, daemon=True).start()
    yield


def stop() -> None:
    """Stop the run of this process, as Dagster does."""
    with dg.DagsterInstance.get() as instance:
        (run,) = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
        instance.report_run_canceling(run)
    os.kill(os.getpid(), signal.SIGTERM)


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
    lake.export(DAY_3, orders(DAY_3) + orders(DAY_3))  # every key twice
    ended["refused"] = lake.launch(DAY_3)
    with in_the_middle(stop):
        ended["stopped"] = lake.launch(DAY_1, DAY_2, tables=(TOTALS,))
    with in_the_middle(kill_the_jvm):
        ended["killed"] = lake.launch(DAY_1, DAY_2, tables=(TOTALS,))
    return {name: ran.run.status.value for name, ran in ended.items()}


def main(root: Path) -> None:
    with dg.DagsterInstance.get() as instance:
        sys.stdout.write(json.dumps(told(Lake(root, instance, transform=slow_totals))))
    sys.stdout.flush()
    os._exit(0)  # delta-rs has threads that the interpreter's end can trip over


if __name__ == "__main__":
    main(Path(sys.argv[1]))
