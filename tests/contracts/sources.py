"""Kinds of source over the same rows: what each reads, and how something comes to it or is spoiled.

Here are files, a kind of a user's own, and the one over lists; tables are in `tables.py`, databases in `databases.py`.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import AuditRule
from backfill_assets.core.history.ports import Source
from backfill_assets.core.spec.sources import kind_of
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.context import SourceContext
from tests.support.cash_register import page_module, write_register
from tests.support.fakes import FakeSource
from tests.support.shop import (
    Row,
    csv_text,
    folder_of,
    orders,
    orders_spec,
    write_json,
    write_parquet,
)

DAYS = ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"]
ROWS: dict[str, list[Row]] = {day: orders(day, count) for day, count in zip(DAYS, (3, 0, 1, 4), strict=True)}
LATER = [{**row, "amount": Decimal("50.00")} for row in ROWS[DAYS[3]][:2]]
RAW = {**ROWS, DAYS[3]: [*LATER, *ROWS[DAYS[3]]]}
EXPECTED = {**ROWS, DAYS[3]: [*LATER, *ROWS[DAYS[3]][2:]]}
ONE_MORE = {**ROWS[DAYS[2]][0], "order_id": 1}
"""An order that comes to the third day later."""


@dataclass(frozen=True)
class Kind:
    """One implementation, over the rows of `RAW`.

    Args:
        raw: What it has, where it cannot be all of that.
        source: Returns a source that has seen nothing yet.
        root: Folder in which everything lies that it reads.
        add: Lets `ONE_MORE` come.
        spoil: Makes rows of the first day unreadable; None where there is nothing that could be.
        spoiled: How that is found, and of which days.
        shares_parts: Whether partitions share what they are read from, so that a change is one of all of them.
        keeps_what_was: Whether what was surveyed can still be read after it changed.
        is_counted: Whether it says without a read how many rows it has.
        stands_still: Whether a second survey finds the same position, where nothing has changed.
    """

    spec: TableSpec
    source: Callable[[], Source[Any]]
    root: Path
    add: Callable[[], object]
    spoil: Callable[[], object] | None
    spoiled: AuditRule = AuditRule.FILES_ARE_READABLE
    shares_parts: bool = False
    keeps_what_was: bool = True
    is_counted: bool = True
    stands_still: bool = True
    raw: Mapping[str, Sequence[Row]] = field(default_factory=lambda: RAW)

    @property
    def partitions(self) -> list[Partition]:
        return self.spec.grid.between(DAYS[0], DAYS[-1])


Make = Callable[[SparkSession, Path], Kind]


def built(spark: SparkSession, spec: TableSpec, root: Path, *inputs: LakeTable) -> Callable[[], Source[Any]]:
    """What a launch builds a source with."""
    context = SourceContext(spec, spark, lambda _: str(root), inputs)
    return lambda: kind_of(spec.source).builder()(spec.source, context)


def damage(file: Path) -> None:
    """Cut a file off in the middle."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def parquet(spark: SparkSession, root: Path) -> Kind:
    spec = orders_spec(latest_wins_by=["amount"])
    for day, rows in RAW.items():
        folder_of(root, day).mkdir(parents=True)
        for number, row in enumerate(rows):
            write_parquet(folder_of(root, day), [row], f"{number}.parquet")
    return Kind(
        spec,
        built(spark, spec, root),
        root,
        add=lambda: write_parquet(folder_of(root, DAYS[2]), [ONE_MORE], "more.parquet"),
        spoil=lambda: damage(folder_of(root, DAYS[0]) / "0.parquet"),
    )


def json_lines(spark: SparkSession, root: Path) -> Kind:
    layout = "dt={date}"
    source = {"kind": "files", "path": "orders", "format": "json", "layout": layout, "gaps": "allowed"}  # of no byte
    spec = orders_spec(latest_wins_by=["amount"], source=source)
    for day, rows in RAW.items():
        write_json(folder_of(root, day, layout), rows)
    return Kind(
        spec,
        built(spark, spec, root),
        root,
        add=lambda: write_json(folder_of(root, DAYS[2], layout), [ONE_MORE], "more.json"),
        spoil=lambda: write_json(folder_of(root, DAYS[0], layout), ['{"order_id": '], "bad.json"),
        spoiled=AuditRule.VALUES_FIT_THEIR_TYPES,
    )


def packed_csv(spark: SparkSession, root: Path) -> Kind:
    """The date is in the file's name; every file is packed."""
    source = {"kind": "files", "path": "orders", "format": "csv", "layout": "orders_{year}{month}{day}*.csv.gz"}
    spec = orders_spec(latest_wins_by=["amount"], source=source)
    root.mkdir(exist_ok=True)

    def write(day: str, rows: list[Row], more: str = "") -> Path:
        file = root / f"orders_{day.replace('-', '')}{more}.csv.gz"
        file.write_bytes(gzip.compress(csv_text(rows).encode()))
        return file

    files = {day: write(day, rows) for day, rows in RAW.items()}
    return Kind(
        spec,
        built(spark, spec, root),
        root,
        add=lambda: write(DAYS[2], [ONE_MORE], "_more"),
        spoil=lambda: damage(files[DAYS[0]]),
    )


def months(spark: SparkSession, root: Path) -> Kind:
    """One folder holds all days, and days of other partitions too."""
    source = {
        "kind": "files",
        "path": "orders",
        "format": "parquet",
        "layout": "{year}/{month}",
        "complete_until": "2024-01-05",
    }
    spec = orders_spec(latest_wins_by=["amount"], source=source)
    everything = [row for rows in [*RAW.values(), orders("2024-01-20")] for row in rows]
    for number in range(3):
        write_parquet(root / "2024/01", everything[number::3], f"{number}.parquet", row_group_size=2)
    return Kind(
        spec,
        built(spark, spec, root),
        root,
        add=lambda: write_parquet(root / "2024/01", [ONE_MORE], "more.parquet"),
        spoil=lambda: damage(root / "2024/01/0.parquet"),
        shares_parts=True,
    )


def cash_register(spark: SparkSession, root: Path) -> Kind:
    """The kind that docs/sources.md registers."""
    page_module()
    file = write_register(root / "till.db", [row for rows in RAW.values() for row in rows])
    spec = orders_spec(latest_wins_by=["amount"], source={"kind": "cash_register", "path": "till.db"})
    return Kind(
        spec,
        built(spark, spec, file),
        root,
        add=lambda: write_register(file, [ONE_MORE]),
        spoil=lambda: write_register(file, [{**RAW[DAYS[0]][0], "amount": "a lot"}]),
        spoiled=AuditRule.VALUES_FIT_THEIR_TYPES,
    )


def fake(_spark: SparkSession, root: Path) -> Kind:
    """The source on which the core's tests rest. It reads what is there, as a file does that is written again in its place."""
    files = {day: list(rows) for day, rows in RAW.items()}
    spec = orders_spec(latest_wins_by=["amount"])
    unreadable: set[str] = set()

    def new() -> FakeSource:
        source = FakeSource(spec, {})
        source.files, source.unreadable = files, unreadable
        source.complete_until_utc = spec.grid.partition(DAYS[-1]).window.end_utc
        return source

    return Kind(
        spec,
        new,
        root,
        add=lambda: files[DAYS[2]].append(ONE_MORE),
        spoil=lambda: unreadable.add(DAYS[0]),
        keeps_what_was=False,
    )
