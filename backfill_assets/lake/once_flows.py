"""What once-flows need of a table besides a launch: a reset that cannot be lost, and a lock against running twice at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from backfill_assets.core.state.receipts import Receipt
from backfill_assets.errors import NOTHING_WRITTEN, TableLockedError
from backfill_assets.lake.delta_log import SPARK_FAILURES, in_our_words
from backfill_assets.lake.locks import table_lock
from backfill_assets.lake.table import DeltaTable


def record_reset(table: DeltaTable, receipt: Receipt) -> None:
    """Make a commit without rows that carries the receipt of a reset; the table's content stays as it is.

    In the table's own log it lives as long as what it resets, whatever becomes of Dagster's database.

    Raises:
        TableLockedError: Another writer holds the lock. Nothing was reset; a retry is safe.
        CommitConflictError: Another writer came between. Nothing was reset; a retry is safe.
    """
    try:
        with table_lock(table.path, timeout_seconds=table.lock_timeout_seconds):
            empty = table.read().limit(0).write.format("delta").mode("append")
            empty.option("userMetadata", receipt.to_json()).save(table.path)
    except SPARK_FAILURES as error:
        ours = in_our_words(error, table.spec.key)
        if ours is None:
            raise
        raise ours from error


@contextmanager
def flow_lock(table: DeltaTable, flow: str) -> Iterator[None]:
    """Keep a once-flow from running twice at once on this machine; a process that dies lets go of it.

    Storages other than a local disk have no such lock: there two runs of one flow write the same content twice.

    Raises:
        TableLockedError: The flow runs already, or is being reset.
    """
    with ExitStack() as held:
        try:
            held.enter_context(table_lock(f"{table.path}.{flow}", timeout_seconds=0))
        except TableLockedError as error:
            raise TableLockedError(
                f"`{table.spec.key}`: the once-flow `{flow}` runs already, in another process or thread.",
                state=NOTHING_WRITTEN,
                remedy="Wait for that run to end; what it leaves, the next launch does.",
            ) from error
        yield
