"""Random schedules of history and a live stream in two processes, killed at points inside of what they do."""

from __future__ import annotations

import os
import random
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pytest

from tests.e2e.live_drivers import Drivers, Fate, WasKilled
from tests.e2e.live_plans import DAYS, LIVE, SEALED, Plan, Seen, line_of, plan_of
from tests.support.live_receipts import live_receipts
from tests.support.live_shop import Shop
from tests.support.seeds import rounds, within

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.spark]

BOTH_ARE_KILLED = (17, 34, 40, 53, 0)
"""Seeds of the gate: in each of them both sides act at once, and both are killed."""

GATE_SECONDS = 20
"""After this time the gate begins no other schedule; `SCHEDULES=40` runs so many, however long they take."""


@dataclass
class Side:
    """A driver in one role, and another when it was killed."""

    name: str
    shop: Shop
    plan: Plan
    drivers: Drivers
    fate: Fate
    driver: Any = None
    landed: int = 0
    told: list[str] = field(default_factory=list)
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self.driver = self.drivers.take()

    def steps(self) -> list[Any]:
        return list(self.plan.write if self.name == "live" else self.plan.launch)

    def run(self) -> None:
        """Do all steps of this side."""
        try:
            for step in self.steps():
                self.step(step)
        except BaseException as error:  # noqa: BLE001 (raised again by the test)
            self.failure = error

    def step(self, step: str | Mapping[str, Any]) -> dict[str, Any]:
        if step == "land":
            self.shop.land(*self.plan.files[self.landed])
            self.landed += 1
            return {}
        order = {"do": "write"} if isinstance(step, str) else dict(step)
        if order["do"] == "export":
            orders = self.plan.exports[order["day"]][order["number"]]
            self.shop.export(order["day"], *(line_of(order["day"], seen) for seen in orders))
            return {}
        while True:
            began = time.monotonic()
            try:
                answer = self.driver.order({**order, "root": str(self.shop.root)}, self.fate)
            except WasKilled:
                self.told.append(f"{time.monotonic() - began:.1f} s, {order}: killed")
                self.driver = self.drivers.replace()
                if order["do"] == "launch":
                    order["only"] = "missing"
                continue
            self.told.append(f"{time.monotonic() - began:.1f} s, {order}: {answer}")
            if answer.get("error") == "FenceMoveInterruptedError":
                continue  # the next start ends the move
            assert answer.get("error") in (None, "LivePartitionsError", "SourceIncompleteError", "FenceError"), answer
            return answer

    def end(self) -> None:
        self.fate.settle()
        if self.driver.process.poll() is None:
            self.drivers.give_back(self.driver)
        else:
            with self.drivers.lock:
                self.drivers.start(self.drivers.ahead)


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    made = Drivers(tmp_path_factory.mktemp("drivers"), ahead=1 if "SCHEDULES" in os.environ else 0)
    made.start(2 + made.ahead)
    yield made
    made.stop()


@pytest.mark.parametrize("seeds", rounds(BOTH_ARE_KILLED), ids=lambda seeds: f"from {seeds[0]}")
def test_killed_anywhere_every_event_is_there_once(seeds: list[int], drivers: Drivers, tmp_path: Path):
    """Two processes write one table, one of them live; wherever they are killed, no version has a key twice or loses one, and
    in the end the table is what was exported and what landed."""
    for seed in within(GATE_SECONDS, seeds):
        run_schedule(seed, drivers, tmp_path / str(seed))


def run_schedule(seed: int, drivers: Drivers, root: Path) -> None:
    """Run one schedule and check every version that it made."""
    root.mkdir()
    plan, shop = plan_of(seed), Shop(None, root)
    sides = {
        name: Side(name, shop, plan, drivers, Fate(dict(plan.kills.get(name, {})))) for name in ("live", "history")
    }
    live, history = sides.values()
    try:
        if plan.together:
            threads = [threading.Thread(target=side.run) for side in sides.values()]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        else:
            waiting = {name: side.steps() for name, side in sides.items()}
            dice = random.Random(seed)
            while names := [name for name, steps in waiting.items() if steps]:
                name = dice.choice(names)
                sides[name].step(waiting[name].pop(0))
        for side in sides.values():
            if side.failure is not None:
                raise side.failure
        history.step({"do": "move", "at": f"{LIVE}T00:00:00+00:00"})
        live.step("write")
        for day in SEALED:
            history.step({"do": "export", "day": day, "number": len(plan.exports[day]) - 1})
        answer = history.step(plan.last)["answer"]
        assert not answer["refused"]
        check(shop, plan)
        said = [
            line for side in sides.values() for line in side.told if "overtaken" in line or "is tried again" in line
        ]
        assert not said, "writers of different partitions were in each other's way"
    finally:
        for side in sides.values():
            killed = f"killed at {side.fate.killed}, of {len(side.fate.reached)} points"
            sys.stdout.write(f"\nseed {seed}, {side.name}: {killed}\n" + "".join(f"  {line}\n" for line in side.told))
            side.end()
    shutil.rmtree(root)


def check(shop: Shop, plan: Plan) -> None:
    """Hold every version against the one before it, and the last one against the plan."""
    path, known = str(shop.path), {day: dict[int, int]() for day in DAYS}
    newest = deltalake.DeltaTable(path).version()
    for version in range(newest + 1):
        found = contents(path, version)
        for day in DAYS:
            rows = found.get(day, Counter())
            keys = dict(rows)
            assert len({order for order, _ in rows}) == rows.total(), (
                f"version {version}, {day}: a key twice in {sorted(rows.elements())}"
            )
            newest_of = dict(keys.keys())
            gone = {order: seen for order, seen in known[day].items() if newest_of.get(order, -1) < seen}
            assert not gone, f"version {version}, {day}: {gone} are gone, or older than they were"
            known[day] = newest_of
    final = contents(path, newest)
    for day in DAYS:
        assert final.get(day, Counter()) == plan.expected(day), day
    receipts = live_receipts(shop.path)
    batches = Counter(receipt["batch"] for receipt in receipts if receipt["kind"] == "batch")
    assert set(batches.values()) == {1}, f"batches were committed more than once: {batches}"
    counts = [sum(receipt[name] for receipt in receipts) for name in ("rows", "late_rows", "quarantined_rows")]
    assert sum(counts) == sum(map(len, plan.files))
    assert len(shop.rows("_late")) == counts[1]
    assert len(shop.rows("_quarantine")) == counts[2] == plan.wrong_lines
    assert Counter(row["_ba_batch"] for row in shop.rows("_late")) == Counter(
        {receipt["batch"]: receipt["late_rows"] for receipt in receipts if receipt["late_rows"]}
    )


def contents(path: str, version: int) -> dict[str, Counter[Seen]]:
    """Return the orders of each day at a version, as delta-rs reads them."""
    found: dict[str, Counter[Seen]] = {}
    table = deltalake.DeltaTable(path, version=version).to_pyarrow_table(columns=["dt", "order_id", "amount"])
    for day, order_id, amount in zip(*(column.to_pylist() for column in table.columns), strict=True):
        assert amount == Decimal(int(amount))
        found.setdefault(str(day), Counter())[order_id, int(amount)] += 1
    return found
