"""Columns that have no value in one whole file of the source, found while its rows are read once.

A file that lacks a column is suspicious, however full the column is in other files of the same partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.spark.expressions import column

FILE_NUMBER = "_ba_file_number"
"""Column of rows: the number of its file in the order of `FileIds`."""

FileIds = Mapping[Any, str] | None
"""The partition key of each value of `_ba_file_id`; None where the source keeps rows by event time alone."""

_FILES_IN_A_BITMAP = 4096 * 8
"""Of `bitmap_construct_agg`."""


class FilesWithoutValues:
    """Aggregates over all rows of a chunk: for each column the files in which it has a value.

    Args:
        are_alone: Whether no late rows are tallied with the source's. If so, and if each partition has one file,
            its own tally says the same, and nothing is measured.
    """

    def __init__(self, spec: TableSpec, by_file: FileIds, *, are_alone: bool) -> None:
        keys = list((by_file or {}).values())
        self._keys = keys if not are_alone or any(count > 1 for count in Counter(keys).values()) else []
        self._columns = [name for name, one in spec.columns.items() if not one.optional]

    def measured(self) -> dict[str, Column]:
        """Return the aggregates: a bitmap of files for all rows, and one for each column, by name."""
        found: dict[str, Column] = {}
        for first in range(0, len(self._keys), _FILES_IN_A_BITMAP):
            number = F.col(FILE_NUMBER) - first
            here = number.between(0, _FILES_IN_A_BITMAP - 1)
            found[_alias(None, first)] = F.bitmap_construct_agg(F.when(here, number.cast("bigint")))
            for name in self._columns:
                filled = here & column(name).isNotNull()
                found[_alias(name, first)] = F.bitmap_construct_agg(F.when(filled, number.cast("bigint")))
        return found

    def found(self, seen: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """Return the columns that have no value in some file, by partition key; partitions without any are left out."""
        names: dict[str, set[str]] = {}
        for number, key in enumerate(self._keys):
            if _has(seen, None, number):
                names.setdefault(key, set()).update(n for n in self._columns if not _has(seen, n, number))
        return {key: tuple(n for n in self._columns if n in some) for key, some in names.items() if some}


def _has(seen: Mapping[str, Any], name: str | None, number: int) -> bool:
    position = number % _FILES_IN_A_BITMAP
    bitmap = seen[_alias(name, number - position)]
    return bool(bitmap) and bool(bitmap[position // 8] >> position % 8 & 1)


def _alias(name: str | None, first: int) -> str:
    return f"_ba_files {first} {name or ''}"
