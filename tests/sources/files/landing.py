"""A table whose source is files, that source, and what it stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import Finding
from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.sources.files.source import FilesSource
from tests.support.shop import Row, orders_spec


def files_spec(*, source: dict[str, Any] | None = None, **changes: Any) -> TableSpec:
    facts = {"kind": "files", "path": "orders", "format": "parquet", **(source or {})}
    return orders_spec(source=facts, **changes)


def source_of(spark: SparkSession, spec: TableSpec, root: Path | str, **effects: Any) -> FilesSource:
    assert isinstance(spec.source, FilesSpec)
    return FilesSource(spark, spec, spec.source, str(root), **effects)


def days(spec: TableSpec, first: str, last: str | None = None) -> list[Partition]:
    return spec.grid.between(first, last or first)


def staged_rows(source: FilesSource, partitions: list[Partition]) -> list[Row]:
    """What a source stages, read at once."""
    return [row.asDict() for row in source.scan(partitions, source.survey(partitions)).rows.collect()]


def findings_of(
    spark: SparkSession, root: Path, ends: tuple[str, str], **source: object
) -> dict[str, tuple[Finding, ...]]:
    """What is said of each day, from the first to the last one, before its rows are read."""
    spec = files_spec(source=source)
    read, named = source_of(spark, spec, root), days(spec, *ends)
    return {key: evidence.findings for key, evidence in read.scan(named, read.survey(named)).evidence.items()}
