"""An executor that gives each step a process: the run lives in the one that starts them, and checks know what was launched."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import dagster as dg
import pytest

from backfill_assets.runs.killed import PID
from tests.e2e.world import ORDERS, World, expected, new_world, shop_orders
from tests.support.launching import RANGE_END, RANGE_START, Ran
from tests.support.shop import folder_of

pytestmark = [pytest.mark.e2e, pytest.mark.prove]

DAYS = DAY_1, DAY_2, DAY_3 = ("2023-01-01", "2023-01-02", "2023-01-03")
OWN = """
import dagster as dg
from backfill_assets import definitions


@dg.definitions
def defs():
    orders = dg.AssetSelection.assets(["bronze", "orders"])
    mine = dg.define_asset_job("mine", orders, executor_def=dg.multiprocess_executor)
    return dg.Definitions.merge(definitions.defs(None), dg.Definitions(jobs=[mine]))
"""


def launched(world: World, **config: object) -> Ran:
    """Launch all days by the job whose steps have processes of their own."""
    (world.root / "mine.py").write_text(OWN)
    (world.root / "config.json").write_text(json.dumps({"ops": {"bronze__orders": {"config": config}}}))
    tags = json.dumps({RANGE_START: DAY_1, RANGE_END: DAY_3})
    done = world.run("dagster", "job", "execute", "-f", "mine.py", "-j", "mine", "-c", "config.json", "--tags", tags)
    assert done.returncode == 0, done.stderr[-4000:]
    with world.here() as lake:
        (run,) = lake.instance.get_runs(limit=1)
        return Ran(run, tuple(lake.instance.all_logs(run.run_id)))


def test_each_step_may_have_a_process(tmp_path: Path):
    """The run's process is that of no step; what was published is held against its receipt, what was left out is not judged."""
    world = new_world(tmp_path)
    for day in DAYS:
        world.export(day, shop_orders(day))
    first = launched(world, reason="first load")
    said = "\n".join(entry.message for entry in first.entries)
    (parent,) = re.findall(r"parent process \(pid: (\d+)\)", said)
    assert first.run.tags[PID] == parent
    assert first.verdicts() == dict.fromkeys(DAYS, True)

    world.export(DAY_1, shop_orders(DAY_1, customer_name="corrected"))
    shutil.rmtree(folder_of(world.lakehouse / "landing/orders", DAY_3))
    again = launched(world, reason="source changed: corrected", may_find_nothing=True)
    assert again.succeeded
    assert sorted(map(str, again.recorded())) == [DAY_1, DAY_2]
    assert again.verdicts() == {DAY_1: True, DAY_2: True, DAY_3: False}
    assert again.evaluations()[DAY_3].severity == dg.AssetCheckSeverity.WARN
    assert world.content() == expected(DAY_1, customer_name="corrected") + expected(DAY_2, DAY_3)
    assert world.shown(*DAYS, table=ORDERS) == dict.fromkeys(DAYS, "materialized")
