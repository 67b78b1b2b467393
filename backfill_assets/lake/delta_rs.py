"""A table read without Spark, by delta-rs: what its partitions hold, for who does not want to trust the writer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from backfill_assets.core.state.row_hash import checksum_of_rows
from backfill_assets.core.state.tallies import Content
from backfill_assets.errors import ConfigurationError, UnreadableSourceError

_EPOCH, _FIRST_DAY = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1).toordinal()
_MICROSECOND = 1_000_000

_AS_SPARK_SAYS = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
"""Delta's names of types that Spark calls otherwise."""


def contents(
    path: str, columns: Mapping[str, str], partition_column: str, values: Mapping[str, date | str]
) -> Iterator[tuple[str, Content]]:
    """Yield what each partition holds, by key: how many rows, and their checksum.

    Args:
        columns: Types of the table's columns by name, in the order of its spec.
        values: By partition key, its value of the partition column.

    Raises:
        ConfigurationError: delta-rs is not installed; or the table has other columns.
        UnreadableSourceError: The table, or a file of it, cannot be read.
    """
    try:
        import deltalake
        import pyarrow
        from deltalake.exceptions import DeltaError, DeltaProtocolError
    except ImportError as error:
        raise ConfigurationError(
            f"delta-rs is not installed ({error}).",
            state="Nothing was read.",
            remedy="Install it: `pip install 'backfill-assets[verify]'`.",
        ) from error
    try:
        table: Any = deltalake.DeltaTable(path)
        _refuse_other_columns(path, table, columns, partition_column)
        for key, value in values.items():
            found: Any = table.to_pyarrow_table(filters=[(partition_column, "=", value)], columns=list(columns))
            yield key, checksum_of_rows(list(columns.values()), _rows_of(found, columns))
    except DeltaProtocolError as error:
        raise UnreadableSourceError(
            f"delta-rs cannot read the table at `{path}`, which has features that it does not know: "
            f"{' '.join(str(error).split())}",
            state="Nothing was written.",
            remedy="Spark reads it: run `backfill-assets verify` in the table's project, without `--delta-rs` and "
            "`--path`.",
        ) from error
    except (DeltaError, OSError, pyarrow.ArrowException) as error:
        raise UnreadableSourceError(
            f"delta-rs cannot read the table at `{path}`: {' '.join(str(error).split())}",
            state="Nothing was written.",
            remedy="Look at the file that is named; launch the partitions again that it belongs to.",
        ) from error


def _refuse_other_columns(path: str, table: Any, columns: Mapping[str, str], partition_column: str) -> None:
    """Raise if a table lacks a column, or has it of another type: it is another table, or was changed since."""
    kinds = {field.name: str(getattr(field.type, "type", field.type)) for field in table.schema().fields}
    has = {name: _AS_SPARK_SAYS.get(kind, kind) for name, kind in kinds.items()}
    other = [f"`{name}` is missing" for name in (*columns, partition_column) if name not in has]
    other += [
        f"`{name}` is `{has[name]}`, not `{kind}`" for name, kind in columns.items() if has.get(name, kind) != kind
    ]
    if other:
        raise ConfigurationError(
            f"The table at `{path}` has other columns than were certified: {'; '.join(other)}.",
            state="Nothing was read.",
            remedy="Name the folder of the table that was certified. If its columns were changed since, make a new "
            "certificate.",
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
