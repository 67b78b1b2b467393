"""The live writer: a Structured Streaming query that hands each batch to `core.live.batches.write_batch`.

Spark's checkpoint says which files belong to which batch; the table's own log says which batches are written. So a
batch is written once, whatever was killed when. The checkpoint names the table, and the table the stream: neither can
be used with another by mistake.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from backfill_assets.core.history.effects import repeated
from backfill_assets.core.live.batches import write_batch
from backfill_assets.core.live.fence_moves import claim
from backfill_assets.core.live.ports import Effects
from backfill_assets.core.live.receipts import LiveReceipt
from backfill_assets.core.spec.live import LiveStream
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import BackfillAssetsError, LiveError, SourceMissingError, SparkGoneError, written_out
from backfill_assets.lake.locks import stream_lock, table_lock
from backfill_assets.live.changed_files import gone_before_read
from backfill_assets.live.checkpoint import NOTHING_LOST, stream_of_checkpoint
from backfill_assets.live.landing import EventBatch, landing_stream
from backfill_assets.live.live_table import LiveTable
from backfill_assets.sources.files.landed_twice import refuse_landed_twice
from backfill_assets.sources.files.listing import refuse_table_above
from backfill_assets.spark.failures import SPARK_FAILURES, first_words, translate_spark_error, translated
from backfill_assets.spark.storage import is_there

COPIED_EVERY = timedelta(hours=1)
"""So often a writer looks whether the copy of what the log tells is due."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What became of one batch.

    Args:
        lag_seconds: From when its oldest file landed until the commit was there; None for a batch without files.
        seconds: From when Spark handed the batch over until all of it was written.
        committed_at: Since when its rows could be read, by the writer's clock.
        unread_fields: Fields of its lines that no column is read from, and in how many lines they are.
    """

    receipt: LiveReceipt
    lag_seconds: float | None
    seconds: float
    committed_at: datetime
    unread_fields: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def rows(self) -> int:
        return self.receipt.rows + self.receipt.late_rows + self.receipt.quarantined_rows

    def __str__(self) -> str:
        parts = [f"batch {self.receipt.batch}: {self.receipt.rows:,} rows"]
        parts += [f"{self.receipt.late_rows:,} late"] if self.receipt.late_rows else []
        parts += [f"{self.receipt.quarantined_rows:,} quarantined"] if self.receipt.quarantined_rows else []
        parts += [f"{self.rows / max(self.seconds, 0.001):,.0f} rows per second"]
        parts += [f"{self.lag_seconds:.1f} s behind"] if self.lag_seconds is not None else []
        unread = ", ".join(f"`{written_out(name)}` in {lines:,} lines" for name, lines in self.unread_fields.items())
        return ", ".join(parts) + (f"; fields that no column is read from: {unread}" if unread else "")


@dataclass(slots=True)
class LiveWriter:
    """Writes the events of one folder into one table.

    Args:
        folder: Where the events land.
        checkpoint: Folder of Spark's checkpoint; it must outlive every restart.
        report: Called after each batch.
        accept_late: Whether the first batch of a new stream may be late almost to the last row.
        refuse: Called when no other writer can run any more, before anything is written; raises if nothing may be.
    """

    table: LiveTable
    live: LiveStream
    folder: str
    checkpoint: str
    report: Callable[[BatchReport], None] = field(default=lambda _: None)
    effects: Effects = field(default_factory=Effects)
    accept_late: bool = False
    refuse: Callable[[], None] = field(default=lambda: None)
    _stream: str = field(default="", init=False)
    _batches: int = field(default=0, init=False)
    _failure: Exception | None = field(default=None, init=False)
    _copied_at: datetime = field(default=datetime.min.replace(tzinfo=UTC), init=False)
    _writing: threading.Lock = field(default_factory=threading.Lock, init=False)
    _is_stopping: bool = field(default=False, init=False)
    _has_left_a_batch: bool = field(default=False, init=False)

    @property
    def _spec(self) -> TableSpec:
        return self.table.table.spec

    def run(self, *, once: bool = False, is_new_stream: bool = False, stop: threading.Event | None = None) -> int:
        """Write batches until stopped, or until all that has landed is written; return how many there were.

        Args:
            once: Write what has landed by now, and end.
            is_new_stream: Start over although the table belongs to a stream whose checkpoint was lost.
            stop: When it is set, the batch at hand is ended and no other is begun.

        Raises:
            SourceMissingError: The folder is not there.
            TableFolderError: The folder is a table.
            SchemaMismatchError: The table's columns are not the spec's.
            StreamMismatchError: The checkpoint belongs to another table or folder, or the table to another stream.
            FenceMoveInterruptedError: The fence was being moved, and whoever moved it is gone.
            FirstBatchLateError: The stream is new, and more than nine tenths of its first rows are late.
            TableLockedError: Another writer is running on this machine.
            LiveError: The stream ended for another reason.
        """
        if not is_there(self.table.table.spark, self.folder):
            raise SourceMissingError(
                f"`{self._spec.key}`: the folder `{self.folder}`, where events should land, does not exist.",
                state=NOTHING_LOST,
                remedy="Make it, or change `live.path` in the spec (relative paths are below `landing/`).",
                path=self.folder,
            )
        refuse_table_above(self.table.table.spark, self.folder)
        checkpoint = table_lock(self.checkpoint, timeout_seconds=1)
        with checkpoint, stream_lock(self.table.table.path):  # one writer at a time, where that can be seen
            self.refuse()
            return self._run(once, is_new_stream, stop or threading.Event())

    def _run(self, once: bool, is_new_stream: bool, stop: threading.Event) -> int:
        refuse_landed_twice(self._spec.key, self.folder)
        self.table.table.create()
        self._stream = stream_of_checkpoint(self.checkpoint, self.table, self.folder, is_new=is_new_stream)
        claim(self._spec, self.table, self._stream, self.effects, is_new=is_new_stream)
        self._copy_log()
        lines = landing_stream(self.table.table.spark, self.live, self.folder)
        location = f"{self.checkpoint}/{self._stream}"
        writer = lines.writeStream.foreachBatch(self._write).option("checkpointLocation", location)
        pause = f"{int(self.live.trigger_seconds * 1000)} milliseconds"
        trigger = {"availableNow": True} if once else {"processingTime": pause}
        query = writer.trigger(**trigger).queryName(f"live {self._spec.key}").start()  # type: ignore[arg-type] (the stubs want one by name)
        self._wait(query, stop)
        return self._batches

    def _wait(self, query: StreamingQuery, stop: threading.Event) -> None:
        """Wait for the query's end; stop it between two batches, also when this thread is stopped while it waits."""
        try:
            while query.isActive and not stop.wait(0.2):
                pass
            self._stop(query)
            query.awaitTermination()
        except SPARK_FAILURES as error:
            is_stopped = stop.is_set() and isinstance(self._failure, SparkGoneError)
            if self._failure is not None and not is_stopped:
                raise self._failure from None
            if self._has_left_a_batch:
                return
            if stop.is_set():  # whoever stopped us stopped the JVM too; the next start finds out what it had written
                self.effects.log(
                    "Spark was stopped as well; the next start continues where the log says that this one was."
                )
                return
            meant = translate_spark_error(error, self._spec.key)
            raise LiveError(
                f"`{self._spec.key}`: the stream ended: {meant.what if meant else first_words(error)}",
                state="Batches before it are written; the events of this one wait where they landed.",
                remedy="Put right what it names, and start the writer again: it continues where it was.",
            ) from None
        except BaseException:  # the query has threads of its own, and would go on after our lock was given back
            with suppress(*SPARK_FAILURES):
                self._stop(query)
            raise
        if self._failure is not None:
            raise self._failure

    def _stop(self, query: StreamingQuery) -> None:
        """Stop between two batches. Spark waits for its own thread, which may be about to call `_write`."""
        self._is_stopping = True
        with self._writing:
            query.stop()

    @contextmanager
    def _unless_stopped(self) -> Iterator[None]:
        """Let no stop come between; raise where one has: then Spark does not note the batch as written."""
        while not self._writing.acquire(timeout=0.1):
            if self._is_stopping:
                self._has_left_a_batch = True
                raise LiveError("The stream is being stopped.", state=NOTHING_LOST, remedy="Start it again.")
        try:
            yield
        finally:
            self._writing.release()

    def _write(self, lines: DataFrame, number: int) -> None:
        """Write one batch; called by Spark."""
        with self._unless_stopped():
            started = time.monotonic()
            batch = EventBatch(self._spec, self.live, number, lines)
            committed_at, tries = list[datetime](), itertools.count()

            def write() -> LiveReceipt:
                is_first = next(tries) > 0 or self._batches == 0
                self._refuse_gone(number)
                return write_batch(
                    self._spec,
                    batch,
                    self.table,
                    self._stream,
                    self.effects,
                    is_first=is_first,
                    accept_late=self.accept_late,
                    committed=lambda: committed_at.append(self.effects.now()),
                )

            failures = partial(translated, self._spec.key)
            try:
                receipt = repeated(write, self.effects, failures=failures)  # it is written once all the same
                unread = repeated(batch.unread_fields, self.effects, failures=failures)
            except BackfillAssetsError as error:
                self._failure = error
                raise
            finally:
                batch.release()
            self._batches += 1
            if self.effects.now() - self._copied_at >= COPIED_EVERY:
                self._copy_log()
            lag, seconds = _lag(receipt, committed_at[0]), time.monotonic() - started
            self._report(BatchReport(receipt, lag, seconds, committed_at[0], unread))

    def _refuse_gone(self, number: int) -> None:
        """Raise if files are there no more that were listed for a batch: perhaps with an earlier one, or start."""
        gone = gone_before_read(self.table.table.spark, self.checkpoint, self._stream, number)
        if gone:
            raise LiveError(
                f"`{self._spec.key}`: {len(gone):,} files of batch {number} landed, and are gone, first `{gone[0]}`.",
                state="Nothing of this batch was written by this start.",
                remedy="Bring them back, with the names that they had. If nobody has them any more: put a file with "
                "nothing but a line break in the place of each, packed if its name says so (`echo | gzip`); "
                "`landed_files_are_as_read` then names them.",
            )

    def _copy_log(self) -> None:
        """Keep what the table's log tells, before Delta cleans it, if that was not done for a day."""
        self._copied_at, table = self.effects.now(), self.table.table
        table.history.fill_if_due(self._copied_at, self.effects.log)

    def _report(self, report: BatchReport) -> None:
        """Tell of a batch; whoever cannot be told does not stop the stream."""
        try:
            self.report(report)
        except Exception as error:  # noqa: BLE001 (whatever it is, the batch is written)
            self.effects.log(
                f"Batch {report.receipt.batch} is written, but could not be reported: {type(error).__name__}: {error}"
            )


def _lag(receipt: LiveReceipt, committed_at: datetime) -> float | None:
    """Return the seconds from when the oldest file of a batch landed until its rows could be read."""
    return (
        None
        if receipt.landed_utc is None
        else (committed_at - datetime.fromisoformat(receipt.landed_utc[0])).total_seconds()
    )
