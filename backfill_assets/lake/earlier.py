"""What a table held at an earlier version: read in the columns that it has now, as long as its files are kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import (
    NOTHING_WRITTEN,
    EngineFailedError,
    EngineRefusedError,
    UndoError,
    UnreadableSourceError,
)
from backfill_assets.lake.definition import columns_of
from backfill_assets.spark.expressions import column
from backfill_assets.spark.failures import translated


def with_later_columns(spec: TableSpec, rows: DataFrame) -> DataFrame:
    """Return rows of an earlier version with the columns that were added since; they are NULL, as in its files."""
    have = set(rows.columns)
    later = {name: kind for name, kind in columns_of(spec).items() if name not in have}
    added = [F.lit(None).cast(kind).alias(name) for name, kind in later.items()]
    return rows.select(*map(column, rows.columns), *added) if added else rows


@contextmanager
def readable(spec: TableSpec, what: str) -> Iterator[None]:
    """Say in words that something of the past cannot be read any more.

    Raises:
        UndoError: Its files, or its commits, were cleaned up.
    """
    try:
        with translated(spec.key):
            yield
    except (UnreadableSourceError, EngineFailedError, EngineRefusedError) as error:
        raise UndoError(
            f"`{spec.key}`: {what} cannot be read any more: {error.what}",
            state=NOTHING_WRITTEN,
            remedy="What a publish replaces is kept for 30 days, unless somebody cleans up sooner "
            "(`VACUUM ... RETAIN`). Launch these partitions again from their source instead.",
        ) from None
