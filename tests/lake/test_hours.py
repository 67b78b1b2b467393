"""Hourly tables: hours of the local clock, kept as texts in UTC, overwritten and read back like days."""

from __future__ import annotations

from datetime import UTC, timedelta
from decimal import Decimal

import pytest

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.calendar.windows import Window
from backfill_assets.core.history.reconcile import reconcile
from backfill_assets.core.spec.tables import TablesSpec
from backfill_assets.core.state.receipts import PartitionReceipt
from backfill_assets.core.state.tallies import EMPTY
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.tables import TablesSource
from tests.support.shop import (
    Row,
    content,
    files_by_partition,
    frame_of,
    launch,
    multiset,
    orders_spec,
    published_keys,
    receipt_for,
    rows_in,
)

DAYS = {
    "Europe/Berlin": ["2024-03-31", "2024-10-27"],
    "Asia/Kolkata": ["2024-01-01"],
}


def every_ten_minutes(window: Window) -> list[Row]:
    """Orders of a window: one every ten minutes, and one a microsecond before its end."""
    count = int((window.end_utc - window.start_utc) / timedelta(minutes=10))
    instants = [window.start_utc + timedelta(minutes=10 * i) for i in range(count)] + [
        window.end_utc - timedelta(microseconds=1)
    ]
    seconds = [int(instant.timestamp()) for instant in instants]
    return [
        {"order_id": s * 2 + (i == count), "customer": "Ada", "amount": Decimal("1.25"), "ordered_at": instant}
        for i, (s, instant) in enumerate(zip(seconds, instants, strict=True))
    ]


def publish(table: LakeTable, partitions: list[Partition], rows: list[Row]) -> None:
    """Put rows into partitions of a table as a launch would, with receipts."""
    scan = table.stage(_staged(table, rows))
    receipts = {
        p.key: PartitionReceipt.of(scan.tallies.get(p.key, EMPTY), fingerprint=str(len(rows)), superseded_rows=0)
        for p in partitions
    }
    table.overwrite(scan, partitions, receipt_for(table, partitions, f"r{table.version()}", partitions=receipts))
    scan.release()


def _staged(table: LakeTable, rows: list[Row]):
    from backfill_assets.core.history.ports import Scan

    return Scan(frame_of(table.spark, table.spec, rows, partitioned=False), {"kind": "test"}, {})


@pytest.mark.prove
@pytest.mark.parametrize("zone", DAYS)
def test_the_hours_of_a_day(spark, tmp_path, zone):
    """A day's hours, odd days too, hold exactly the day's rows, whatever the chunks; one hour is replaced, the others stay as they are."""
    days = LakeTable(spark, orders_spec(time_zone=zone), str(tmp_path / "days"))
    days.create()
    whole = [days.spec.grid.partition(day) for day in DAYS[zone]]
    rows = [row for day in whole for row in every_ten_minutes(day.window)]
    publish(days, whole, rows)
    spec = orders_spec(
        key="silver/hours", grain="hourly", time_zone=zone, source={"kind": "delta", "tables": ["bronze/orders"]}
    )
    assert isinstance(spec.source, TablesSpec)
    table = LakeTable(spark, spec, str(tmp_path / "hours"))
    table.create()
    hours = [hour for day in whole for hour in spec.grid.covering(day.window)]

    for size in (None, 20):
        assert published_keys(
            launch(table, TablesSource(spec, spec.source, [days]), hours, max_partitions_per_chunk=size)
        ) == [h.key for h in hours]
        assert content(table.path) == multiset(rows)
    kept = {str(hour.value): hour.window for hour in hours}
    for row in rows_in(table.path):
        assert kept[row["dt"]].contains(
            row["ordered_at"].replace(tzinfo=UTC) if row["ordered_at"].tzinfo is None else row["ordered_at"]
        )
    assert {key: p.partition.rows for key, p in table.published().items()} == {
        h.key: 6 + (h.window.end_utc == d.window.end_utc) for d in whole for h in spec.grid.covering(d.window)
    }

    changed = [{**row, "customer": "Grace"} if whole[0].window.contains(row["ordered_at"]) else row for row in rows]
    publish(days, whole, changed)
    before = files_by_partition(table.path)
    assert published_keys(launch(table, TablesSource(spec, spec.source, [days]), hours[2:3])) == [hours[2].key]
    after = files_by_partition(table.path)
    assert {value for value in after if after[value] != before[value]} == {hours[2].value}
    compared = {
        c.partition.key: c.passed for c in reconcile(spec, hours[:5], TablesSource(spec, spec.source, [days]), table)
    }
    assert compared == {hour.key: number == 2 for number, hour in enumerate(hours[:5])}
