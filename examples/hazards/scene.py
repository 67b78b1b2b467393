"""Where a hazard happens: folders of its own, the stream as people write it, and the safe way on the same data."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from backfill_assets.core.history.outcomes import Outcome, Published
from backfill_assets.core.history.plan import Launch, LeftOut
from backfill_assets.core.history.ports import Source
from backfill_assets.core.history.publish import materialize
from backfill_assets.core.live.fence_moves import Move, move_fence
from backfill_assets.core.live.ports import Effects
from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.receipts import Run
from backfill_assets.lake.table import LakeTable
from backfill_assets.live.live_table import LiveTable
from backfill_assets.live.writer import BatchReport, LiveWriter
from backfill_assets.sources.files.source import FilesSource
from examples.hazards.shop import (
    COLUMNS,
    FIRST_DAY,
    LAST_DAY,
    NOW,
    STREAM_BEGAN,
    Order,
    Shop,
    Wrong,
    lines_of,
    wrong_rows,
)

DDL = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
PATIENCE_SECONDS = 90

SPEC = TableSpec.model_validate(
    {
        "key": "bronze/orders",
        "columns": COLUMNS,
        "key_columns": ["order_id"],
        "latest_wins_by": ["updated_at"],
        "event_time": "ordered_at",
        "grain": "daily",
        "start": FIRST_DAY,
        "source": {"kind": "files", "path": "orders", "format": "parquet"},
        "live": {"path": "events", "starts": STREAM_BEGAN.date(), "trigger_seconds": 0.5},
    }
)


@dataclass(frozen=True, slots=True)
class Case:
    """How one case ended.

    Args:
        name: What was done; `safe` for the way of this project.
        facts: Numbers that belong to the story.
    """

    name: str
    wrong: Wrong
    facts: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(slots=True)
class Scene:
    """One case: a table, an export and a landing folder below a folder of its own."""

    spark: SparkSession
    root: Path
    shop: Shop
    _files: int = field(default=0, init=False)

    @property
    def table(self) -> str:
        return str(self.root / "tables" / "orders")

    @property
    def export(self) -> Path:
        return self.root / "landing" / "orders"

    @property
    def landing(self) -> Path:
        return self.root / "landing" / "events"

    def land(self, events: Iterable[Order]) -> None:
        """Land events as one file, by a rename."""
        self.landing.mkdir(parents=True, exist_ok=True)
        self._files += 1
        hidden = self.landing / f".{self._files:04d}.json"
        hidden.write_text(lines_of(events), encoding="utf-8")
        hidden.rename(self.landing / f"{self._files:04d}.json")

    def wrong(self, truth: Iterable[Order] | None = None) -> Wrong:
        """Count the rows of the table that differ from the truth: the shop as it is now, unless another is given."""
        rows = self.spark.read.format("delta").load(self.table).select(*map(_comparable, COLUMNS)).collect()
        return wrong_rows(self.shop.as_of(NOW) if truth is None else truth, (row.asDict() for row in rows))

    # -- as people write it --------------------------------------------------------------------------------------------

    def exported(self) -> DataFrame:
        """Return the export's rows, with their day."""
        files = self.spark.read.schema(DDL).option("recursiveFileLookup", "true").parquet(str(self.export))
        return files.withColumn("dt", F.to_date("ordered_at"))

    @contextmanager
    def appending_stream(self) -> Iterator[StreamingQuery]:
        """Append whatever lands, for as long as the block lasts."""
        self.landing.mkdir(parents=True, exist_ok=True)
        events = self.spark.readStream.schema(DDL).json(str(self.landing)).withColumn("dt", F.to_date("ordered_at"))
        writer = (
            events.writeStream.format("delta")
            .partitionBy("dt")
            .option("checkpointLocation", str(self.root / "checkpoint"))
        )
        query = writer.trigger(processingTime="200 milliseconds").start(self.table)
        try:
            yield query
        finally:
            query.stop()


def _comparable(name: str) -> Any:
    """Return a column in a form that does not depend on the zone of who reads it."""
    kind = COLUMNS[name]
    value = (
        F.unix_micros(name)
        if kind == "timestamp"
        else F.col(name).cast("string")
        if kind.startswith("decimal")
        else F.col(name)
    )
    return value.alias(name)


# -- the safe way ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SafeTable:
    """The table of a scene, written with this project's parts alone."""

    scene: Scene
    spec: TableSpec = SPEC
    written: int = field(default=0, init=False)

    @property
    def delta(self) -> LakeTable:
        return LakeTable(self.scene.spark, self.spec, self.scene.table)

    def files(self) -> FilesSource:
        """Return the export as a source."""
        assert isinstance(self.spec.source, FilesSpec)  # noqa: S101 (SPEC says so)
        return FilesSource(self.scene.spark, self.spec, self.spec.source, str(self.scene.export))

    def launch(self, first: str, last: str, source: Source[DataFrame] | None = None, **how: Any) -> list[Outcome]:
        """Launch a range of partitions, as Dagster would; both ends included."""
        self.delta.create()
        launch = Launch(Run("demo"), **how)
        return list(
            materialize(self.spec, self.spec.grid.between(first, last), source or self.files(), self.delta, launch)
        )

    def launch_all(self, **how: Any) -> list[Outcome]:
        """Launch every day of the week."""
        return self.launch(FIRST_DAY.isoformat(), LAST_DAY.isoformat(), **how)

    def move_fence(self, at: datetime) -> Move:
        """Move the fence, whoever writes meanwhile."""
        return move_fence(self.spec, LiveTable(self.delta), at, Effects())

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Write the live stream for as long as the block lasts."""
        assert self.spec.live is not None  # noqa: S101 (SPEC says so)
        self.scene.landing.mkdir(parents=True, exist_ok=True)
        checkpoint = str(self.scene.root / "checkpoint")
        writer = LiveWriter(LiveTable(self.delta), self.spec.live, str(self.scene.landing), checkpoint, self._count)
        stop, failures = threading.Event(), list[Exception]()

        def run() -> None:
            try:
                writer.run(stop=stop)
            except Exception as error:  # noqa: BLE001 (raised again below, where somebody hears it)
                failures.append(error)

        thread = threading.Thread(target=run, name="live")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if failures:
            raise failures[0]

    def wait_for(self, events: int) -> None:
        """Wait until so many events are written, in the table or beside it."""
        until = time.monotonic() + PATIENCE_SECONDS
        while self.written < events:
            if time.monotonic() > until:
                raise TimeoutError(f"{self.written:,} of {events:,} events were written within {PATIENCE_SECONDS} s")
            time.sleep(0.1)

    def _count(self, batch: BatchReport) -> None:
        self.written += batch.rows


def days_published(outcomes: Iterable[Outcome]) -> int:
    """Return how many days a launch published."""
    return sum(len(outcome.partitions) for outcome in outcomes if isinstance(outcome, Published))


def days_left_out(outcomes: Iterable[Outcome]) -> int:
    """Return how many days a launch did not touch."""
    return sum(len(outcome.partitions) for outcome in outcomes if isinstance(outcome, LeftOut))
