"""A week of the shop, as three would tell it: the truth, the old system's export, and the event stream. Knows no Spark.

An order is pending when it is made, paid two hours later, and a few are refunded on the last day. The export of an
instant has
what was known then. The stream began on 2025-12-30: it brings each later order once, when it is paid, and the refunds
of
earlier ones.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_assets.demo.orders import file_of, orders_of

FIRST_DAY, LAST_DAY = date(2025, 12, 25), date(2025, 12, 31)
STREAM_BEGAN = datetime(2025, 12, 30, tzinfo=UTC)
REFUNDED_AT = datetime(2025, 12, 31, 16, tzinfo=UTC)
NOW = datetime(2026, 1, 2, tzinfo=UTC)
UNTIL_PAID = timedelta(hours=2)
ORDERS_PER_DAY = 300
AT_MIDNIGHT = 12
"""Orders that are made at the first instant of each day, as subscriptions are that renew by themselves."""

COLUMNS = {
    "order_id": "bigint",
    "customer_id": "bigint",
    "ordered_at": "timestamp",
    "amount": "decimal(18,2)",
    "currency": "string",
    "status": "string",
    "updated_at": "timestamp",
}
KEY = "order_id"
_SCHEMA = pa.schema(
    {
        "order_id": pa.int64(),
        "customer_id": pa.int64(),
        "ordered_at": pa.timestamp("us", "UTC"),
        "amount": pa.decimal128(18, 2),
        "currency": pa.string(),
        "status": pa.string(),
        "updated_at": pa.timestamp("us", "UTC"),
    }
)

Order = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shop:
    """What happened.

    Args:
        histories: For each order, its versions from the oldest to the newest.
    """

    histories: list[list[Order]]

    @classmethod
    def of(cls, seed: int) -> Shop:
        """Make the week; the same seed makes the same."""
        days = [FIRST_DAY + timedelta(days=n) for n in range((LAST_DAY - FIRST_DAY).days + 1)]
        return cls(
            [
                _versions(order, number)
                for day in days
                for number, order in enumerate(orders_made(day, ORDERS_PER_DAY, seed))
            ]
        )

    def as_of(self, instant: datetime) -> list[Order]:
        """Return every order that was made before an instant, as it was known then."""
        known = ([version for version in versions if version["updated_at"] < instant] for versions in self.histories)
        return [versions[-1] for versions in known if versions]

    def events(self) -> list[Order]:
        """Return what the stream brings, in the order in which it happened."""
        live = [versions[1] for versions in self.histories if versions[0]["ordered_at"] >= STREAM_BEGAN]
        refunds = [versions[2] for versions in self.histories if len(versions) > 2]
        return sorted([*live, *refunds], key=lambda order: order["updated_at"])


def _versions(order: Order, number: int) -> list[Order]:
    """Return an order as it was at each time; of those from before the stream, one in thirty was refunded."""
    pending = {**order, "status": "pending", "updated_at": order["ordered_at"]}
    paid = {**order, "status": "paid", "updated_at": order["ordered_at"] + UNTIL_PAID}
    if order["ordered_at"] >= STREAM_BEGAN or number % 30:
        return [pending, paid]
    return [pending, paid, {**order, "status": "refunded", "amount": -order["amount"], "updated_at": REFUNDED_AT}]


def orders_made(day: date, orders_per_day: int, seed: int) -> list[Order]:
    """Return the orders of one day, the first of them at its first instant."""
    midnight = datetime.combine(day, time(), UTC)
    orders = orders_of(day, orders_per_day=orders_per_day, seed=seed).select(list(COLUMNS)).to_pylist()
    return [
        {**order, "amount": abs(order["amount"]), **({"ordered_at": midnight} if number < AT_MIDNIGHT else {})}
        for number, order in enumerate(orders)
    ]


def write_export(folder: Path, orders: Iterable[Order]) -> None:
    """Write orders as the old system exports them: a Parquet file a day."""
    by_day: dict[date, list[Order]] = {}
    for order in orders:
        by_day.setdefault(order["ordered_at"].date(), []).append(order)
    for day, made in by_day.items():
        file = file_of(folder, day)
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(made, schema=_SCHEMA), file)


def lines_of(orders: Iterable[Order]) -> str:
    """Return orders as lines of JSON, as events land and as the old system's service answers."""
    return "".join(json.dumps(order, default=_plain) + "\n" for order in orders)


def _plain(value: datetime | Decimal) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


# -- the truth, and how far a table is from it -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wrong:
    """Rows of a table that differ from the truth.

    Args:
        extra: Rows that are there beside the one that each order should have.
        lost: Orders without any row.
        old: Orders that have one row, with values that are no longer so.
    """

    extra: int
    lost: int
    old: int

    @property
    def rows(self) -> int:
        return self.extra + self.lost + self.old

    def to_dict(self) -> dict[str, int]:
        return {"rows": self.rows, **asdict(self)}


def wrong_rows(truth: Iterable[Order], table: Iterable[Mapping[str, Any]]) -> Wrong:
    """Compare a table with the truth as multisets, order by order.

    Args:
        table: Rows of `COLUMNS`, with timestamps as microseconds since 1970 and decimals as text.
    """
    should, has = _by_key(map(_comparable, truth)), _by_key(table)
    extra = lost = old = 0
    for key in should.keys() | has.keys():
        wanted, found = should.get(key, Counter()), has.get(key, Counter())
        extra += max(0, found.total() - wanted.total())
        lost += max(0, wanted.total() - found.total())
        old += min(found.total(), wanted.total()) - (found & wanted).total()
    return Wrong(extra, lost, old)


def _by_key(rows: Iterable[Mapping[str, Any]]) -> dict[int, Counter[tuple[Any, ...]]]:
    found: dict[int, Counter[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(row[KEY], Counter())[tuple(row[name] for name in COLUMNS)] += 1
    return found


def _comparable(order: Order) -> Order:
    return {name: _micros(value) if isinstance(value, datetime) else _text(value) for name, value in order.items()}


def _micros(instant: datetime) -> int:
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value
