"""What a source is built with: the table that it fills, Spark, and the lakehouse's folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import quoted
from backfill_assets.core.state.receipts import PublishedPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class InputTable(Protocol):
    """What is needed of a table that another is made of."""

    spec: TableSpec

    def read(self, version: int | None = None) -> DataFrame:
        """Return the table's rows, at a version or the newest."""
        ...

    def version(self) -> int:
        """Return the newest version."""
        ...

    def published(self) -> dict[str, PublishedPartition]:
        """Return the newest receipt of each partition."""
        ...

    def exists(self) -> bool:
        """Say whether the table was made."""
        ...

    def refuse_other_facts(self) -> None:
        """Hold what the table is against its spec, whatever its columns are."""
        ...


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What the function that builds a source gets beside the spec of the source.

    Args:
        spec: The table that is filled.
        landing_path: Returns a source's folder: absolute paths and URIs as they are, others below `landing/`.
        inputs: The tables that `inputs` of the source's spec names, in that order.
        transform: The function that `transform_path` of the source's spec names, if there is one.
        log: Called with one sentence whenever a person would want to know.
    """

    spec: TableSpec
    spark: SparkSession
    landing_path: Callable[[str], str]
    inputs: Sequence[InputTable] = ()
    transform: Callable[..., DataFrame] | None = None
    log: Callable[[str], None] = lambda _: None

    def frame(self, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
        """Return rows of this process as a frame of the spec's columns; a column that a row lacks is NULL in it."""
        columns = self.spec.columns
        ddl = ", ".join(f"{quoted(name)} {column.type}" for name, column in columns.items())
        return self.spark.createDataFrame([tuple(row.get(name) for name in columns) for row in rows], ddl)
