"""TheWorldShop's event stream: orders as they are made, landing as small files of JSON lines at a settable rate.

Most are new orders of this moment. Some are late: changes of orders that the old system had exported, and orders of its
last
days that it never knew of. A few are not orders at all. A file lands whole, by a rename.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from backfill_assets.demo.orders import IDS_PER_DAY, orders_of
from backfill_assets.demo.place import LATE_DAYS

LATE, BROKEN = 0.02, 0.002
"""Shares of what lands."""

_BROKEN_LINES = (
    '{"order_id": 1, "customer_id"',
    '{"order_id": 2, "customer_id": 3, "ordered_at": null, "amount": 1, "currency": "EUR", "status": "paid"}',
    "<html>502 Bad Gateway</html>",
)
_NEVER_EXPORTED = IDS_PER_DAY - 1_000_000
"""Where a day's numbers begin that the old system never gave."""


@dataclass(slots=True)
class EventStream:
    """Makes events and lands them.

    Args:
        folder: Where they land.
        last_day: The last day that the old system exported.
        orders_per_day: As the export was made.
    """

    folder: Path
    last_day: date
    orders_per_day: int = 300
    seed: int = 2023
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    landed: int = field(default=0, init=False)
    _days: dict[date, list[dict[str, Any]]] = field(default_factory=dict[date, list[dict[str, Any]]], init=False)

    def run(self, *, rate: float, seconds: float | None = None, every_seconds: float = 1.0) -> Iterator[int]:
        """Land events at a rate, one file every so often, until the time is up; yields how many have landed.

        Args:
            rate: Events per second.
            seconds: How long; None for ever.
        """
        rng = np.random.default_rng()
        started = time.monotonic()
        self.folder.mkdir(parents=True, exist_ok=True)
        while seconds is None or time.monotonic() - started < seconds:
            due = int(rate * (time.monotonic() - started + every_seconds)) - self.landed
            if due > 0:
                self.land(self.events(due, rng))
                yield self.landed
            time.sleep(every_seconds)

    def land(self, lines: list[str]) -> Path:
        """Land lines as one file, by a rename: a reader never sees half of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.now():%Y%m%dT%H%M%S%f}.json"
        hidden = self.folder / f".{name}"
        hidden.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        hidden.rename(self.folder / name)
        self.landed += len(lines)
        return self.folder / name

    def events(self, count: int, rng: np.random.Generator) -> list[str]:
        """Return so many lines: new orders, late ones, broken ones."""
        now = self.now()
        today = self._orders(self.last_day)
        kinds = rng.random(count)
        lines: list[str] = []
        for place, kind in enumerate(kinds):
            if kind < BROKEN:
                lines.append(_BROKEN_LINES[int(rng.integers(len(_BROKEN_LINES)))])
            elif kind < LATE:
                lines.append(_line(self._late(now, rng)))
            else:
                at = now - timedelta(microseconds=count - place)
                number = int(at.timestamp() * 1_000_000)  # larger than any number the old system gave
                made = {"order_id": number, "ordered_at": at, "updated_at": at, "status": "paid"}
                lines.append(_line({**today[int(rng.integers(len(today)))], **made}))
        return lines

    def _late(self, now: datetime, rng: np.random.Generator) -> dict[str, Any]:
        """Return a change of an exported order, or an order of an exported day that the export lacks."""
        orders = self._orders(self.last_day - timedelta(days=int(rng.integers(LATE_DAYS))))
        order = orders[int(rng.integers(len(orders)))]
        changed = {**order, "updated_at": now, "status": "refunded", "amount": -abs(order["amount"])}
        if rng.random() < 0.5:
            return changed
        day = order["ordered_at"].date()
        micros = int(now.timestamp() * 1_000_000)
        return {
            **order,
            "order_id": day.toordinal() * IDS_PER_DAY + _NEVER_EXPORTED + micros % 1_000_000,
            "updated_at": now,
        }

    def _orders(self, day: date) -> list[dict[str, Any]]:
        if day not in self._days:
            self._days[day] = orders_of(day, orders_per_day=self.orders_per_day, seed=self.seed).to_pylist()
        return self._days[day]


def _line(order: dict[str, Any]) -> str:
    return json.dumps({name: _plain(value) for name, value in order.items()}, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value
