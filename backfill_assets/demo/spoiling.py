"""A day of the export that somebody changes, and that is put right again."""

from __future__ import annotations

import shutil
from datetime import date
from decimal import Decimal
from pathlib import Path

from backfill_assets.demo.orders import COLUMNS, file_of, pa, pq, write_file
from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError

_CENT = Decimal("0.01")


def corrupt_day(folder: Path, day: date) -> str:
    """Change the file of one day so that a table made of it before no longer equals it.

    One amount differs by 0.01, one order is gone, another is there twice. The number of rows stays the same, so whoever
    only counts sees nothing. The file as it was is kept beside it, hidden, for `restore_day`; a second call spoils the
    file further.

    Args:
        folder: As it was given to `write_orders`.
        day: Day in UTC.

    Returns:
        What was changed, in one sentence.

    Raises:
        ConfigurationError: The day has no file, or fewer than three orders. The file is as it was.
    """
    file = file_of(folder, day)
    orders = _read(file)
    if orders.num_rows < 3:
        raise ConfigurationError(
            f"`{file}` has {orders.num_rows} orders; one to change, one to delete and one to double are needed.",
            state=NOTHING_WRITTEN,
            remedy="Choose a day with three orders or more.",
        )
    last = orders.num_rows - 1
    gone = orders.num_rows // 2
    keep = [*range(gone), *range(gone + 1, orders.num_rows), last]
    amounts = orders["amount"].to_pylist()
    ids = orders["order_id"].to_pylist()
    changed = amounts[0] + _CENT
    column = orders.schema.get_field_index("amount")
    spoiled = orders.set_column(
        column, COLUMNS.field("amount"), pa.array([changed, *amounts[1:]], pa.decimal128(18, 2))
    )

    before = _kept_beside(file)
    if not before.exists():
        copy = before.with_name(f"{before.name}.part")
        shutil.copy2(file, copy)
        copy.replace(before)
    write_file(spoiled.take(pa.array(keep)), file)
    return (
        f"{day.isoformat()}: the amount of order {ids[0]} is {changed} instead of {amounts[0]}, order {ids[gone]} "
        f"is gone, order {ids[last]} is there twice."
    )


def restore_day(folder: Path, day: date) -> bool:
    """Put the file of one day back as it was before `corrupt_day`, with the same modification time.

    Args:
        folder: As it was given to `write_orders`.
        day: Day in UTC.

    Returns:
        Whether there was anything to put back.
    """
    file = file_of(folder, day)
    before = _kept_beside(file)
    if not before.exists():
        return False
    before.replace(file)
    return True


def _kept_beside(file: Path) -> Path:
    """Return where a file is kept while it is spoiled; Spark does not list names that start with a dot."""
    return file.with_name(f".{file.name}.before")


def _read(file: Path) -> pa.Table:
    try:
        return pq.ParquetFile(file).read()
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"`{file}` is not there.",
            state=NOTHING_WRITTEN,
            remedy="Choose a day that was written, or write it first with `backfill-assets demo`.",
        ) from error
