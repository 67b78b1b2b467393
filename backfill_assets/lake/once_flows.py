"""What once-flows need of a table besides a launch: a reset that cannot be lost, and a lock against two runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from backfill_assets.core.state.receipts import Receipt
from backfill_assets.errors import NOTHING_WRITTEN, TableLockedError
from backfill_assets.lake.locks import table_lock
from backfill_assets.lake.paths import flow_path
from backfill_assets.lake.saving import saving
from backfill_assets.lake.table import LakeTable
from backfill_assets.table.commit_files import file_options


def record_reset(table: LakeTable, receipt: Receipt) -> None:
    """Make a commit without rows that carries the receipt of a reset; the table's content stays as it is.

    In the table's own log it lives as long as what it resets, whatever becomes of Dagster's database.

    Raises:
        TableLockedError: Another writer holds the lock. Nothing was reset; a retry is safe.
        CommitConflictError: Another writer came between. Nothing was reset; a retry is safe.
        UnsafeWriteError: There is no table. Nothing was reset, and none was made.
    """
    with saving(table.path, table.spec.key, timeout_seconds=table.lock_timeout_seconds):
        empty = table.no_rows().write.format("delta").mode("append")
        empty = empty.options(**file_options(table.spark, table.path))
        empty.option("userMetadata", receipt.to_json()).save(table.path)


@contextmanager
def flow_lock(table: LakeTable, flow: str) -> Iterator[None]:
    """Keep a once-flow from running twice at once on this machine; a process that dies releases it.

    Storages other than a local disk have no such lock: there two runs of one flow write the same content twice.

    Raises:
        TableLockedError: The flow runs already, or is being reset.
    """
    with ExitStack() as locked:
        try:
            locked.enter_context(table_lock(flow_path(table.path, flow), timeout_seconds=0))
        except TableLockedError as error:
            raise TableLockedError(
                f"`{table.spec.key}`: the once-flow `{flow}` is running already, in another process or thread.",
                state=NOTHING_WRITTEN,
                remedy="Wait for that run to end; the next launch does what is left.",
            ) from error
        yield
