"""What a version is brought up under: events that land, commands that are killed, and a reader who looks all the while."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake

from tests.support.killing import kill_group
from tests.support.live_shop import Shop, event

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
            return subprocess.Popen(
                [*how, *arguments, "--definitions", "versions_project"],
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stream(self, key: str) -> None:
        if key in self.streams:
            kill_group(self.streams[key])
        self.streams[key] = self.start("live", key)

    def kill_streams(self) -> None:
        for process in self.streams.values():
            kill_group(process)
        self.streams.clear()

    def run(self, *arguments: str, kills: int = 0, codes: Sequence[int] = (0,), **how: Any) -> int:
        """Run a command until it ends by itself, after it was killed so often; a stream is killed too and started again."""
        for _ in range(kills):
            process = self.start(*arguments, **how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self.dice.uniform(0.5, 16))
            if process.poll() is None:
                kill_group(process)
                self.killed += 1
            if self.streams and self.dice.random() < 0.5:
                self.stream(self.dice.choice(list(self.streams)))
        process = self.start(*arguments, **how)
        code = process.wait(300)
        assert code in codes, f"{arguments}: {code}\n" + (self.root / "log").read_text(errors="replace")[-5000:]
        return code


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
