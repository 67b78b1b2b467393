"""pandas, polars, DuckDB, Spark and pyarrow, each writing one column of two rows as it writes it by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Place:
    """Where a file is to be written, and what it needs to be one of its table's.

    Args:
        day: The event time of its two rows.
        column: What is looked at.
    """

    spark: SparkSession
    folder: Path
    day: date
    column: str

    @property
    def file(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / "it.parquet"


Writes = Callable[[Place], None]


def pyarrow(values: Any, kind: Any = None, *, more: Any = None, **options: Any) -> Writes:
    def write(at: Place) -> None:
        array = values if isinstance(values, pa.Array) else pa.array(values, kind)
        columns = {"id": [1, 2], "day": [at.day] * 2, at.column: array, **(more or {})}
        pq.write_table(pa.table(columns), at.file, **options)

    return write


def pandas(values: Any, *, change: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame) -> Writes:
    def write(at: Place) -> None:
        change(pd.DataFrame({"id": [1, 2], "day": [at.day] * 2, at.column: values})).to_parquet(at.file)

    return write


def polars(values: Any, kind: Any = None, **options: Any) -> Writes:
    def write(at: Place) -> None:
        columns = {"id": [1, 2], "day": [at.day] * 2, at.column: pl.Series(values, dtype=kind)}
        pl.DataFrame(columns).write_parquet(at.file, **options)

    return write


def duckdb_(*expressions: str, more: str = "") -> Writes:
    def write(at: Place) -> None:
        rows = " UNION ALL ".join(
            f"SELECT {i}::BIGINT AS id, DATE '{at.day}' AS day, {expression} AS \"{at.column}\"{more}"
            for i, expression in enumerate(expressions, 1)
        )
        duckdb.sql(rows).write_parquet(str(at.file))

    return write


def spark(*expressions: str, **settings: str) -> Writes:
    def write(at: Place) -> None:
        before = {name: at.spark.conf.get(name) for name in settings}
        rows = " UNION ALL ".join(
            f"SELECT {i}L AS id, DATE'{at.day}' AS day, {expression} AS `{at.column}`"
            for i, expression in enumerate(expressions, 1)
        )
        try:
            for name, value in settings.items():
                at.spark.conf.set(name, value)
            at.spark.sql(rows).coalesce(1).write.parquet(str(at.folder / "spark"))
        finally:
            for name, value in before.items():
                at.spark.conf.set(name, value)

    return write


def each(values: list[Any], kind: str) -> list[str]:
    """Return values as DuckDB's or Spark's literals."""
    return [f"CAST('{value}' AS {kind})" for value in values]
