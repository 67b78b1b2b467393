"""The shop's own database: its customers, who did what, and clients that do not stop changing them."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from backfill_assets.demo.customers import COUNTRIES, CUSTOMERS, customers_of

if TYPE_CHECKING:
    import psycopg

FIRST_DAY = date(2025, 1, 1)
"""When the first customer has signed up: `start` of the table in `defs/bronze/customers`."""

TABLES = """
CREATE TABLE customers (
  customer_id bigint PRIMARY KEY, name text NOT NULL, email text, country char(2), balance numeric(18,2) NOT NULL,
  is_subscribed boolean NOT NULL, signed_up_at timestamptz NOT NULL
);
CREATE INDEX ON customers (signed_up_at);
ALTER TABLE customers REPLICA IDENTITY FULL;
CREATE TABLE audit_log (
  entry_id bigint PRIMARY KEY, actor text NOT NULL, action text NOT NULL, customer_id bigint,
  happened_at timestamptz NOT NULL
);
CREATE INDEX ON audit_log (happened_at);
ALTER TABLE audit_log REPLICA IDENTITY FULL;
"""
RECENT = 600
"""Customers who signed up so lately, about, are those who change most."""

_STAFF = ("amara", "bela", "chidi", "web shop", "billing")


def make_tables(address: str, customers: int, seed: int, now_utc: datetime) -> None:
    """Make both tables, with customers since `FIRST_DAY` and one entry for each tenth of them."""
    import psycopg

    with psycopg.connect(address) as connection:
        connection.execute(TABLES)
        with connection.cursor().copy("COPY customers FROM STDIN") as copy:
            for row in _customers(customers, seed, now_utc):
                copy.write_row(row)
        connection.execute(
            "INSERT INTO audit_log SELECT row_number() OVER (ORDER BY customer_id), 'web shop', 'signed up', "
            "customer_id, signed_up_at FROM customers WHERE customer_id % 10 = 0 AND signed_up_at < current_date"
        )
        connection.execute("ANALYZE")


def _customers(count: int, seed: int, now_utc: datetime) -> Iterator[Sequence[Any]]:
    """Yield customers, more each month, in the order in which they signed up."""
    rng, known = np.random.default_rng(seed), customers_of(seed)
    since = datetime.combine(FIRST_DAY, datetime.min.time(), UTC)
    days = max((now_utc - since) / timedelta(days=1), 1.0)
    steady, growing = rng.random(count), np.sqrt(rng.random(count))
    signed_up = np.sort(days * np.where(rng.random(count) < 0.4, steady, growing))
    balances = rng.gamma(1.2, 30, count).round(2)
    for number, (day, balance) in enumerate(zip(signed_up.tolist(), balances.tolist(), strict=True), start=1):
        yield _customer(number, known, f"{balance:.2f}", since + timedelta(days=day))


def _customer(number: int, known: Any, balance: str, signed_up: datetime) -> Sequence[Any]:
    place = (number - 1) % CUSTOMERS
    name, country = known.names[place].as_py(), COUNTRIES[int(known.countries[place])].code
    return number, name, f"customer{number}@example.com", country, balance, number % 3 > 0, signed_up


# -- clients -----------------------------------------------------------------------------------------------------------


class Clients:
    """Whoever uses the shop: signs up, pays, has a day of sign-up corrected, deletes an account. A thread.

    Each does what it does together with its entry in the audit log, in one transaction.

    Args:
        rate: Transactions a second.
    """

    def __init__(self, address: str, seed: int, rate: float) -> None:
        self.done: Counter[str] = Counter()
        self.failure = ""
        self._address, self._rate, self._seed = address, rate, seed
        self._dice, self._ended = random.Random(seed), threading.Event()  # noqa: S311 (nothing secret)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the transaction at hand; a second time does nothing."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        import psycopg

        try:
            with psycopg.connect(self._address, autocommit=True) as connection:
                newest, entry = (self._largest(connection, *of) for of in _KEYS)
                began = time.monotonic()
                while not self._ended.wait(max(0.0, began + self.done.total() / self._rate - time.monotonic())):
                    entry += 1
                    newest = self._transaction(connection, newest, entry)
        except psycopg.Error as error:
            self.failure = f"{type(error).__name__}: {error}"

    def _largest(self, connection: psycopg.Connection, table: str, column: str) -> int:
        found = connection.execute(f"SELECT coalesce(max({column}), 0) FROM {table}".encode()).fetchone()  # noqa: S608 (our own names)
        return found[0] if found else 0

    def _transaction(self, connection: psycopg.Connection, newest: int, entry: int) -> int:
        """Do one thing; return the number of the newest customer."""
        (action,) = self._dice.choices(list(_STATEMENTS), weights=[30, 45, 15, 10])
        near = newest - int(self._dice.expovariate(1 / RECENT))
        facts: dict[str, Any] = {
            "near": near if near > 0 and self._dice.random() > 0.02 else self._dice.randrange(1, newest + 1),
            "amount": f"{self._dice.uniform(-40, 60):.2f}",
            "days": self._dice.randrange(-12, 13),
            "first": FIRST_DAY,
        }
        with connection.transaction():
            if action == "signed up":
                newest += 1
                row = _customer(newest, customers_of(self._seed), "0.00", datetime.now(UTC))
                connection.execute("INSERT INTO customers VALUES (%s, %s, %s, %s, %s, %s, %s)", row)
                touched: Any = (newest,)
            else:
                touched = connection.execute(_STATEMENTS[action].encode(), facts).fetchone()
            values = (entry, self._dice.choice(_STAFF), action, touched[0] if touched else None)
            connection.execute("INSERT INTO audit_log VALUES (%s, %s, %s, %s, clock_timestamp())", values)
        self.done[action] += 1
        return newest


_KEYS = (("customers", "customer_id"), ("audit_log", "entry_id"))
_ONE = "(SELECT customer_id FROM customers WHERE customer_id <= %(near)s ORDER BY 1 DESC LIMIT 1) RETURNING customer_id"
_STATEMENTS = {
    "signed up": "",
    "paid": f"UPDATE customers SET balance = balance + %(amount)s::numeric WHERE customer_id = {_ONE}",  # noqa: S608 (our own)
    "corrected": "UPDATE customers SET signed_up_at = least(now(), greatest(%(first)s::date, "  # noqa: S608 (our own)
    f"signed_up_at + %(days)s * interval '1 day')) WHERE customer_id = {_ONE}",
    "deleted": f"DELETE FROM customers WHERE customer_id = {_ONE}",  # noqa: S608 (our own)
}
"""What clients do, as they call it in the audit log."""


# -- both sides, row for row -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """How many rows there are, and a digest of all their values: equal for equal rows in whatever order."""

    count: int
    digest: str

    @classmethod
    def of(cls, rows: Iterable[Sequence[Any]]) -> Rows:
        texts = sorted("\x1f".join("\x00" if value is None else str(value) for value in row) for row in rows)
        return cls(len(texts), hashlib.sha256("\x1e".join(texts).encode()).hexdigest()[:12])

    def __str__(self) -> str:
        return f"{self.count:,} rows, digest {self.digest}"


def in_database(address: str, table: str, where: str = "true") -> Rows:
    """Return what a table of the database has now; instants are taken as microseconds."""
    import psycopg

    with psycopg.connect(address) as connection:
        cursor = connection.execute(f"SELECT * FROM {table} WHERE {where}".encode())  # noqa: S608 (our own names)
        return Rows.of(map(_plain, cursor.fetchall()))


def in_lakehouse(folder: Path, partition_column: str = "dt") -> Rows:
    """Return what a Delta table has now, read without Spark; none if nobody has made it yet."""
    import deltalake

    if not deltalake.DeltaTable.is_deltatable(str(folder)):
        return Rows.of(())
    found = deltalake.DeltaTable(str(folder)).to_pyarrow_table().drop_columns([partition_column])
    return Rows.of(map(_plain, zip(*(column.to_pylist() for column in found.columns), strict=True)))


def _plain(row: Iterable[Any]) -> list[Any]:
    return [_micros(value) if isinstance(value, datetime) else value for value in row]


def _micros(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
