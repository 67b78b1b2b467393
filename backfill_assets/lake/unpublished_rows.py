"""Rows of a chunk that were read once and that no reader sees yet: files of the table, or rows that Spark keeps.

A launch on a classic session writes files, which its commit publishes. Everything else keeps the rows: a launch through
Spark Connect, which then writes them by the public API, and whoever only looks.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.tallies import checksum_of, sum_if_known
from backfill_assets.lake.definition import columns_of
from backfill_assets.lake.overwrite import refuse_unsafe_session
from backfill_assets.spark.caching import persist
from backfill_assets.spark.expressions import checksum_lanes, column, row_hash
from backfill_assets.spark.failures import SPARK_FAILURES
from backfill_assets.table.transaction import Transactions, WrittenFiles

BYTES_IN_MEMORY = 128 << 20
"""Rows of so many stored bytes are kept in memory; of more, Java would spend longer moving them than a disk does."""

_ASIDE, _ROWS, _HIGH, _LOW = (f"_ba_{name}" for name in ("count_aside", "rows_in", "high_in", "low_in"))


class UnpublishedRows(Protocol):
    """Rows that were read once."""

    @property
    def seen(self) -> Mapping[str, Any]:
        """What was measured while they were read, by name."""
        ...

    @property
    def count_aside(self) -> int:
        """Rows that were set aside."""
        ...

    @property
    def went_in(self) -> tuple[int, int] | None:
        """Rows, and their checksum, as they were before they were written; None if they were only kept."""
        ...

    def rows(self, without: Collection[str] = ()) -> DataFrame:
        """Return the table's columns of the rows, but of those that were set aside.

        Args:
            without: Values of the partition column whose rows are left out.
        """
        ...

    def aside(self) -> DataFrame | None:
        """Return the rows that were set aside, with all their columns; None if there are none."""
        ...

    def counted(self) -> Mapping[str, int | None]:
        """Return the rows that the writer counted, by value of the partition column; nothing if it counts none."""
        ...

    def release(self) -> None:
        """Forget the rows, and delete files that no commit names."""
        ...


class Reads(Protocol):
    """A way to read rows once."""

    def __call__(
        self, rows: DataFrame, is_aside: Column, measured: Mapping[str, Column], *, size_bytes: int = 0
    ) -> UnpublishedRows:
        """Read rows once.

        Args:
            rows: The table's columns, and others.
            is_aside: Rows that the table could not have. They are set aside.
            measured: Aggregates that are taken of all rows.
            size_bytes: Stored bytes of the source, as far as it says.
        """
        ...


@dataclass(frozen=True, slots=True)
class Keeping:
    """Reads rows and lets Spark keep them, in memory or on its own disk."""

    spec: TableSpec

    def __call__(
        self, rows: DataFrame, is_aside: Column, measured: Mapping[str, Column], *, size_bytes: int = 0
    ) -> UnpublishedRows:
        level = StorageLevel.MEMORY_AND_DISK if size_bytes <= BYTES_IN_MEMORY else StorageLevel.DISK_ONLY
        kept = persist(rows.withColumn("_ba_aside", is_aside).where(_always(uuid.uuid4().hex)), level)
        try:
            (seen,) = kept.agg(*_named({_ASIDE: F.count_if("_ba_aside"), **measured})).collect()
        except BaseException:
            kept.unpersist()
            raise
        return _KeptRows(self.spec, kept, seen.asDict())


@dataclass(frozen=True, slots=True)
class _KeptRows:
    spec: TableSpec
    kept: DataFrame
    seen: Mapping[str, Any]
    went_in: None = None

    @property
    def count_aside(self) -> int:
        return int(self.seen[_ASIDE])

    def rows(self, without: Collection[str] = ()) -> DataFrame:
        rows = self.kept.where(~F.col("_ba_aside")).select(*map(column, columns_of(self.spec)))
        return rows.where(~column(self.spec.partition_column).cast("string").isin(list(without))) if without else rows

    def aside(self) -> DataFrame | None:
        return self.kept.where(F.col("_ba_aside")).drop("_ba_aside") if self.count_aside else None

    def counted(self) -> Mapping[str, int | None]:
        return {}

    def release(self) -> None:
        self.kept.unpersist()


@dataclass(frozen=True, slots=True)
class Writing:
    """Reads rows and writes them as files of the table.

    Args:
        version: Of the table, which the files are to follow.
    """

    spec: TableSpec
    transactions: Transactions
    version: int

    def __call__(
        self, rows: DataFrame, is_aside: Column, measured: Mapping[str, Column], *, size_bytes: int = 0
    ) -> UnpublishedRows:
        del size_bytes  # Spark writes rows as it reads them
        refuse_unsafe_session(self.transactions.spark, self.spec.key)
        observation = Observation()
        rows = rows.withColumns({name: column(name).cast(kind) for name, kind in columns_of(self.spec).items()})
        high, low = checksum_lanes(F.when(~is_aside, row_hash(self.spec)))
        own = {_ASIDE: F.count_if(is_aside), _ROWS: F.count_if(~is_aside), _HIGH: high, _LOW: low}
        observed = rows.observe(observation, *_named({**own, **measured}))  # in the last stage: no task counts twice
        clean = observed.where(~is_aside).select(*map(column, columns_of(self.spec)))
        files = self.transactions.write(clean, version=self.version)
        return FilesOfRows(self.transactions, files, observation.get, rows.where(is_aside))


@dataclass(frozen=True, slots=True)
class FilesOfRows:
    """Rows as files that no version names.

    Args:
        source: The rows that were set aside, to be read again.
    """

    transactions: Transactions
    files: WrittenFiles
    seen: Mapping[str, Any]
    source: DataFrame

    @property
    def count_aside(self) -> int:
        return int(self.seen[_ASIDE])

    @property
    def went_in(self) -> tuple[int, int]:
        return int(self.seen[_ROWS]), checksum_of(int(self.seen[_HIGH] or 0), int(self.seen[_LOW] or 0))

    def rows(self, without: Collection[str] = ()) -> DataFrame:
        return self.transactions.frame(self.files, without)

    def aside(self) -> DataFrame | None:
        return self.source if self.count_aside else None

    def counted(self) -> Mapping[str, int | None]:
        return self.files.rows_by_value()

    def release(self) -> None:
        with suppress(*SPARK_FAILURES):  # VACUUM removes what is left
            self.transactions.discard(self.files)


def _named(measured: Mapping[str, Column]) -> list[Column]:
    return [aggregate.alias(name) for name, aggregate in measured.items()]


def rows_by_key(
    spec: TableSpec, counted: Iterable[tuple[Mapping[str, int | None], Collection[str]]]
) -> dict[str, int | None]:
    """Add up counted rows by partition key; None where anything of it is not known.

    Args:
        counted: Rows by value of the partition column, each with the values that are left out.
    """
    found: dict[str, int | None] = {}
    for rows, without in counted:
        for value in rows.keys() - without:
            key = spec.grid.key_of(value)
            found[key] = sum_if_known([found.get(key, 0), rows[value]])
    return found


def _always(name: str) -> Column:
    """Return a condition that every row meets, and that no other frame has.

    Spark takes kept rows for any frame that reads the same paths, in every session of a server, whatever the files hold
    by then: the rows that a killed launch left there would be taken for the source's.
    """
    return F.lit(name) == F.lit(name)
