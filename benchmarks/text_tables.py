"""The shop's orders as JSON lines and as CSV, a file a day: two tables, and the rows that both sides read."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from backfill_assets.assets.factory import build_lakehouse_table
from backfill_assets.assets.lakehouse import lakehouse_definitions
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.demo.orders import orders_of

COLUMNS = {
    "order_id": "bigint not null",
    "customer_id": "bigint not null",
    "customer_name": "string",
    "country": "string",
    "ordered_at": "timestamp not null",
    "amount": "decimal(18,2) not null",
    "currency": "string not null",
    "status": "string not null",
    "updated_at": "timestamp not null",
}
FORMATS = ("json", "csv")
FIRST_DAY = date(2023, 1, 1)


def write_days(landing: Path, form: str, *, days: int, rows: int) -> None:
    """Write a file for each day, of about so many rows."""
    for day in (FIRST_DAY + timedelta(days=n) for n in range(days)):
        orders = orders_of(day, orders_per_day=rows, seed=1)
        folder = landing / f"{day:%Y/%m/%d}"
        folder.mkdir(parents=True)
        if form == "csv":
            csv.write_csv(_as_text(orders, pa.string()), folder / "orders.csv")
        else:
            _as_text(orders, pa.float64()).to_pandas().to_json(folder / "orders.json", orient="records", lines=True)


def _as_text(orders: pa.Table, amounts: pa.DataType) -> pa.Table:
    """Write times and amounts as other systems do."""
    for i, name in enumerate(orders.column_names):
        kind = orders.schema.field(name).type
        if pa.types.is_timestamp(kind):
            times = pc.cast(orders[name], pa.timestamp("us", "UTC"))
            orders = orders.set_column(i, name, pc.strftime(times, format="%Y-%m-%dT%H:%M:%SZ"))
        elif pa.types.is_decimal(kind):
            orders = orders.set_column(i, name, pc.cast(orders[name], amounts))
    return orders


def spec_of(form: str) -> TableSpec:
    """Return the table of one format."""
    return TableSpec.model_validate(
        {
            "key": f"texts/{form}",
            "columns": COLUMNS,
            "key_columns": ["order_id"],
            "event_time": "ordered_at",
            "grain": "daily",
            "start": str(FIRST_DAY),
            "source": {"kind": "files", "path": form, "format": form, "layout": "year/month/day"},
        }
    )


@dg.definitions
def defs() -> dg.Definitions:
    """Return both tables."""
    return lakehouse_definitions(*(build_lakehouse_table(spec_of(form)) for form in FORMATS))
