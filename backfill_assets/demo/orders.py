"""TheWorldShop's orders, as the old system exported them: one Parquet file a day, in folders by year, month and day.

Invented, but close to the real thing: seasons by hour and by weekday, gentle growth, refunds, currencies, names in many
scripts, a few values that nobody filled in. The same arguments give the same rows, and a day is the same whichever days
are written with it, so a test or a story can make exactly the days it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError

try:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise ConfigurationError(
        f"The demo's orders are made with numpy and pyarrow, and `{error.name}` is not installed.",
        state=NOTHING_WRITTEN,
        remedy="pip install 'backfill-assets[demo]'",
    ) from error

from backfill_assets.demo.customers import COUNTRIES, CUSTOMERS, customers_of

FILE_NAME = "orders.parquet"
COLUMNS = pa.schema(
    [
        pa.field("order_id", pa.int64(), nullable=False),
        pa.field("customer_id", pa.int64(), nullable=False),
        pa.field("customer_name", pa.string()),
        pa.field("country", pa.string()),
        pa.field("ordered_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("amount", pa.decimal128(18, 2), nullable=False),
        pa.field("currency", pa.string(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("updated_at", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
"""What the export has; the spec of `bronze/orders` has the same."""

_REPETITIVE = ["customer_name", "country", "currency", "status"]

IDS_PER_DAY = 10_000_000
"""Each day numbers its orders in a block of its own, so that no day has to know how many orders another has."""

MAX_ORDERS_PER_DAY = 1_000_000

_HOUR_WEIGHTS = (3, 2, 1, 1, 1, 2, 4, 7, 9, 10, 11, 12, 12, 11, 10, 11, 12, 14, 17, 20, 21, 17, 11, 6)
_WEEKDAY_FACTORS = (0.90, 0.86, 0.88, 0.92, 1.04, 1.24, 1.16)  # Monday first; they average 1
_GROWTH_PER_YEAR = 0.12
_GROWTH_IS_ONE_ON = date(2024, 7, 1)  # amid the reference years, whose average is then what was asked for
_NOISE = 0.03

_REFUNDED = 0.03
_NO_NAME = 0.004
_NO_COUNTRY = 0.003
_STATUSES = ("delivered", "shipped", "paid", "cancelled", "refunded")
_STATUS_SHARES = (0.86, 0.05, 0.03, 0.06)  # of what is not refunded
_LAST_CHANGE_DAYS = 9.0


@dataclass(frozen=True, slots=True)
class Written:
    """What was written.

    Args:
        files: One a day.
        rows: In all files.
        size_bytes: Of all files.
    """

    files: int
    rows: int
    size_bytes: int


def write_orders(
    folder: Path,
    *,
    first_day: date,
    days: int,
    orders_per_day: int,
    seed: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> Written:
    """Write one file for each day, `<folder>/YYYY/MM/DD/orders.parquet`.

    A file that is there already is replaced whole: a reader sees the old one or the new one.

    Args:
        folder: Made if it is not there.
        first_day: Day in UTC, included.
        days: How many days, from the first on.
        orders_per_day: What the years 2023 to 2025 average; weekends have more than weekdays, later years more than
            earlier ones.
        seed: Another seed gives another shop.
        on_progress: Called with the files written so far and the files in all, after each.

    Raises:
        ConfigurationError: A number is out of its range.
    """
    if days < 1 or not 1 <= orders_per_day <= MAX_ORDERS_PER_DAY or seed < 0:
        raise ConfigurationError(
            f"{days:,} days of {orders_per_day:,} orders with seed {seed} cannot be made.",
            state=NOTHING_WRITTEN,
            remedy=f"Ask for at least one day, for 1 to {MAX_ORDERS_PER_DAY:,} orders a day, and for a seed that is "
            "not negative.",
        )
    rows = size_bytes = 0
    for done in range(days):
        day = first_day + timedelta(days=done)
        orders = orders_of(day, orders_per_day=orders_per_day, seed=seed)
        size_bytes += write_file(orders, file_of(folder, day))
        rows += orders.num_rows
        if on_progress:
            on_progress(done + 1, days)
    return Written(days, rows, size_bytes)


def file_of(folder: Path, day: date) -> Path:
    """Return where the file of a day lies."""
    return folder / f"{day:%Y}" / f"{day:%m}" / f"{day:%d}" / FILE_NAME


def orders_of(day: date, *, orders_per_day: int, seed: int) -> pa.Table:
    """Return the orders of one day, by the time they were made.

    Args:
        day: Day in UTC.
        orders_per_day: As `write_orders` has it.
        seed: As `write_orders` has it.
    """
    rng = np.random.default_rng([seed, day.toordinal()])
    rows = _number_of_orders(day, orders_per_day, rng)
    customers = customers_of(seed)
    who = np.minimum(
        (rng.random(rows) ** 1.6 * CUSTOMERS).astype(np.int64), CUSTOMERS - 1
    )  # some come more often than others
    place = customers.countries[who]
    is_refund = rng.random(rows) < _REFUNDED
    ordered_at = _micros_of(day) + _micros_within_day(rng, rows)
    return pa.Table.from_arrays(
        [
            pa.array(day.toordinal() * IDS_PER_DAY + np.arange(rows, dtype=np.int64)),
            pa.array(who + 1),
            customers.names.take(pa.array(who, mask=rng.random(rows) < _NO_NAME)),
            _COUNTRY_CODES.take(pa.array(place, mask=rng.random(rows) < _NO_COUNTRY)),
            _instants(ordered_at),
            _decimals(_cents(rng, place, is_refund)),
            _CURRENCIES.take(pa.array(place)),
            _STATUS_NAMES.take(pa.array(_statuses(rng, is_refund))),
            _instants(ordered_at + _micros_until_changed(rng, rows)),
        ],
        schema=COLUMNS,
    )


def write_file(orders: pa.Table, file: Path) -> int:
    """Write one file whole or not at all; return its bytes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    pq.write_table(orders, part, use_dictionary=_REPETITIVE)  # pyright: ignore[reportArgumentType] (names of columns are allowed)
    size_bytes = part.stat().st_size
    part.replace(file)
    return size_bytes


# -- how the shop lives ------------------------------------------------------------------------------------------------


def _number_of_orders(day: date, orders_per_day: int, rng: np.random.Generator) -> int:
    """Return how many orders a day has; at least one."""
    years = (day - _GROWTH_IS_ONE_ON).days / 365.25
    factor = _WEEKDAY_FACTORS[day.weekday()] * (1 + _GROWTH_PER_YEAR) ** years * (1 + _NOISE * rng.standard_normal())
    return min(max(1, round(orders_per_day * factor)), IDS_PER_DAY)


def _micros_within_day(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Return sorted microseconds since midnight, more of them when people shop."""
    until_hour = np.concatenate([[0.0], np.cumsum(_HOUR_WEIGHTS)]) / sum(_HOUR_WEIGHTS)
    hours = np.interp(rng.random(rows), until_hour, np.arange(25))
    micros = (hours * 3_600_000_000).astype(np.int64)
    return np.sort(np.minimum(micros, 86_399_999_999))


def _micros_until_changed(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Return microseconds from the order to its last change; none for some."""
    days = rng.random(rows) ** 2 * _LAST_CHANGE_DAYS
    return np.where(rng.random(rows) < 0.1, 0, (days * 86_400_000_000).astype(np.int64))


def _cents(rng: np.random.Generator, place: np.ndarray, is_refund: np.ndarray) -> np.ndarray:
    """Return amounts in hundredths of each order's currency, in the steps in which it is charged."""
    euros = np.exp(3.6 + 0.8 * rng.standard_normal(len(place)))
    steps = np.maximum(np.rint(euros * _RATES[place] * 100 / _STEPS[place]), 1).astype(np.int64)
    return np.where(is_refund, -1, 1) * steps * _STEPS[place]


def _statuses(rng: np.random.Generator, is_refund: np.ndarray) -> np.ndarray:
    """Return indices into the names of the statuses."""
    drawn = np.searchsorted(np.cumsum(_STATUS_SHARES)[:-1], rng.random(len(is_refund)), side="right")
    return np.where(is_refund, _STATUSES.index("refunded"), drawn)


def _micros_of(day: date) -> int:
    """Return the microseconds from 1970 to the start of a day in UTC."""
    return (day - date(1970, 1, 1)).days * 86_400_000_000


def _instants(micros: np.ndarray) -> pa.TimestampArray:
    return pa.array(micros).cast(pa.timestamp("us", tz="UTC"))


def _decimals(cents: np.ndarray) -> pa.Decimal128Array:
    """Return hundredths as decimals: a decimal is stored as its unscaled value, 128 bits with the lower half first."""
    halves = np.empty((len(cents), 2), dtype="<i8")
    halves[:, 0] = cents
    halves[:, 1] = cents >> 63  # the sign fills the upper half
    return pa.Array.from_buffers(pa.decimal128(18, 2), len(cents), [None, pa.py_buffer(halves)])


_COUNTRY_CODES = pa.array([country.code for country in COUNTRIES])
_CURRENCIES = pa.array([country.currency for country in COUNTRIES])
_RATES = np.array([country.rate for country in COUNTRIES])
_STEPS = np.array([country.step for country in COUNTRIES], dtype=np.int64)
_STATUS_NAMES = pa.array(_STATUSES)
