"""The shop's orders: the same on every call, as the spec says, and alive enough to show what goes wrong."""

from __future__ import annotations

import importlib.util
import sys
import unicodedata
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

import backfill_assets
from backfill_assets.core.spec.columns import Column
from backfill_assets.demo import orders as orders_module
from backfill_assets.demo.orders import FILE_NAME, file_of, orders_of, write_orders
from backfill_assets.errors import ConfigurationError
from tests.demo.shop import MONDAY, digest_of

TWO_WEEKS = [MONDAY + timedelta(days=n) for n in range(14)]  # the leap day is among them
SPEC = Path(backfill_assets.__file__).parent / "defs" / "bronze" / "orders" / "defs.yaml"


@pytest.fixture(scope="module")
def landing(tmp_path_factory):
    folder = tmp_path_factory.mktemp("orders")
    write_orders(folder, first_day=MONDAY, days=14, orders_per_day=400, seed=7)
    return folder


@pytest.fixture(scope="module")
def orders(landing):
    return pa.concat_tables(pq.read_table(file_of(landing, day), partitioning=None) for day in TWO_WEEKS)


def arrow_type_of(column):
    plain = {
        "bigint": pa.int64(),
        "string": pa.string(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "decimal(18,2)": pa.decimal128(18, 2),
    }
    return plain[column.type]


# -- the same on every call --------------------------------------------------------------------------------------------


def test_the_same_arguments_write_the_same_bytes(landing, tmp_path):
    """Written again elsewhere, every file is equal to the byte."""
    write_orders(tmp_path, first_day=MONDAY, days=14, orders_per_day=400, seed=7)
    assert digest_of(tmp_path) == digest_of(landing)


def test_a_day_does_not_depend_on_the_others(landing, tmp_path):
    """Days written one by one, last first, equal the same days written in one call."""
    for day in reversed(TWO_WEEKS):
        write_orders(tmp_path, first_day=day, days=1, orders_per_day=400, seed=7)
    assert digest_of(tmp_path) == digest_of(landing)


def test_another_seed_is_another_shop():
    """No order of one seed equals that of another."""
    one, other = (orders_of(MONDAY, orders_per_day=50, seed=seed) for seed in (1, 2))
    assert not set(one["ordered_at"].to_pylist()) & set(other["ordered_at"].to_pylist())


def test_progress_and_result_tell_what_was_written(tmp_path):
    """Progress is told after each file; the result counts what lies on the disk."""
    told = []
    written = write_orders(
        tmp_path,
        first_day=MONDAY,
        days=3,
        orders_per_day=20,
        seed=1,
        on_progress=lambda done, of: told.append((done, of)),
    )
    files = [f for f in tmp_path.rglob("*") if f.is_file()]
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert written.files == len(files) == 3
    assert written.rows == sum(pq.read_metadata(f).num_rows for f in files)
    assert written.size_bytes == sum(f.stat().st_size for f in files)


# -- as the spec says --------------------------------------------------------------------------------------------------


def test_folders_are_year_month_day(landing):
    """One file a day, in a folder by year, month and day, and nothing else."""
    expected = {f"{day:%Y/%m/%d}/{FILE_NAME}" for day in TWO_WEEKS}
    assert {f.relative_to(landing).as_posix() for f in landing.rglob("*") if f.is_file()} == expected


def test_columns_and_types_are_those_of_the_spec(landing):
    """Names, order, types and nullability are what the table's YAML says."""
    columns = yaml.safe_load(SPEC.read_text())["attributes"]["columns"]
    expected = [
        pa.field(name, arrow_type_of(column), nullable=column.nullable)
        for name, column in ((name, Column.model_validate(text)) for name, text in columns.items())
    ]
    for day in TWO_WEEKS:
        assert pq.read_schema(file_of(landing, day)).remove_metadata() == pa.schema(expected)


def test_nulls_are_only_where_the_spec_allows_them_and_there_are_some(orders):
    """A few customers gave no name or no country; every other value is there."""
    nulls = {name: orders[name].null_count for name in orders.column_names}
    assert 0 < nulls.pop("customer_name") < 0.02 * len(orders)
    assert 0 < nulls.pop("country") < 0.02 * len(orders)
    assert set(nulls.values()) == {0}


def test_every_order_lies_in_the_day_of_its_folder(landing):
    """Both ends of the UTC day count: midnight belongs to the day that starts."""
    for day in TWO_WEEKS:
        ordered_at = pq.read_table(file_of(landing, day), partitioning=None)["ordered_at"].to_pylist()
        start_utc = datetime.combine(day, time(), UTC)
        assert all(start_utc <= instant < start_utc + timedelta(days=1) for instant in ordered_at)


def test_ids_are_unique_over_all_days(orders):
    """No two orders have the same number."""
    assert pc.count_distinct(orders["order_id"]).as_py() == len(orders)


def test_no_order_changed_before_it_was_made(orders):
    """`updated_at` is never before `ordered_at`, and mostly after it."""
    assert pc.all(pc.greater_equal(orders["updated_at"], orders["ordered_at"])).as_py()
    assert pc.sum(pc.greater(orders["updated_at"], orders["ordered_at"])).as_py() > len(orders) / 2


# -- alive -------------------------------------------------------------------------------------------------------------


def test_weekends_have_more_orders_than_weekdays(orders):
    """The weekly season: each Saturday and Sunday has more than any day from Monday to Thursday."""
    per_day = Counter(instant.date() for instant in orders["ordered_at"].to_pylist())
    weekend = [n for day, n in per_day.items() if day.weekday() >= 5]
    working = [n for day, n in per_day.items() if day.weekday() <= 3]
    assert min(weekend) > max(working)


def test_evenings_have_more_orders_than_nights(orders):
    """The daily season: people sleep."""
    per_hour = Counter(instant.hour for instant in orders["ordered_at"].to_pylist())
    assert sum(per_hour[h] for h in (18, 19, 20)) > 5 * sum(per_hour[h] for h in (1, 2, 3)) > 0


def test_each_year_has_more_orders_than_the_one_before():
    """Growth: the same four weeks, two years apart."""
    early, late = (
        sum(orders_of(first + timedelta(days=n), orders_per_day=200, seed=7).num_rows for n in range(28))
        for first in (date(2023, 3, 6), date(2025, 3, 3))
    )
    assert 1.1 < late / early < 1.5


def test_orders_per_day_is_what_the_reference_years_average():
    """2023 to 2025 have about as many orders as were asked for."""
    days = [date(2023, 1, 1) + timedelta(days=n) for n in range(0, 1_096, 8)]  # steps over every weekday
    rows = [orders_of(day, orders_per_day=100, seed=7).num_rows for day in days]
    assert sum(rows) / len(rows) == pytest.approx(100, rel=0.03)


def test_refunds_are_negative_and_nothing_else_is(orders):
    """A few per cent are refunds; no amount is zero."""
    is_negative = [amount < 0 for amount in orders["amount"].to_pylist()]
    assert is_negative == [status == "refunded" for status in orders["status"].to_pylist()]
    assert 0.01 < sum(is_negative) / len(orders) < 0.06
    assert Decimal(0) not in orders["amount"].to_pylist()


def test_a_country_has_one_currency_and_a_currency_its_steps(orders):
    """Germans pay in euros; yen have no hundredths."""
    pairs = {
        (c, m)
        for c, m in zip(orders["country"].to_pylist(), orders["currency"].to_pylist(), strict=True)
        if c is not None
    }
    assert len({country for country, _ in pairs}) == len(pairs) > 10
    assert {("DE", "EUR"), ("FR", "EUR"), ("GB", "GBP"), ("JP", "JPY")} <= pairs
    yen = [a for a, c in zip(orders["amount"].to_pylist(), orders["currency"].to_pylist(), strict=True) if c == "JPY"]
    assert yen
    assert all(amount == amount.to_integral_value() for amount in yen)


def test_a_customer_keeps_name_and_country(orders):
    """Whoever orders twice has the same name and the same country."""
    seen = {}
    for number, name, country in zip(
        *(orders[c].to_pylist() for c in ("customer_id", "customer_name", "country")), strict=True
    ):
        if name is not None and country is not None:
            assert seen.setdefault(number, (name, country)) == (name, country)
    assert len(seen) < len(orders)


def test_names_are_in_many_scripts(orders):
    """Latin with marks, Greek, Cyrillic, right-to-left, Indic and East Asian names, and one character beyond 16 bits."""
    text = "".join(name for name in orders["customer_name"].to_pylist() if name)
    scripts = {unicodedata.name(letter).split()[0] for letter in set(text) if letter.isalpha()}
    assert {"LATIN", "GREEK", "CYRILLIC", "ARABIC", "HEBREW", "DEVANAGARI", "THAI", "CJK", "HANGUL"} <= scripts
    assert any(ord(letter) > 0xFFFF for letter in text)


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"days": 0}, {"orders_per_day": 0}, {"orders_per_day": 1_000_001}, {"seed": -1}])
def test_numbers_out_of_range_are_refused(tmp_path, wrong):
    """Before any file is written."""
    with pytest.raises(ConfigurationError, match=r"cannot be made\. Nothing was written\. Ask for "):
        write_orders(tmp_path, **{"first_day": MONDAY, "days": 1, "orders_per_day": 10, "seed": 1, **wrong})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("missing", ["numpy", "pyarrow"])
def test_a_machine_without_the_demo_extra_is_told_how_to_get_it(monkeypatch, missing):
    """The error names the package and the command."""
    monkeypatch.setitem(sys.modules, missing, None)
    spec = importlib.util.spec_from_file_location("orders_again", orders_module.__file__)
    with pytest.raises(
        ConfigurationError, match=rf"`{missing}` is not installed.*pip install 'backfill-assets\[demo\]'"
    ):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
