"""The tables of the shop that are made of others, as they are shipped: sums of days become sums of months."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from backfill_assets.assets.factory import tables_of
from backfill_assets.core.spec.tables import TablesSpec
from backfill_assets.core.state.receipts import PartitionReceipt
from backfill_assets.core.state.tallies import EMPTY
from backfill_assets.definitions import defs
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.tables import TablesSource
from tests.support.shop import Row, frame_of, launch, multiset, published_keys, receipt_for, refusals, rows_in


def sales(first: date, days: int) -> list[Row]:
    """Two countries and two currencies, of some days; a day without sales between."""
    return [
        {
            "sales_date": first + timedelta(days=day),
            "country": country,
            "currency": currency,
            "orders": day + 1,
            "refunds": day % 2,
            "customers": 1,
            "revenue": Decimal(f"{day}.{place + 1:02}") - 3,
        }
        for day in range(days)
        if day != 5
        for place, (country, currency) in enumerate((("DE", "EUR"), ("CH", "CHF"), ("CH", "EUR")))
    ]


def by_month(rows: list[Row]) -> list[Row]:
    """What each month should have, summed here."""
    found: dict[tuple[date, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        found[row["sales_date"].replace(day=1), row["country"], row["currency"]].append(row)
    return [
        {"month": month, "country": country, "currency": currency}
        | {name: sum(row[name] for row in group) for name in ("orders", "refunds", "revenue")}
        for (month, country, currency), group in found.items()
    ]


@pytest.mark.prove
def test_months_of_revenue_are_sums_of_their_days(spark, tmp_path):
    """`gold/monthly_revenue`, as it is shipped: each month, country and currency is the sum of its days; a month that has not ended waits."""
    tables, _ = tables_of(defs(None))
    days, months = tables["silver/daily_sales"].spec, tables["gold/monthly_revenue"]
    silver = LakeTable(spark, days, str(tmp_path / "silver"))
    silver.create()
    rows = sales(date(2024, 1, 1), 31 + 29 + 10)
    named = days.grid.until(datetime(2024, 3, 11, tzinfo=UTC))
    named = [day for day in named if day.key >= "2024-01-01"]
    frame = frame_of(spark, days, rows)
    receipts = {p.key: PartitionReceipt.of(EMPTY, fingerprint="f", superseded_rows=0) for p in named}
    from backfill_assets.core.history.staged_rows import StagedChunk

    silver.overwrite(
        StagedChunk(frame, {}, {}, None, lambda: None), named, receipt_for(silver, named, "r1", partitions=receipts)
    )
    gold = LakeTable(spark, months.spec, str(tmp_path / "gold"))
    gold.create()
    assert isinstance(months.spec.source, TablesSpec)
    assert months.transform is not None
    source = TablesSource(months.spec, months.spec.source, [silver], months.transform())

    outcomes = launch(gold, source, months.spec.grid.between("2024-01-01", "2024-03-01"))

    assert (published_keys(outcomes), list(refusals(outcomes))) == (["2024-01-01", "2024-02-01"], [])
    whole = [row for row in rows if row["sales_date"] < date(2024, 3, 1)]
    columns = list(months.spec.columns)
    assert multiset(rows_in(gold.path), columns) == multiset(by_month(whole), columns)
