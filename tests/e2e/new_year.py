"""The turn of a year: events of all kinds that land without a pause, and a reader who notes what must not be seen."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
from deltalake.exceptions import TableNotFoundError

from tests.e2e.commands_running import Process
from tests.e2e.world import SCHEMA, World, shop_orders
from tests.support.shop import Row, json_line, multiset

DECEMBER = [f"2025-12-{day:02d}" for day in range(20, 29)]
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
    kinds: list[str] = field(
        default_factory=lambda: ["open", "open", "new year", "late change", "late order", "late again", "wrong"]
    )
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
                (
                    '{"order_id": 1, "customer',
                    "<html>502</html>",
                    '{"order_id": 2, "ordered_at": "2026-01-05T00:00:00"}',
                )
            )
        day = OPEN_DAY if kind == "open" else self.dice.choice(NEW_YEAR if kind == "new year" else LATE_DAYS)
        number = 50 + self.lines * 50 + self.files + self.dice.randint(0, 10**9) * 10**6
        (row,) = shop_orders(
            day, 1, order_id=number, ordered_at=datetime.fromisoformat(f"{day}T{self.dice.randint(0, 23):02d}:30:00Z")
        )
        if kind == "late change":
            (exported,) = self.dice.sample(shop_orders(day, EXPORTED), 1)
            row = {
                **exported,
                "status": "refunded",
                "updated_at": datetime(2026, 1, 6, tzinfo=UTC) + timedelta(microseconds=number),
            }
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
            lacking = {row["order_id"] for row in shop_orders(day, EXPORTED)} - {
                row["order_id"] for row in by_day.get(day, [])
            }
            if day in by_day and lacking:
                self.wrong.append(f"{at}: {day} lacks {len(lacking)} orders")


@dataclass
class Turn:
    """What goes on while commands run: events land, and somebody reads.

    Args:
        exports: What the export of each day says; a test that corrects a day says it here too.
        processes: Commands that were started; those that still run at the end are killed.
    """

    world: World
    landing: Landing
    reader: Reader
    exports: dict[str, list[Row]]
    processes: list[Process] = field(default_factory=list)
    landing_thread: threading.Thread | None = None

    def started(self, process: Process) -> Process:
        self.processes.append(process)
        return process

    def land_no_more(self) -> None:
        self.landing.ended.set()
        assert self.landing_thread is not None
        self.landing_thread.join()

    def check(self) -> None:
        """Every event and every exported order is there once, as it is newest; no reader saw anything else."""
        assert self.reader.wrong == []
        assert self.reader.reads > 5
        live = [row for day in (OPEN_DAY, *NEW_YEAR) if day not in self.exports for row in self.landing.landed_of(day)]
        expected = multiset(live, SCHEMA.names)
        for day, rows in self.exports.items():
            expected += newest(*rows, *self.landing.landed_of(day))
        found = self.world.content()
        assert found - expected == Counter(), "rows that nobody exported or landed, or that came twice"
        assert expected - found == Counter(), "rows that were lost"


@contextmanager
def turn_of_the_year(world: World, corrected: dict[str, list[Row]], dice: random.Random) -> Iterator[Turn]:
    """Export the days of history, and let events land and a reader read until the end of the block.

    Args:
        corrected: What days will be exported as later.
    """
    exports = {day: shop_orders(day, EXPORTED) for day in DECEMBER + LATE_DAYS}
    for day, rows in exports.items():
        world.export(day, rows)
    allowed = {
        day: [newest(*rows), *([newest(*corrected[day])] if day in corrected else [])] for day, rows in exports.items()
    }
    landing = Landing(world.lakehouse / "landing/order_events", dice)
    landing.land([landing.line("open")])
    turn = Turn(world, landing, Reader(world.path(), allowed), exports)
    threads = [threading.Thread(target=side.run, daemon=True) for side in (landing, turn.reader)]
    turn.landing_thread = threads[0]
    try:
        for thread in threads:
            thread.start()
        yield turn
    finally:
        landing.ended.set()
        turn.reader.ended.set()
        for thread in threads:
            thread.join()
        for process in turn.processes:
            process.kill()
