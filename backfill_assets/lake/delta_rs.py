"""A table's rows, read by delta-rs: without Spark, by another engine than the one that wrote them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import deltalake
import pyarrow
from deltalake.exceptions import DeltaError, DeltaProtocolError
from pyarrow.dataset import get_partition_keys
from pyspark.sql import SparkSession

from backfill_assets.core.state.row_hash import checksum_of_rows
from backfill_assets.core.state.tallies import Content
from backfill_assets.errors import ConfigurationError, UnreadableSourceError
from backfill_assets.table.readers import delta_table, in_words

_EPOCH, _FIRST_DAY = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1).toordinal()
_MICROSECOND = 1_000_000

_AS_SPARK_SAYS = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
"""Delta's names of types that Spark calls otherwise."""


def contents(
    table: deltalake.DeltaTable, columns: Mapping[str, str], partition_column: str, values: Mapping[str, date | str]
) -> Iterator[tuple[str, Content]]:
    """Yield what each partition holds, by key: how many rows, and their checksum.

    Args:
        columns: Types of the table's columns by name, in the order of its spec.
        values: By partition key, its value of the partition column.

    Raises:
        ConfigurationError: The table has other columns.
        UnreadableSourceError: A file of the table cannot be read.
    """
    with translated(_path_of(table)):
        _refuse_other_columns(table, columns, partition_column)
        files: Any = table.to_pyarrow_dataset()
        by_value: dict[str, list[Any]] = {}
        for file in files.get_fragments():
            named = get_partition_keys(file.partition_expression)
            by_value.setdefault(str(named.get(partition_column)), []).append(file)
        for key, value in values.items():
            rows = (
                row
                for file in by_value.get(str(value), ())
                for row in _rows_of(file.to_table(schema=files.schema, columns=list(columns)), columns)
            )
            yield key, checksum_of_rows(list(columns.values()), rows)


def opened(spark: SparkSession, path: str) -> deltalake.DeltaTable:
    """Open the newest version of a table.

    Args:
        spark: Asked only for the settings of its storage.

    Raises:
        UnreadableSourceError: There is none, or delta-rs cannot read it.
    """
    with translated(path):
        return delta_table(spark, path)


def _path_of(table: deltalake.DeltaTable) -> str:
    """Return where a table is: a path on this machine, else a URI."""
    return table.table_uri.removeprefix("file://").rstrip("/")


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Raise an error of this project if delta-rs cannot read a table."""
    try:
        yield
    except DeltaProtocolError as error:
        raise UnreadableSourceError(
            f"delta-rs cannot read the table at `{path}`, which has features that it does not know: {in_words(error)}.",
            state="Nothing was written.",
            remedy="Spark reads it: `backfill-assets reconcile` compares the table with its source.",
        ) from error
    except (DeltaError, OSError, ValueError, pyarrow.ArrowException) as error:  # also of a year that Python has not
        raise UnreadableSourceError(
            f"delta-rs cannot read the table at `{path}`: {in_words(error)}.",
            state="Nothing was written.",
            remedy="Look at the file that is named; launch the partitions again that it belongs to.",
        ) from error


def _refuse_other_columns(table: deltalake.DeltaTable, columns: Mapping[str, str], partition_column: str) -> None:
    """Raise if a table lacks a column, or has it of another type: it is another table, or was changed since."""
    fields: list[Any] = table.schema().fields
    kinds = {field.name: str(getattr(field.type, "type", field.type)) for field in fields}
    has = {name: _AS_SPARK_SAYS.get(kind, kind) for name, kind in kinds.items()}
    other = [f"`{name}` is missing" for name in (*columns, partition_column) if name not in has]
    other += [
        f"`{name}` is `{has[name]}`, not `{kind}`" for name, kind in columns.items() if has.get(name, kind) != kind
    ]
    if other:
        raise ConfigurationError(
            f"The table at `{_path_of(table)}` has other columns than its spec: {'; '.join(other)}.",
            state="Nothing was read.",
            remedy="`backfill-assets schema KEY` shows both, and what to do.",
        )


def _rows_of(found: Any, columns: Mapping[str, str]) -> Iterator[Sequence[Any]]:
    for batch in found.to_batches():
        yield from zip(*(map(_as_number, batch.column(name).to_pylist()) for name in columns), strict=True)


def _as_number(value: Any) -> Any:
    """Return a value as it is hashed."""
    match value:
        case datetime():
            since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
            return (since.days * 86_400 + since.seconds) * _MICROSECOND + since.microseconds
        case date():
            return value.toordinal() - _FIRST_DAY
        case Decimal():
            is_negative, digits, _ = value.as_tuple()
            return int("".join(map(str, digits))) * (-1 if is_negative else 1)
        case _:
            return value
