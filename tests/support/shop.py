"""A shop of a few orders for the tests that need Spark.

Source files are written with pyarrow, tables are read back with delta-rs: what is tested neither writes its own input
nor reads its own output.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.outcomes import Outcome, Published, Refused
from backfill_assets.core.history.plan import LeftOut
from backfill_assets.core.history.publish import materialize
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import quoted
from backfill_assets.core.state.receipts import PartitionReceipt, Receipt
from backfill_assets.core.state.tallies import EMPTY
from tests.support.fakes import launch_with, run_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from backfill_assets.lake.table import LakeTable

Row = dict[str, Any]

COLUMNS = {"order_id": "bigint", "customer": "string", "amount": "decimal(18,2)", "ordered_at": "timestamp"}
SCHEMA = pa.schema(
    {
        "order_id": pa.int64(),
        "customer": pa.string(),
        "amount": pa.decimal128(18, 2),
        "ordered_at": pa.timestamp("us", "UTC"),
    }
)


def orders_spec(**changes: Any) -> TableSpec:
    """The table of orders: daily, one row per `order_id`."""
    facts: dict[str, Any] = {
        "key": "bronze/orders",
        "columns": COLUMNS,
        "key_columns": ["order_id"],
        "event_time": "ordered_at",
        "grain": "daily",
        "start": "2024-01-01",
        "source": {"kind": "files", "path": "orders", "format": "parquet"},
    }
    return TableSpec(**{**facts, **changes})


def orders(day: str, count: int = 3, **same: Any) -> list[Row]:
    """A few orders of one day, an hour apart; `same` gives all of them a value."""
    first = date.fromisoformat(day)
    start = datetime(first.year, first.month, first.day, tzinfo=UTC)
    return [
        {
            "order_id": first.toordinal() * 100 + i,
            "customer": f"customer {i}",
            "amount": Decimal(f"{i}.25"),
            "ordered_at": start + timedelta(hours=i % 24, minutes=i // 24),
            **same,
        }
        for i in range(count)
    ]


def multiset(rows: Iterable[Mapping[str, Any]], columns: Iterable[str] = COLUMNS) -> Counter[tuple[Any, ...]]:
    """Rows without an order, each as often as it comes."""
    return Counter(tuple(row[name] for name in columns) for row in rows)


# -- sources -----------------------------------------------------------------------------------------------------------


def folder_of(root: Path, day: str, layout: str = "{year}/{month}/{day}") -> Path:
    year, month, day_of_month = day.split("-")
    return root / layout.format(year=year, month=month, day=day_of_month, date=day)


def write_parquet(
    folder: Path, rows: list[Row], name: str = "orders.parquet", schema: pa.Schema = SCHEMA, **options: Any
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / name, **options)
    return folder / name


def json_line(row: Row) -> str:
    """One line as an export writes it: instants with their zone, decimals as numbers."""
    fields = []
    for name, value in row.items():
        text = (
            str(value)
            if isinstance(value, Decimal)
            else json.dumps(value.isoformat() if isinstance(value, datetime | date) else value)
        )
        fields.append(f"{json.dumps(name)}: {text}")
    return "{" + ", ".join(fields) + "}"


def write_json(folder: Path, rows: Iterable[Row | str], name: str = "orders.json") -> Path:
    """Rows become lines; a string is a line as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [row if isinstance(row, str) else json_line(row) for row in rows]
    (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return folder / name


def csv_text(rows: Iterable[Row], columns: Iterable[str] = COLUMNS, delimiter: str = ",") -> str:
    """A header and a line for each row, as an export writes them."""
    names = list(columns)
    lines = [
        delimiter.join(v.isoformat() if isinstance(v := row[name], datetime) else str(v) for name in names)
        for row in rows
    ]
    return "".join(line + "\n" for line in [delimiter.join(names), *lines])


# -- tables ------------------------------------------------------------------------------------------------------------


def frame_of(spark: SparkSession, spec: TableSpec, rows: list[Row], *, partitioned: bool = True) -> DataFrame:
    """Rows as a frame of the spec's columns and, as staged rows have it, the partition column."""
    from backfill_assets.spark.expressions import column, partition_value

    ddl = ", ".join(f"{quoted(name)} {c.type}" for name, c in spec.columns.items())
    frame = spark.createDataFrame([tuple(row.get(name) for name in spec.columns) for row in rows], ddl)
    return (
        frame.withColumn(spec.partition_column, partition_value(spec, column(spec.event_time)))
        if partitioned
        else frame
    )


def receipt_for(table: LakeTable, named: Iterable[Partition], receipt_id: str = "r1", /, **changes: Any) -> Receipt:
    """A receipt as a launch makes it before it overwrites."""
    facts: dict[str, Any] = {
        "receipt_id": receipt_id,
        "table": table.spec.key,
        "run": run_with(changes),
        "staged_from_version": table.version(),
        "source": {"kind": "test"},
        "partitions": {p.key: PartitionReceipt.of(EMPTY, fingerprint="f", superseded_rows=0) for p in named},
    }
    return Receipt(**{**facts, **changes})


def launch(table: LakeTable, source: Any, partitions: Iterable[Partition], **changes: Any) -> list[Outcome]:
    """Materialize partitions to the end."""
    how = {"sleep": lambda _: None} | {
        name: changes.pop(name) for name in ("log", "sleep", "clock", "now") if name in changes
    }
    return list(
        materialize(table.spec, list(partitions), source, table, launch_with(**changes), effects=Effects(**how))
    )


def published_keys(outcomes: Iterable[Outcome]) -> list[str]:
    return [p.key for outcome in outcomes if isinstance(outcome, Published) for p in outcome.partitions]


def refusals(outcomes: Iterable[Outcome]) -> dict[str, str]:
    """Why partitions were refused, by key."""
    return {outcome.verdict.partition.key: str(outcome.verdict) for outcome in outcomes if isinstance(outcome, Refused)}


def left_out(outcomes: Iterable[Outcome]) -> dict[str, str]:
    return {p.key: outcome.why for outcome in outcomes if isinstance(outcome, LeftOut) for p in outcome.partitions}


# -- another reader ----------------------------------------------------------------------------------------------------


def opened(path: str | Path, version: int | None = None) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(str(path), version=version)


def rows_in(path: str | Path, version: int | None = None) -> list[Row]:
    """The table's rows, as delta-rs reads them."""
    return opened(path, version).to_pyarrow_table().to_pylist()


def content(path: str | Path, columns: Iterable[str] = COLUMNS, version: int | None = None) -> Counter[tuple[Any, ...]]:
    return multiset(rows_in(path, version), columns)


def files_by_partition(path: str | Path, column: str = "dt") -> dict[str, set[str]]:
    """The files of each partition, as delta-rs lists them from the log."""
    actions = pa.table(opened(path).get_add_actions(flatten=True)).to_pylist()
    found: dict[str, set[str]] = {}
    for action in actions:
        found.setdefault(str(action[f"partition.{column}"]), set()).add(action["path"])
    return found
