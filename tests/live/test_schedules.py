"""Random schedules on real Spark and Delta: a live writer, history and fence moves as threads of one JVM, killed between any two steps.

The table's lock is taken away, so that commits really race in Delta, as they do on storages that need no lock. `SCHEDULES=200`
runs more of them; a schedule is made again from its seed.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import deltalake
import pytest

from backfill_assets.core.live.batches import write_batch
from backfill_assets.core.live.fence_moves import claim, move_fence
from backfill_assets.errors import BackfillAssetsError
from backfill_assets.live import live_table
from backfill_assets.live.landing import EventBatch
from backfill_assets.table.transaction import Transactions
from tests.support.live_shop import Shop, event
from tests.support.seeds import rounds, within

GATE_SECONDS = 10
"""After this time the gate begins no other schedule."""
DAYS = ["2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05"]
STREAM = "a1"


class Killed(BaseException):
    """What a kill is to the code: nothing that it could catch."""


@dataclass
class Plan:
    """What happens, drawn from a seed.

    Args:
        batches: Events of each batch.
        kills: At which call of the table's steps, counted over all threads, whoever calls is killed.
        moves: Where the fence is moved, one after another.
        launches: Ranges of history.
    """

    seed: int
    batches: list[list[dict[str, Any]]] = field(default_factory=list)
    kills: set[int] = field(default_factory=set)
    moves: list[str] = field(default_factory=list)
    launches: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def drawn(cls, seed: int) -> Plan:
        rng = random.Random(seed)
        plan, number = cls(seed), 0
        for _ in range(rng.randint(2, 4)):
            events = []
            for _ in range(rng.randint(1, 4)):
                number += 1
                day = rng.choice(DAYS)
                if rng.random() < 0.3:  # an exported order, changed
                    events.append(
                        event(
                            int(day[-2:]) * 100 + rng.randint(0, 1),
                            f"{day}T01:00:00",
                            amount="9.00",
                            updated_at=f"2024-01-05T{number:02d}:00:00",
                        )
                    )
                else:
                    events.append(event(1000 + number, f"{day}T{rng.randint(0, 23):02d}:00:00"))
            plan.batches.append(events)
        plan.moves = sorted(rng.sample(["2024-01-05T00:00:00+00:00", "2024-01-06T00:00:00+00:00"], rng.randint(0, 2)))
        plan.launches = [tuple(sorted(rng.choices(DAYS[:3], k=2))) for _ in range(rng.randint(1, 2))]
        plan.kills = set(rng.sample(range(60), rng.randint(0, 3)))
        return plan


class Kills:
    """Counts the steps of all threads and kills whoever makes a certain one."""

    def __init__(self, at: set[int]) -> None:
        self.at, self.steps, self.lock = set(at), 0, threading.Lock()

    def step(self) -> None:
        with self.lock:
            self.steps += 1
            due = self.steps in self.at
        if due:
            raise Killed


def stepping(kills: Kills, function: Any) -> Any:
    def called(*args: Any, **kwargs: Any) -> Any:
        kills.step()
        done = function(*args, **kwargs)
        kills.step()
        return done

    return called


@contextmanager
def no_lock(uri: str, *, timeout_seconds: float):
    yield


def without_locks(monkeypatch):
    """Take the lock away from every save."""
    monkeypatch.setattr("backfill_assets.lake.saving.table_lock", no_lock)


STEPS = ("append", "append_late", "append_quarantine", "close", "store_fence")


@pytest.mark.parametrize("seeds", rounds(range(6)), ids=lambda seeds: f"from {seeds[0]}")
def test_a_random_schedule_ends_in_the_truth(spark, tmp_path, seeds):
    """Whatever is killed when: each event that landed is in the table once, its newest version, and no version had a key twice."""
    for seed in within(GATE_SECONDS, seeds):
        with pytest.MonkeyPatch.context() as patch:
            without_locks(patch)
            run_schedule(Plan.drawn(seed), Shop(spark, tmp_path / str(seed)), patch)


def run_schedule(plan, shop, monkeypatch):
    """Run one schedule and check every version that it made."""
    exported = {day: [event(int(day[-2:]) * 100 + n, f"{day}T01:00:00") for n in range(2)] for day in DAYS}
    for day in DAYS[:2]:
        shop.export(day, *exported[day])
    shop.delta.create()
    claim(shop.spec, shop.table, STREAM, shop.effects)
    kills = Kills(plan.kills)
    for name in STEPS:
        monkeypatch.setattr(live_table.LiveTable, name, stepping(kills, getattr(live_table.LiveTable, name)))
    for name in ("write", "commit"):
        monkeypatch.setattr(Transactions, name, stepping(kills, getattr(Transactions, name)))
    failures = run_threads(plan, shop)
    assert not failures, f"seed {plan.seed}: {plan}: {failures}"

    monkeypatch.undo()
    fence = shop.delta.fence()
    assert fence is not None
    landed = [e for events in plan.batches for e in events if e["order_id"] >= 1000]
    for day in DAYS[2:]:  # the source becomes complete for what is sealed
        shop.export(day, *exported[day], *[e for e in landed if e["ordered_at"][:10] == day])
    shop.launch(DAYS[0], (fence.at_utc - timedelta(days=1)).date().isoformat())
    for version in range(shop.delta.version() + 1):
        ids = deltalake.DeltaTable(str(shop.path), version=version).to_pyarrow_table(columns=["order_id"]).to_pylist()
        twice = [key for key, times in Counter(row["order_id"] for row in ids).items() if times > 1]
        assert not [key for key in twice if not may_come_twice(plan, key, fence)], (
            f"seed {plan.seed}: version {version} has {twice} twice: {plan}"
        )
    assert table_of(shop, fence) == truth(plan, exported, fence), f"seed {plan.seed}: {plan}"


def run_threads(plan: Plan, shop: Shop) -> list[BaseException]:
    """Let a writer, moves of the fence and launches race; return what none of them should have raised."""

    def write() -> None:
        number, is_first = 0, True
        while number < len(plan.batches):
            next_batch = batch(shop, number, plan.batches[number])
            try:
                write_batch(shop.spec, next_batch, shop.table, STREAM, shop.effects, is_first=is_first)
                number, is_first = number + 1, False
            except Killed:
                is_first = True
            except BackfillAssetsError as error:  # the fence was being moved, and whoever moved it was killed
                shop.said.append(str(error))
                is_first = True
                if not movers.is_alive():
                    end_moves(shop)

    def move() -> None:
        for at in plan.moves:
            again(lambda at=at: move_fence(shop.spec, shop.table, datetime.fromisoformat(at), shop.effects))

    def launch() -> None:
        for first, last in plan.launches:
            again(lambda first=first, last=last: shop.launch(first, last))

    movers = threading.Thread(target=move)
    failures: list[BaseException] = []
    threads = [movers, *(threading.Thread(target=guarded(failures, target)) for target in (write, launch))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=240)
    return failures


def batch(shop: Shop, number: int, events: list[dict[str, Any]]) -> EventBatch:
    """A batch of the stream, read from a file that landed for it."""
    path = shop.landing / f"{number}.json"
    if not path.exists():
        shop.numbers = iter([number])
        shop.land(*events).rename(path)
    lines = shop.spark.read.text(str(path)).selectExpr(
        "value AS _ba_text", "_metadata.file_path AS _ba_file", "_metadata.file_modification_time AS _ba_landed_at"
    )
    return EventBatch(shop.spec, shop.spec.live, number, lines)


def may_come_twice(plan: Plan, key: int, fence: Any) -> bool:
    """A change of an order that landed among the live days is a second event with its key: an append-only stream has both."""
    landed = Counter(e["order_id"] for events in plan.batches for e in events)
    return landed[key] > 1 or (key < 1000 and landed[key] >= 1)


def table_of(shop: Shop, fence: Any) -> Any:
    """What the table holds: per order of history its one row, of the live days every row."""
    rows = shop.rows()
    return Counter((row["order_id"], str(row["amount"]), row["updated_at"].isoformat()) for row in rows)


def truth(plan: Plan, exported: dict[str, list[dict[str, Any]]], fence: Any) -> Any:
    """What it must hold: before the fence the newest of export and events, from the fence on every event that landed."""
    newest: dict[int, dict[str, Any]] = {}
    live: list[dict[str, Any]] = []
    events = [e for batch_ in plan.batches for e in batch_]
    for e in [*(o for orders in exported.values() for o in orders), *events]:
        at = datetime.fromisoformat(e["ordered_at"])
        if at >= fence.at_utc:
            if e in events:
                live.append(e)
        elif e["order_id"] not in newest or e["updated_at"] > newest[e["order_id"]]["updated_at"]:
            newest[e["order_id"]] = e
    return Counter(
        (e["order_id"], e["amount"], datetime.fromisoformat(e["updated_at"]).isoformat())
        for e in [*newest.values(), *live]
    )


def again(action: Any) -> None:
    """Do something again whenever it was killed."""
    while True:
        try:
            action()
        except Killed:
            continue
        except BackfillAssetsError:
            return
        else:
            return


def end_moves(shop: Shop) -> None:
    from backfill_assets.core.live.fence_moves import end_interrupted_move

    again(lambda: end_interrupted_move(shop.spec, shop.table, shop.effects))


def guarded(failures: list[BaseException], target: Any) -> Any:
    def run() -> None:
        try:
            target()
        except BaseException as error:  # noqa: BLE001 (told by the test)
            failures.append(error)

    return run
