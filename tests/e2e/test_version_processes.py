"""A version built, compared, cut over and taken back by its commands, each killed anywhere and repeated, beside two streams."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake
import pytest

from tests.support.live_shop import Shop, event
from tests.support.seeds import rounds

pytestmark = [pytest.mark.e2e, pytest.mark.prove]

ORDERS, COUNTS = "bronze/orders", "silver/daily_counts"
V2, COUNTS_V2 = f"{ORDERS}__v2", f"{COUNTS}__v2"
DEFINITIONS = """
from pyspark.sql import functions as F
from backfill_assets import TableSpec, build_lakehouse_table, lakehouse_definitions
from tests.live.test_version_of_a_stream import second_spec
from tests.support.live_shop import live_spec


def counts(orders):
    return orders.groupBy(F.to_date("ordered_at").alias("day")).agg(F.countDistinct("order_id").alias("orders"))


def counted(key, of, **more):
    return TableSpec(
        key=key, columns={"day": "date", "orders": "bigint"}, key_columns=["day"], event_time="day", grain="daily",
        start="2024-01-02", source={"kind": "delta", "tables": [of]}, **more,
    )


orders = live_spec()
second = second_spec(time_zone="UTC")
first_counts = counted("silver/daily_counts", "bronze/orders")
second_counts = counted("silver/daily_counts__v2", "bronze/orders__v2", version_of={"table": "silver/daily_counts"})
defs = lakehouse_definitions(
    build_lakehouse_table(orders),
    build_lakehouse_table(second, inputs={"bronze/orders": orders}),
    build_lakehouse_table(first_counts, counts, inputs={"bronze/orders": orders}),
    build_lakehouse_table(
        second_counts, counts, inputs={"bronze/orders__v2": second, "silver/daily_counts": first_counts}
    ),
)
"""
IN_JANUARY = """
import sys
from datetime import UTC, datetime
from backfill_assets.cli import main
from backfill_assets.lake import definition
definition.utc_now = lambda: datetime(2024, 1, 20, tzinfo=UTC)
main(sys.argv[1:])
"""
"""A command that is run before the new version's boundary, which is the first of February."""

EVENTS_A_SECOND = 50
COMMAND = str(Path(sys.executable).parent / "backfill-assets")
DAYS = ["2024-01-04", "2024-01-05", "2024-01-31", "2024-02-01", "2024-02-02"]


@dataclass
class Producer:
    """Lands events for both versions, some late, some twice, some of orders that are known, until it is stopped."""

    shop: Shop
    dice: random.Random
    sent: dict[int, dict[str, Any]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _number: int = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._stop.clear()
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            self.land(EVENTS_A_SECOND // 2)

    def land(self, count: int) -> None:
        """Land some events, for both."""
        events: list[dict[str, Any]] = []
        for _ in range(count):
            self._number += 1
            kind, stamp = (
                self.dice.random(),
                f"2024-03-01T{self._number // 3600:02d}:{self._number // 60 % 60:02d}:{self._number % 60:02d}",
            )
            if self.sent and kind < 0.3:
                known = self.sent[self.dice.choice(list(self.sent))]
                one = known if kind < 0.1 else {**known, "amount": f"{self._number}.50", "updated_at": f"{stamp}Z"}
            else:
                at = f"{self.dice.choice(DAYS)}T{self.dice.choice([0, 12, 23]):02d}:59:59.999999"
                one = event(1000 + self._number, at, amount=f"{self._number}.25", updated_at=stamp)
            self.sent[one["order_id"]] = one
            events.append(one)
        renamed = [{**{k: v for k, v in one.items() if k != "amount"}, "total": one["amount"]} for one in events]
        number = f"{self._number:08d}.json"
        for folder, lines in (("events", events), ("events_v2", renamed)):
            hidden = self.shop.root / "landing" / folder / f".{number}"
            hidden.write_text("".join(json.dumps(line) + "\n" for line in lines))
            hidden.rename(hidden.with_name(number))


@dataclass
class Commands:
    """The commands of one project, each killed now and then."""

    environment: Mapping[str, str]
    root: Path
    dice: random.Random
    streams: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    killed: int = 0

    def start(self, *arguments: str, before_the_boundary: bool = False) -> subprocess.Popen[bytes]:
        how = [sys.executable, "-c", IN_JANUARY] if before_the_boundary else [COMMAND]
        with (self.root / "log").open("ab") as log:
            log.write(f"\n--- {' '.join(arguments)}\n".encode())
            log.flush()
            command = [*how, *arguments, "--definitions", "versions_project"]
            return subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, start_new_session=True)

    def stream(self, key: str) -> None:
        if key in self.streams:
            kill(self.streams[key])
        self.streams[key] = self.start("live", key)

    def kill_streams(self) -> None:
        for process in self.streams.values():
            kill(process)
        self.streams.clear()

    def run(self, *arguments: str, kills: int = 0, codes: Sequence[int] = (0,), **how: Any) -> int:
        """Run a command until it ends by itself, after it was killed so often; a stream is killed too and started again."""
        for _ in range(kills):
            process = self.start(*arguments, **how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self.dice.uniform(0.5, 16))
            if process.poll() is None:
                kill(process)
                self.killed += 1
            if self.streams and self.dice.random() < 0.5:
                self.stream(self.dice.choice(list(self.streams)))
        process = self.start(*arguments, **how)
        code = process.wait(300)
        assert code in codes, f"{arguments}: {code}\n" + (self.root / "log").read_text(errors="replace")[-5000:]
        return code


def kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


@dataclass
class Reader:
    """Somebody who asks, again and again and without Spark, which tables are current."""

    root: Path
    seen: set[tuple[str, str]] = field(default_factory=set)
    failures: list[BaseException] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            try:
                found = self.current()
                self.seen.add((found[ORDERS], found[COUNTS]))
                path = f"{self.root}/tables/{found[ORDERS]}"
                assert deltalake.DeltaTable(path).to_pyarrow_table(columns=["order_id"]).num_rows
            except BaseException as error:  # noqa: BLE001 (told by the test)
                self.failures.append(error)

    def current(self) -> dict[str, str]:
        if not (self.root / "_current/_delta_log/00000000000000000000.json").exists():
            return {ORDERS: ORDERS, COUNTS: COUNTS}
        rows = deltalake.DeltaTable(f"{self.root}/_current").to_pyarrow_table().to_pylist()
        return {ORDERS: ORDERS, COUNTS: COUNTS} | {row["name"]: row["key"] for row in rows}


def newest_rows(root: Path, key: str, amount: str) -> dict[int, tuple[str, str]]:
    """Of each order in a table its newest row: the amount, and when it was changed."""
    found: dict[int, tuple[str, str]] = {}
    for row in deltalake.DeltaTable(f"{root}/tables/{key}").to_pyarrow_table().to_pylist():
        seen = row["updated_at"].strftime("%Y-%m-%dT%H:%M:%SZ"), f"{row[amount]:.2f}"
        if row["order_id"] not in found or seen > found[row["order_id"]]:
            found[row["order_id"]] = seen
    return found


@pytest.mark.parametrize("seeds", rounds(range(1)), ids=lambda seeds: f"from {seeds[0]}")
def test_a_version_under_fire(tmp_path: Path, seeds: list[int]):
    """Both versions end as what landed; readers see both tables of one version; back loses nothing that came since."""
    for seed in seeds:
        under_fire(tmp_path / str(seed), random.Random(seed))


def under_fire(place: Path, dice: random.Random) -> None:
    root = place / "lakehouse"
    (place / "home").mkdir(parents=True)
    (place / "versions_project.py").write_text(DEFINITIONS)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{place}{os.pathsep}{Path(__file__).parents[2]}",
        "LAKEHOUSE_ROOT": str(root),
        "DAGSTER_HOME": str(place / "home"),
    }
    shop = Shop(None, root)
    (root / "landing/events_v2").mkdir()
    exported = [event(n, f"2024-01-0{day}T01:00:00") for n, day in enumerate((2, 3, 3))]
    for day in ("2024-01-02", "2024-01-03"):
        shop.export(day, *(one for one in exported if one["ordered_at"].startswith(day)))
    producer, commands = Producer(shop, dice), Commands(environment, place, dice)
    try:
        launch(commands, ORDERS, "2024-01-02...2024-01-03")
        producer.land(10)
        commands.run("live", ORDERS, "--once")
        launch(commands, COUNTS, "2024-01-02...2024-01-03")
        commands.run("version", "make", ORDERS, kills=2, before_the_boundary=True)
        with streams(commands), producer.running():
            for step in ("copy", "compare", "copy"):
                commands.run("version", step, ORDERS, kills=1, codes=(0, 1))
        in_step(commands)
        assert newest_rows(root, V2, "total") == newest_rows(root, ORDERS, "amount")
        assert set(producer.sent) <= set(newest_rows(root, ORDERS, "amount"))

        reader = Reader(root)
        with reader.running():
            commands.run("version", "cutover", ORDERS, kills=3)
            assert reader.current() == {ORDERS: V2, COUNTS: COUNTS_V2}
            with streams(commands), producer.running():
                time.sleep(15)
            in_step(commands)
            commands.run("version", "rollback", ORDERS, kills=3)
            assert reader.current() == {ORDERS: ORDERS, COUNTS: COUNTS}
        assert not reader.failures, reader.failures[0]
        assert reader.seen == {(ORDERS, COUNTS), (V2, COUNTS_V2)}
        found = newest_rows(root, ORDERS, "amount")
        assert {key: found[key][0] for key in producer.sent} == {
            k: one["updated_at"] for k, one in producer.sent.items()
        }
        assert newest_rows(root, V2, "total") == found
        assert commands.killed >= 4
    finally:
        commands.kill_streams()


@contextlib.contextmanager
def streams(commands: Commands) -> Iterator[None]:
    """Let both streams be written until the end of the block, where they are killed."""
    for key in (ORDERS, V2):
        commands.stream(key)
    yield
    commands.kill_streams()


def launch(commands: Commands, key: str, days: str) -> None:
    plan = str(commands.root / "plan.json")
    commands.run("plan", key, "--partition-range", days, "--only", "missing", "-o", plan)
    commands.run("apply", plan)


def in_step(commands: Commands) -> None:
    """Let both streams take all that has landed, and what is made of them be made again."""
    for key in (ORDERS, V2):
        commands.run("live", key, "--once")
    launch(commands, COUNTS, "2024-01-02...2024-02-02")
    commands.run("version", "copy", ORDERS)
