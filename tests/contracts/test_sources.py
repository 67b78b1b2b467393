"""One contract for every source: whatever the cut and the order of a launch, the table holds the same rows."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from backfill_assets.core.history.ports import Held, Source
from backfill_assets.core.spec.files import DeltaSource, FilesSource
from backfill_assets.core.state.receipts import PartitionReceipt
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.lake.table import DeltaTable
from backfill_assets.sources.tables import TablesSource
from backfill_assets.sources.files.source import FilesBelowFolders
from tests.support.shop import (
    Row,
    content,
    csv_text,
    folder_of,
    frame_of,
    launch,
    left_out,
    multiset,
    orders,
    orders_spec,
    published_keys,
    receipt_for,
    write_json,
    write_parquet,
)

DAYS = ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"]
ROWS: dict[str, list[Row]] = {day: orders(day, count) for day, count in zip(DAYS, (3, 0, 1, 4), strict=True)}
LATER = [{**row, "amount": Decimal("50.00")} for row in ROWS[DAYS[3]][:2]]
RAW = {**ROWS, DAYS[3]: [*LATER, *ROWS[DAYS[3]]]}
EXPECTED = {**ROWS, DAYS[3]: [*LATER, *ROWS[DAYS[3]][2:]]}

Make = Callable[[SparkSession, Path], tuple[TableSpec, Source[Any]]]


def parquet(spark: SparkSession, root: Path) -> tuple[TableSpec, Source[Any]]:
    spec = orders_spec(latest_wins_by=["amount"])
    for day, rows in RAW.items():
        folder_of(root, day).mkdir(parents=True)
        for number, row in enumerate(rows):
            write_parquet(folder_of(root, day), [row], f"{number}.parquet")
    assert isinstance(spec.source, FilesSource)
    return spec, FilesBelowFolders(spark, spec, spec.source, str(root))


def json_lines(spark: SparkSession, root: Path) -> tuple[TableSpec, Source[Any]]:
    spec = orders_spec(latest_wins_by=["amount"], source={"kind": "files", "path": "orders", "format": "json", "layout": "dt={date}"})
    for day, rows in RAW.items():
        write_json(folder_of(root, day, "dt={date}"), rows)
    assert isinstance(spec.source, FilesSource)
    return spec, FilesBelowFolders(spark, spec, spec.source, str(root))


def packed_csv(spark: SparkSession, root: Path) -> tuple[TableSpec, Source[Any]]:
    """The date is in the file's name; every file is packed."""
    spec = orders_spec(
        latest_wins_by=["amount"], source={"kind": "files", "path": "orders", "format": "csv", "layout": "orders_{year}{month}{day}.csv.gz"}
    )
    root.mkdir(exist_ok=True)
    for day, rows in RAW.items():
        (root / f"orders_{day.replace('-', '')}.csv.gz").write_bytes(gzip.compress(csv_text(rows).encode()))
    assert isinstance(spec.source, FilesSource)
    return spec, FilesBelowFolders(spark, spec, spec.source, str(root))


def months(spark: SparkSession, root: Path) -> tuple[TableSpec, Source[Any]]:
    """One folder holds all days, and days of other partitions too."""
    source = {"kind": "files", "path": "orders", "format": "parquet", "layout": "{year}/{month}", "complete_until": "2024-01-05"}
    spec = orders_spec(latest_wins_by=["amount"], source=source)
    everything = [row for rows in [*RAW.values(), orders("2024-01-20")] for row in rows]
    for number in range(3):
        write_parquet(root / "2024/01", everything[number::3], f"{number}.parquet", row_group_size=2)
    assert isinstance(spec.source, FilesSource)
    return spec, FilesBelowFolders(spark, spec, spec.source, str(root))


def table(spark: SparkSession, root: Path) -> tuple[TableSpec, Source[Any]]:
    below = DeltaTable(spark, orders_spec(key_columns=[]), f"{root}/bronze")
    below.create()
    named = below.spec.grid.between(DAYS[0], DAYS[-1])
    receipts = {key: PartitionReceipt(len(rows), "", None, None, "", 0) for key, rows in RAW.items()}
    held = Held(frame_of(spark, below.spec, [row for rows in RAW.values() for row in rows]), {}, {}, None, lambda: None)
    below.overwrite(held, named, receipt_for(below, named, partitions=receipts))
    spec = orders_spec(key="silver/orders", latest_wins_by=["amount"], source={"kind": "delta", "tables": ["bronze/orders"]})
    assert isinstance(spec.source, DeltaSource)
    return spec, TablesSource(spec, spec.source, [below])


@pytest.mark.parametrize("make", [parquet, json_lines, packed_csv, months, table])
def test_the_same_launch_gives_the_same_content(spark, tmp_path, make):
    """Whole, in chunks of other sizes, in reverse order, and once more: equal tallies, and an equal multiset of rows for another reader."""
    spec, source = make(spark, tmp_path / "source")
    lake = DeltaTable(spark, spec, f"{tmp_path}/table")
    lake.create()
    partitions = spec.grid.between(DAYS[0], DAYS[-1])
    expected = multiset(row for rows in EXPECTED.values() for row in rows)
    assert source.check_schema(partitions) == []
    tallies = []

    for launches in ([(partitions, None)], [(partitions, 3)], [(partitions[2:], None), ([partitions[1]], None), ([partitions[0]], None)]):
        for named, size in launches:
            outcomes = launch(lake, source, named, max_partitions_per_chunk=size)
            assert published_keys(outcomes) == [p.key for p in named]
        assert content(lake.path) == expected
        tallies.append(lake.tally(partitions))

    assert tallies[0] == tallies[1] == tallies[2]
    published = lake.published()
    assert {key: (p.partition.rows, p.partition.superseded_rows) for key, p in published.items()} == {
        DAYS[0]: (3, 0), DAYS[1]: (0, 0), DAYS[2]: (1, 0), DAYS[3]: (4, 2)
    }  # fmt: skip
    assert all(published[key].partition.matches(tally) for key, tally in tallies[0].items())
    before = lake.version()
    assert list(left_out(launch(lake, source, partitions, only="missing"))) == DAYS
    assert lake.version() == before


@pytest.mark.parametrize("make", [parquet, json_lines, packed_csv, months, table])
def test_what_a_source_says_of_itself(spark, tmp_path, make):
    """Complete up to the end of its last day, one survey and one evidence for each partition, and raw rows that add up."""
    spec, source = make(spark, tmp_path)
    partitions = spec.grid.between(DAYS[0], DAYS[-1])

    surveys = source.survey(partitions)
    staged = source.stage(partitions, surveys)

    assert source.complete_until() == partitions[-1].window.end_utc
    assert list(surveys) == list(staged.evidence) == DAYS
    assert {key: evidence.raw_rows for key, evidence in staged.evidence.items()} == {key: len(rows) for key, rows in RAW.items()}
    assert not any(evidence.findings for evidence in staged.evidence.values())
    assert source.survey(partitions) == surveys
