"""A job that dies half-way, and is started again from the start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.ports import Scan
from backfill_assets.core.state.surveys import Survey
from backfill_assets.sources.files.source import FilesSource
from examples.hazards.scene import SPEC, Case, SafeTable, Scene, days_left_out
from examples.hazards.shop import FIRST_DAY, LAST_DAY, NOW, Shop, write_export

DAYS_PER_CHUNK = 2
DIES_IN_CHUNK = 3


class SourceGoneError(Exception):
    """The source closed the connection in the middle of it all, as sources do at night."""


def run(spark: SparkSession, root: Path, shop: Shop) -> Iterator[Case]:
    """Append in chunks, die, append again; then the safe way."""
    yield append_again(Scene(spark, root / "append_again", shop))
    yield safe(Scene(spark, root / "safe", shop))


def append_again(scene: Scene) -> Case:
    """Each chunk is one atomic commit; the job as a whole is not."""
    write_export(scene.export, scene.shop.as_of(NOW))
    committed = _died(lambda: _append_chunks(scene, dies_in_chunk=DIES_IN_CHUNK))
    chunks = _append_chunks(scene)
    return Case("append_again", scene.wrong(), {"committed": committed, "chunks": chunks})


def _append_chunks(scene: Scene, *, dies_in_chunk: int | None = None) -> int:
    exported, first, chunk = scene.exported(), FIRST_DAY, 0
    while first <= LAST_DAY:
        chunk, after = chunk + 1, first + timedelta(days=DAYS_PER_CHUNK)
        if chunk == dies_in_chunk:
            raise SourceGoneError(chunk - 1)
        rows = exported.where((F.col("dt") >= F.lit(first)) & (F.col("dt") < F.lit(after)))
        rows.write.format("delta").partitionBy("dt").mode("append").save(scene.table)
        first = after
    return chunk


def safe(scene: Scene) -> Case:
    """The same death in a launch; then it is launched again for what is missing, and once more for everything."""
    write_export(scene.export, scene.shop.as_of(NOW))
    table = SafeTable(scene, SPEC.model_copy(update={"live": None}))
    dying = GoneInChunk(scene.spark, table.spec, table.files().source, str(scene.export))
    committed = _died(lambda: table.launch_all(source=dying, max_partitions_per_chunk=DAYS_PER_CHUNK))
    resumed = table.launch_all(max_partitions_per_chunk=DAYS_PER_CHUNK, only="missing")
    table.launch_all()
    return Case("safe", scene.wrong(), {"committed": committed, "left_out": days_left_out(resumed)})


class GoneInChunk(FilesSource):
    """The export, until it is gone in the same chunk."""

    staged = 0

    def scan(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Scan[DataFrame]:
        """Prepare the read of a chunk; not of the one that is fatal."""
        if self.staged + 1 == DIES_IN_CHUNK:
            raise SourceGoneError(self.staged)
        self.staged += 1
        return super().scan(partitions, surveys)


def _died(job: Callable[[], object]) -> int:
    """Run a job that dies; return how many chunks it had committed."""
    try:
        job()
    except SourceGoneError as error:
        return int(error.args[0])
    raise AssertionError("the job was to die half-way, and did not")
