"""History and a live stream in real processes over one table, killed at any moment: every event is there once in the end."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pytest
from deltalake.exceptions import TableNotFoundError

from tests.e2e.live_world import Drivers, Fate, WasKilled
from tests.e2e.world import MODULE, ORDERS, ROOT, SCHEMA, World, new_world, shop_orders
from tests.live.shop import Shop, event
from tests.support.shop import Row, json_line, multiset, rows_in

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

# -- the project's own processes -----------------------------------------------------------------------------------------

DECEMBER = [f"2025-12-{day:02d}" for day in range(5, 29)]
LATE_DAYS = ["2025-12-29", "2025-12-30", "2025-12-31"]
"""The days of history for which events come late; the others have only what was exported."""

NEW_YEAR = ["2026-01-01", "2026-01-02"]
"""Live at first, and sealed on the way."""

OPEN_DAY = "2026-01-05"
EXPORTED = 14
"""Orders a day, of which the export is made; two more when it is corrected."""


@dataclass
class Landing:
    """Lands events of all kinds at a few files a second, and keeps what has landed.

    Args:
        kinds: What comes; later only events of the open day.
        rows: Newest version of each order by day.
        late: Every order of a day in history that came late, by day: order and `updated_at`.
    """

    folder: Path
    dice: random.Random
    kinds: list[str] = field(default_factory=lambda: ["open", "open", "new year", "late change", "late order", "late again", "wrong"])
    rows: dict[str, list[Row]] = field(default_factory=dict)
    lines: int = 0
    wrong: int = 0
    files: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.ended.wait(self.dice.uniform(0.1, 0.8)):
            with self.lock:
                self.land([self.line(self.dice.choice(self.kinds)) for _ in range(self.dice.randint(5, 40))])

    def land(self, lines: list[str]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        hidden = self.folder / f".{self.files:05d}.json"
        hidden.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        hidden.rename(self.folder / hidden.name.removeprefix("."))
        self.files += 1
        self.lines += len(lines)

    def line(self, kind: str) -> str:
        if kind == "wrong":
            self.wrong += 1
            return self.dice.choice(
                ('{"order_id": 1, "customer', "<html>502</html>", '{"order_id": 2, "ordered_at": "2026-01-05T00:00:00"}')
            )
        day = OPEN_DAY if kind == "open" else self.dice.choice(NEW_YEAR if kind == "new year" else LATE_DAYS)
        number = 50 + self.lines * 50 + self.files + self.dice.randint(0, 10**9) * 10**6
        (row,) = shop_orders(day, 1, order_id=number, ordered_at=datetime.fromisoformat(f"{day}T{self.dice.randint(0, 23):02d}:30:00Z"))
        if kind == "late change":
            (exported,) = self.dice.sample(shop_orders(day, EXPORTED), 1)
            row = {**exported, "status": "refunded", "updated_at": datetime(2026, 1, 6, tzinfo=UTC) + timedelta(microseconds=number)}
        if kind == "late again" and self.rows.get(day):
            row = self.dice.choice(self.rows[day])
        self.rows.setdefault(day, []).append(row)
        return json_line(row)

    def landed_of(self, day: str) -> list[Row]:
        with self.lock:
            return list(self.rows.get(day, []))


def newest(*rows: Row) -> Counter[tuple[Any, ...]]:
    """One row per order, the one that was changed last."""
    by_key: dict[int, Row] = {}
    for row in rows:
        if row["order_id"] not in by_key or row["updated_at"] > by_key[row["order_id"]]["updated_at"]:
            by_key[row["order_id"]] = row
    return multiset(by_key.values(), SCHEMA.names)


@dataclass
class Reader:
    """Reads the table with delta-rs without a pause, and notes what must not be seen.

    Args:
        allowed: What a day of history may hold, besides nothing.
    """

    path: Path
    allowed: dict[str, list[Counter[tuple[Any, ...]]]]
    reads: int = 0
    wrong: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        seen = -1
        while not self.ended.wait(0.2):
            if not (self.path / "_delta_log").exists():
                continue
            try:
                table = deltalake.DeltaTable(str(self.path))
            except TableNotFoundError:  # the folder is there, and its first commit is not
                continue
            if table.version() == seen:
                continue
            seen = table.version()
            self.read(table)

    def read(self, table: deltalake.DeltaTable) -> None:
        self.reads += 1
        by_day: dict[str, list[Row]] = {}
        for row in table.to_pyarrow_table().to_pylist():
            by_day.setdefault(str(row["dt"]), []).append(row)
        at = f"version {table.version()}"
        ids = Counter(row["order_id"] for rows in by_day.values() for row in rows)
        if twice := [key for key, count in ids.items() if count > 1]:
            self.wrong.append(f"{at}: orders {twice[:5]} come more than once")
        for day in DECEMBER:
            rows = multiset(by_day.get(day, []), SCHEMA.names)
            if rows and rows not in self.allowed[day]:
                self.wrong.append(f"{at}: {day} has {rows.total()} rows, which are neither the old nor the new ones")
        for day in LATE_DAYS:
            lacking = {row["order_id"] for row in shop_orders(day, EXPORTED)} - {row["order_id"] for row in by_day.get(day, [])}
            if day in by_day and lacking:
                self.wrong.append(f"{at}: {day} lacks {len(lacking)} orders")


class Process:
    """One of the project's commands in a session of its own, and what it said."""

    def __init__(self, world: World, *command: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=world.root, env={**world.environment, "PYTHONPATH": str(ROOT)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.rstrip() for line in iter(self.process.stdout.readline, ""))

    def said(self, what: str) -> list[str]:
        return [line for line in self.lines if re.search(what, line)]

    def wait_until(self, what: Callable[[], object], seconds: float = 240) -> None:
        """Wait until something holds; fail if the process ends before."""
        until = time.monotonic() + seconds
        while not what():
            assert self.process.poll() is None, f"it ended: {self.text()}"
            assert time.monotonic() < until, f"after {seconds:.0f} s: {self.text()}"
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill it and its JVM."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self, seconds: float = 300) -> int:
        """Wait for its end; return its exit code."""
        code = self.process.wait(timeout=seconds)
        self.reader.join(timeout=10)
        return code

    def text(self) -> str:
        return "\n".join(self.lines)[-6000:]


def live_writer(world: World) -> Process:
    return Process(world, "backfill_assets.cli", "live", ORDERS)


def history(world: World, first: str, last: str, **config: Any) -> Process:
    ops = json.dumps({"ops": {"bronze__orders": {"config": config}}})
    return Process(
        world, "dagster", "asset", "materialize", "-m", MODULE, "--select", f'key:"{ORDERS}"',
        "--partition-range", f"{first}...{last}", "--config-json", ops,
    )  # fmt: skip


BATCH = re.compile(r"batch (\d+): ([\d,]+) rows(?:, ([\d,]+) late)?(?:, ([\d,]+) quarantined)?")


def batches(*writers: Process) -> dict[int, tuple[int, int, int]]:
    """Return what writers said of each batch: rows in the table, late ones, quarantined ones."""
    found = [match for writer in writers for line in list(writer.lines) if (match := BATCH.search(line))]
    return {int(m[1]): tuple(int((part or "0").replace(",", "")) for part in m.groups()[1:]) for m in found}  # type: ignore[misc]


def test_a_backfill_behind_a_stream_with_both_killed(tmp_path: Path):
    """A stream writes, a launch behind it is killed and resumed, the writer is killed and started again, the fence is moved while
    both run, the export is corrected: in the end every event is there once, and no reader ever saw a key twice or half a day."""
    seed = random.SystemRandom().randrange(10**6)
    sys.stdout.write(f"\nseed {seed}\n")
    dice = random.Random(seed)
    world = new_world(tmp_path)
    exports = {day: shop_orders(day, EXPORTED) for day in DECEMBER + LATE_DAYS}
    corrected = {day: shop_orders(day, EXPORTED + 2, status="corrected") for day in dice.sample(DECEMBER, 5)}
    for day, rows in exports.items():
        world.export(day, rows)
    allowed = {day: [newest(*rows), *([newest(*corrected[day])] if day in corrected else [])] for day, rows in exports.items()}
    landing = Landing(world.lakehouse / "landing/order_events", dice)
    landing.land([landing.line("open")])
    reader = Reader(world.path(), allowed)
    threads = [threading.Thread(target=side.run, daemon=True) for side in (landing, reader)]
    processes: list[Process] = []

    def started(process: Process) -> Process:
        processes.append(process)
        return process

    try:
        for thread in threads:
            thread.start()
        writer = started(live_writer(world))
        first = started(history(world, DECEMBER[0], LATE_DAYS[-1], max_partitions_per_chunk=4))
        writer.wait_until(lambda: batches(writer))
        after = dice.randint(1, 4)
        first.wait_until(lambda: len(first.said(r"Chunk \d+ of")) >= after)
        time.sleep(dice.uniform(0, 1.5))
        first.kill()
        resumed = started(history(world, DECEMBER[0], LATE_DAYS[-1], max_partitions_per_chunk=4, only="MISSING"))
        time.sleep(dice.uniform(0, 8))
        writer.kill()
        again = started(live_writer(world))
        again.wait_until(lambda: batches(again))
        fence = started(Process(world, "backfill_assets.cli", "fence", ORDERS, "--at", "2026-01-03T00:00:00Z", "--json"))
        assert fence.end() == 0, fence.text()
        assert resumed.end() == 0, resumed.text()
        assert resumed.said("Left out"), resumed.text()

        landing.kinds[:] = ["open", "new year", "late order"]  # those of the new year are late by now
        exports |= corrected
        exports |= {day: [*landing.landed_of(day), *shop_orders(day, 2)] for day in NEW_YEAR}
        for day in [*corrected, *NEW_YEAR]:
            world.export(day, exports[day])
        time.sleep(3)
        landing.kinds[:] = ["open"]
        with landing.lock:
            landed = landing.lines
        again.wait_until(lambda: sum(map(sum, batches(writer, again).values())) >= landed)
        last = started(history(world, DECEMBER[0], NEW_YEAR[-1], only="MISSING"))
        assert last.end() == 0, last.text()
        assert last.said("Left out"), last.text()

        landing.ended.set()
        threads[0].join()
        again.wait_until(lambda: sum(map(sum, batches(writer, again).values())) >= landing.lines)
        again.process.send_signal(signal.SIGINT)
        assert again.end() == 0, again.text()
        time.sleep(0.5)
    finally:
        landing.ended.set()
        reader.ended.set()
        for thread in threads:
            thread.join()
        for process in processes:
            process.kill()

    assert reader.wrong == []
    assert reader.reads > 5
    expected = multiset(landing.rows[OPEN_DAY], SCHEMA.names)
    for day, rows in exports.items():
        expected += newest(*rows, *landing.rows.get(day, []))
    found = world.content()
    assert found - expected == Counter(), "rows that nobody exported or landed, or that came twice"
    assert expected - found == Counter(), "rows that were lost"
    receipts = [receipt for receipt in live_receipts(world.path()) if receipt["kind"] == "batch"]
    assert sorted(receipt["batch"] for receipt in receipts) == list(range(len(receipts)))
    counts = [sum(receipt[name] for receipt in receipts) for name in ("rows", "late_rows", "quarantined_rows")]
    assert sum(counts) == landing.lines
    beside = [len(rows_in(f"{world.path()}_{name}")) for name in ("late", "quarantine")]
    assert beside == counts[1:] == [counts[1], landing.wrong]
    for process in processes:
        assert process.said("overtaken|is tried again") == []


# -- seeded schedules: two drivers on one table, killed at points inside of what they do ---------------------------------

DAYS = ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05", "2024-01-06")
HISTORY, SEALED, LIVE = DAYS[:3], DAYS[3:5], DAYS[5]
"""Before the first fence; sealed on the way; never sealed. It is noon of the last day."""

Seen = tuple[int, int]
"""Which version of which order a row is."""

SEEDS = range(int(os.environ["SCHEDULES"])) if "SCHEDULES" in os.environ else (0, 4, 5, 7, 8)
"""In the gate those in which both sides are killed; `SCHEDULES=40` runs more."""


@dataclass(frozen=True)
class Plan:
    """Everything that a schedule is about.

    Args:
        files: Lines of each file that lands.
        wrong_lines: How many of them are no event.
        events: By day, every order that lands, each as often as it does.
        exports: By day, how its export changes, in order.
        write: Of the live side: `land` a file, or `write` what has landed.
        launch: Of the history side.
        together: Whether both sides act at the same time.
        kills: By side, at which point it is killed, and after how many seconds.
    """

    files: list[list[str]]
    wrong_lines: int
    events: dict[str, list[Seen]]
    exports: dict[str, list[list[Seen]]]
    write: list[str]
    launch: list[dict[str, Any]]
    last: dict[str, Any]
    together: bool
    kills: dict[str, dict[int, float]]

    def expected(self, day: str) -> Counter[Seen]:
        """Return what a day holds in the end."""
        if day == LIVE:
            return Counter(self.events[day])
        newest: dict[int, int] = {}
        for order_id, version in [*self.exports[day][-1], *self.events[day]]:
            newest[order_id] = max(version, newest.get(order_id, 0))
        return Counter(newest.items())


def line_of(day: str, order: Seen) -> dict[str, Any]:
    """One version of an order: its amount is the version, and a later one was changed later."""
    order_id, version = order
    at = datetime.fromisoformat(day) + timedelta(minutes=order_id % 600)
    return event(order_id, at.isoformat(), amount=f"{version}.00", updated_at=(at + timedelta(days=version)).isoformat())


def plan_of(seed: int) -> Plan:
    """Return the plan of a seed."""
    dice = random.Random(seed)
    events: dict[str, list[Seen]] = {}
    exports: dict[str, list[list[Seen]]] = {}
    for number, day in enumerate(DAYS):
        orders = [(1000 * number + n, 1) for n in range(dice.randint(3, 12))]
        if day in HISTORY:
            changed = [(order, dice.randint(1, 4)) for order, _ in orders if dice.random() < 0.4]
            unknown = [(1000 * number + 500 + n, 1) for n in range(dice.randint(0, 3))]
            again = [order for order in changed + unknown if dice.random() < 0.3]
            events[day] = changed + unknown + again
            corrected = [(order, 2 if dice.random() < 0.3 else 1) for order, _ in orders]
            exports[day] = [orders, *([corrected] if dice.random() < 0.4 else [])]
        else:
            events[day] = orders
            if day in SEALED:
                whole = [(order, dice.randint(1, 2)) for order, _ in orders] + [(1000 * number + 700, 1)]
                exports[day] = [*([orders[: len(orders) // 2]] if dice.random() < 0.5 else []), whole]
    lines = [json.dumps(line_of(day, order)) for day, orders in events.items() for order in orders]
    wrong = [f"{{broken {n}" for n in range(dice.randint(1, 3))]
    wrong += [json.dumps(event(9_000 + n, "2024-01-06T18:00:00")) for n in range(dice.randint(0, 2))]
    lines += wrong
    dice.shuffle(lines)
    files: list[list[str]] = [[] for _ in range(dice.randint(3, 6))]
    for line in lines:
        dice.choice(files).append(line)
    write = [step for n in range(len(files)) for step in ("land", *(["write"] if n == 0 or dice.random() < 0.4 else []))]

    def launch(first: str, last: str) -> dict[str, Any]:
        return {"do": "launch", "first": first, "last": last, "only": dice.choice(("all", "missing")), "chunk": dice.choice((2, 3, 5))}

    steps: list[dict[str, Any]] = []
    for day, changes in exports.items():
        steps += [{"do": "export", "day": day, "number": n} for n in range(len(changes) - (day in SEALED))]
    early = len(steps)
    steps.append(launch(HISTORY[0], HISTORY[-1]))
    steps += [launch(DAYS[dice.randrange(2)], DAYS[dice.randint(2, 4)]) for _ in range(dice.randint(0, 1))]
    moves = [{"do": "move", "at": f"{SEALED[1]}T00:00:00+00:00"}, {"do": "move", "at": f"{LIVE}T00:00:00+00:00"}]
    for move in moves[dice.randint(0, 1) :]:
        steps.insert(dice.randint(early, len(steps)), move)
    kills = {
        "live": {dice.randint(1, 14): dice.choice((0, 0, dice.uniform(0.01, 0.4)))},
        "history": {dice.randint(1, 12): dice.choice((0, 0, dice.uniform(0.01, 0.4)))},
    }
    if dice.random() < 0.6:
        del kills[dice.choice(("live", "history"))]
    return Plan(files, len(wrong), events, exports, write, steps, launch(HISTORY[0], SEALED[-1]), dice.random() < 0.7, kills)


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
                self.drivers.start(1)


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    made = Drivers(tmp_path_factory.mktemp("drivers"))
    made.start(3)
    yield made
    made.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_anywhere_every_event_is_there_once(seed: int, drivers: Drivers, tmp_path: Path):
    """Two processes write one table, one of them live; wherever they are killed, no version has a key twice or loses one, and
    in the end the table is what was exported and what landed."""
    plan, shop = plan_of(seed), Shop(None, tmp_path)
    sides = {name: Side(name, shop, plan, drivers, Fate(dict(plan.kills.get(name, {})))) for name in ("live", "history")}
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
        said = [line for side in sides.values() for line in side.told if "overtaken" in line or "is tried again" in line]
        assert not said, "writers of different partitions were in each other's way"
    finally:
        for side in sides.values():
            killed = f"killed at {side.fate.killed}, of {len(side.fate.reached)} points"
            sys.stdout.write(f"\nseed {seed}, {side.name}: {killed}\n" + "".join(f"  {line}\n" for line in side.told))
            side.end()
    shutil.rmtree(tmp_path)


def check(shop: Shop, plan: Plan) -> None:
    """Hold every version against the one before it, and the last one against the plan."""
    path, known = str(shop.path), {day: dict[int, int]() for day in DAYS}
    newest = deltalake.DeltaTable(path).version()
    for version in range(newest + 1):
        found = contents(path, version)
        for day in DAYS:
            rows = found.get(day, Counter())
            keys = dict(rows)
            assert len({order for order, _ in rows}) == rows.total(), f"version {version}, {day}: a key twice in {sorted(rows.elements())}"
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


def live_receipts(path: Path) -> list[dict[str, Any]]:
    """Return what the commits of the live side say of themselves, read from the log's own files."""
    found: list[dict[str, Any]] = []
    for file in sorted((path / "_delta_log").glob("*.json")):
        for line in file.read_text(encoding="utf-8").splitlines():
            said = json.loads(line).get("commitInfo", {}).get("userMetadata")
            if said and '"backfill_assets_live"' in said:
                found.append(json.loads(said))
    return found
