"""The tables of `tests/support/launching.py`, with a transform in which each order of a slow customer takes a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backfill_assets.assets.factory import build_lakehouse_table
from backfill_assets.assets.lakehouse import lakehouse_definitions
from tests.support.launching import ORDERS, TOTALS_SPEC, daily_totals
from tests.support.shop import orders_spec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SLOW = "slow"


def slow_totals(orders: DataFrame) -> DataFrame:
    """Return one row a day."""
    from pyspark.sql import functions as F

    nap = F.when(F.col("customer") == SLOW, F.expr("reflect('java.lang.Thread', 'sleep', 1000L)"))
    amount = F.col("amount") + F.coalesce(F.length(nap) * 0, F.lit(0))
    return daily_totals(orders.select("ordered_at", amount.alias("amount")))


defs = lakehouse_definitions(
    build_lakehouse_table(orders_spec()),
    build_lakehouse_table(TOTALS_SPEC, slow_totals, inputs={ORDERS: orders_spec()}),
)
