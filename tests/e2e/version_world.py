"""What a version is brought up under: events that land, commands that are killed, and a reader who looks all the while."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc

from tests.support.killing import kill_group
from tests.support.live_shop import Shop, event

ORDERS, COUNTS = "bronze/orders", "silver/hourly_counts"
V2, COUNTS_V2 = f"{ORDERS}__v2", f"{COUNTS}__v2"
DEFINITIONS = """
from pyspark.sql import functions as F
from backfill_assets import TableSpec, build_lakehouse_table, lakehouse_definitions
from tests.live.test_version_of_a_stream import second_spec
from tests.support.live_shop import live_spec

FACTS = {"key_columns": ["hour"], "event_time": "hour", "grain": "daily", "start": "2024-01-02"}


def counts(orders):
    by_hour = orders.groupBy(F.date_trunc("hour", "ordered_at").alias("hour"))
    return by_hour.agg(F.countDistinct("order_id").alias("orders"))


def counts_of_berlin(orders):
    return counts(orders).withColumn("zone", F.lit("Europe/Berlin"))


orders = live_spec(
    live={"path": "events", "starts": "2024-02-01", "trigger_seconds": 0.2},
    source={"kind": "files", "path": "orders", "format": "parquet", "gaps": "allowed"},
)
second = second_spec()
first_counts = TableSpec(
    key="silver/hourly_counts", columns={"hour": "timestamp", "orders": "bigint"},
    source={"kind": "delta", "tables": ["bronze/orders"]}, **FACTS,
)
second_counts = TableSpec(
    key="silver/hourly_counts__v2", columns={"hour": "timestamp", "orders": "bigint", "zone": "string"},
    source={"kind": "delta", "tables": ["bronze/orders__v2"]}, time_zone="Europe/Berlin",
    version_of={"table": "silver/hourly_counts", "new": ["zone"]}, **FACTS,
)
defs = lakehouse_definitions(
    build_lakehouse_table(orders),
    build_lakehouse_table(second, inputs={"bronze/orders": orders}),
    build_lakehouse_table(first_counts, counts, inputs={"bronze/orders": orders}),
    build_lakehouse_table(
        second_counts, counts_of_berlin, inputs={"bronze/orders__v2": second, "silver/hourly_counts": first_counts}
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
"""A command that is run before the new version's boundary, which is the first of February in Berlin."""

EVENTS_A_SECOND = 50
COMMAND = str(Path(sys.executable).parent / "backfill-assets")
DAYS = ["2024-01-04", "2024-01-05", "2024-01-31", "2024-02-01", "2024-02-02"]
FENCES = {COUNTS: datetime(2024, 2, 1, tzinfo=UTC), COUNTS_V2: datetime(2024, 1, 31, 23, tzinfo=UTC)}
"""Until then orders are counted; those of the last hour in January are live for the second version only."""

AT_THE_BOUNDARY = ["2024-01-31T22:59:59.999999", "2024-01-31T23:00:00", "2024-01-31T23:00:00.000001"]


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
                at = f"{self.dice.choice(DAYS)}T{self.dice.choice([0, 12, 22]):02d}:59:59.999999"
                at = self.dice.choice(AT_THE_BOUNDARY) if self.dice.random() < 0.2 else at
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
    """Somebody who reads, again and again and without Spark, what is current, both tables from one look at the pointer.

    Args:
        is_quiet: Whether nothing is written: then the counts are those of the orders.
    """

    root: Path
    is_quiet: bool = True
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
                self.look()
            except BaseException as error:  # noqa: BLE001 (told by the test)
                self.failures.append(error)

    def look(self) -> None:
        """Read both tables, and see by what is in them that they belong together."""
        was_quiet, found = self.is_quiet, self.current()
        orders, counts = (read(self.root, found[name]) for name in (ORDERS, COUNTS))
        of_orders = {("decimal128(18, 2)", "amount"): 1, ("decimal128(20, 4)", "total"): 2}
        versions = {number for (kind, name), number in of_orders.items() if _type_of(orders, name) == kind}
        days = {str(day)[8:10] for day in orders["dt"].unique().to_pylist()}
        is_monthly, of_berlin = days == {"01"}, "zone" in counts.column_names
        assert (versions, is_monthly) == (({2}, True) if of_berlin else ({1}, False)), (found, days)
        if was_quiet and self.is_quiet:
            sealed = orders.filter(pc.less(orders["ordered_at"], pa.scalar(FENCES[found[COUNTS]])))
            assert sum(counts["orders"].to_pylist()) == len(sealed["order_id"].unique()), found
        self.seen.add((found[ORDERS], found[COUNTS]))

    def current(self) -> dict[str, str]:
        return current(self.root, ORDERS, COUNTS)


def current(root: Path, *names: str) -> dict[str, str]:
    """Return the key of the version that each name stands for, as anybody finds it who has delta-rs alone."""
    first = {name: name for name in names}
    if not (root / "_current/_delta_log/00000000000000000000.json").exists():
        return first
    rows = deltalake.DeltaTable(f"{root}/_current").to_pyarrow_table().to_pylist()
    return first | {row["name"]: row["key"] for row in rows}


def _type_of(table: pa.Table, name: str) -> str:
    return str(table.schema.field(name).type) if name in table.column_names else ""


def read(root: Path, key: str) -> pa.Table:
    """Return a table as delta-rs reads it."""
    return deltalake.DeltaTable(f"{root}/tables/{key}").to_pyarrow_table()


def newest_rows(root: Path, key: str, amount: str) -> dict[int, tuple[str, str]]:
    """Of each order in a table its newest row: when it was changed, and the amount."""
    found: dict[int, tuple[str, str]] = {}
    for row in read(root, key).to_pylist():
        seen = row["updated_at"].strftime("%Y-%m-%dT%H:%M:%SZ"), f"{row[amount]:.2f}"
        if row["order_id"] not in found or seen > found[row["order_id"]]:
            found[row["order_id"]] = seen
    return found


def orders_by_hour(root: Path, key: str) -> Counter[datetime]:
    """What a table of counts says."""
    return Counter({row["hour"]: row["orders"] for row in read(root, key).to_pylist()})


def as_it_should_be(events: Iterable[dict[str, Any]]) -> tuple[dict[int, tuple[str, str]], Counter[datetime]]:
    """Return what both versions are to hold of some orders: the newest row of each, and how many there are in each hour."""
    newest = {one["order_id"]: (one["updated_at"], one["amount"]) for one in events}
    at = {one["order_id"]: datetime.fromisoformat(one["ordered_at"]) for one in events}
    return newest, Counter(instant.replace(minute=0, second=0, microsecond=0) for instant in at.values())
