"""A stop that Spark takes part in: its jobs are cancelled, and nobody leaves before the last one's end is known.

Dagster stops a run by an exception in the main thread, wherever that is. In the middle of a call to Spark's JVM it
would leave the answer unread: the next call waits for the job that was to be stopped, and takes its answer for its own.
So a run makes the calls that take long in a thread of their own, and the main thread only waits for them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

import dagster as dg
from dagster._utils.interrupts import capture_interrupts

from backfill_assets.runs.resources import Lakehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Made = TypeVar("Made")

STOP_SECONDS = 20.0
"""How long a run that is stopped waits for Spark; Dagster takes a run for dead some time after."""

STILL_WORKS = "Spark has not ended."
"""Note of a stop after which Spark may still commit."""

_AGAIN_SECONDS = 0.25
_END = object()


def iterate_in_thread(work: Iterator[Made], lakehouse: Lakehouse, log: Callable[[str], None]) -> Iterator[Made]:
    """Yield what `work` yields, each made in a thread of its own; `work` goes on only when the next one is asked for.

    If this thread is stopped while it waits, Spark's jobs of this session are cancelled until that thread has come to
    its end: a commit is then in the table, or never will be.

    Args:
        log: Called with one sentence if Spark does not end in time.
    """
    spark = lakehouse.spark
    asked: SimpleQueue[bool] = SimpleQueue()
    made: SimpleQueue[tuple[Made | object, BaseException | None]] = SimpleQueue()

    def make() -> None:
        while asked.get():
            try:
                made.put((next(work, _END), None))
            except BaseException as error:  # noqa: BLE001 (raised again where it is waited for)
                made.put((_END, error))

    worker = threading.Thread(target=make, name="spark-calls", daemon=True)
    worker.start()
    try:
        while True:
            asked.put(True)
            value, error = made.get()
            if error is not None:
                raise error
            if value is _END:
                return
            yield value  # type: ignore[misc] (`_END` was the other type)
    except dg.DagsterExecutionInterruptedError as error:
        asked.put(False)
        with capture_interrupts():  # whoever stops it twice does not leave Spark at work
            has_ended = _cancelled(spark, worker)
        if not has_ended:
            error.add_note(STILL_WORKS)
            log(
                f"Spark was told to stop, and has not ended after {STOP_SECONDS:.0f} s; what it still does may be "
                "published."
            )
        raise
    finally:
        asked.put(False)


def _cancelled(spark: SparkSession, worker: threading.Thread) -> bool:
    """Cancel Spark's jobs until a thread has ended: between two jobs there is none to cancel. Return whether it has."""
    until = time.monotonic() + STOP_SECONDS
    while worker.is_alive() and time.monotonic() < until:
        spark.interruptAll()
        worker.join(_AGAIN_SECONDS)
    return not worker.is_alive()


def _one(call: Callable[[], Made]) -> Iterator[Made]:
    yield call()


def result_in_thread(call: Callable[[], Made], lakehouse: Lakehouse, log: Callable[[str], None]) -> Made:
    """Return what a call returns, made in another thread as `iterate_in_thread` does."""
    (value,) = iterate_in_thread(_one(call), lakehouse, log)
    return value
