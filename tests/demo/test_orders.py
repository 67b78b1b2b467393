"""The shop's orders: the same on every call, as the spec says, and alive enough to show what goes wrong."""

from __future__ import annotations

import importlib.util
import sys
import unicodedata
from datetime import UTC, datetime, time, timedelta
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


# -- alive -------------------------------------------------------------------------------------------------------------


def test_refunds_are_negative_and_nothing_else_is(orders):
    """A few per cent are refunds; no amount is zero."""
    is_negative = [amount < 0 for amount in orders["amount"].to_pylist()]
    assert is_negative == [status == "refunded" for status in orders["status"].to_pylist()]
    assert 0.01 < sum(is_negative) / len(orders) < 0.06
    assert Decimal(0) not in orders["amount"].to_pylist()


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
