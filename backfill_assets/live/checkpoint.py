"""Whose checkpoint it is: it names its table, the folder of its events, and the stream that the table names in turn."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.live.ownership import has_written
from backfill_assets.errors import StreamMismatchError
from backfill_assets.live.live_table import LiveTable
from backfill_assets.spark.storage import is_there, literal_path

NOTHING_LOST = "Nothing was written; the events wait where they landed."


def stream_of_checkpoint(checkpoint: str, table: LiveTable, folder: str, *, is_new: bool) -> str:
    """Return the id of the stream that a checkpoint is of; make one if there is none.

    A table that was made again has no stream, whatever an earlier one of its name had written by this checkpoint: it
    gets a new one, which begins with the first event that landed.

    Args:
        checkpoint: Folder of Spark's checkpoint.
        folder: Where the events land.
        is_new: Whether to start another stream in it, whatever it holds.

    Raises:
        StreamMismatchError: It is another table's, or was made for another folder; or Spark's part of it is gone.
    """
    spec, spark = table.table.spec, table.table.spark
    mine = {"table": spec.key, "folder": folder}
    found = None if is_new else _owner(spark, checkpoint, table)
    if found is None:
        return _new_stream(spark, checkpoint, mine)
    if {name: found.get(name) for name in mine} != mine:
        raise StreamMismatchError(
            f"The checkpoint `{checkpoint}` belongs to `{found.get('table')}` with the events in "
            f"`{found.get('folder')}`, not to `{spec.key}` with those in `{folder}`.",
            state=NOTHING_LOST,
            remedy="Use a checkpoint of its own for each table. If the folder was moved on purpose: seal the live "
            f"partitions, launch them, and start with `backfill-assets live {spec.key} --new-stream`.",
        )
    fence, notes = table.fence(), f"{checkpoint}/{found['stream']}"
    is_kept = is_there(spark, notes)
    if fence is not None and fence.stream == found["stream"] and not is_kept and has_written(table, fence):
        raise StreamMismatchError(
            f"`{spec.key}` belongs to stream `{fence.stream}`, and what that had noted in `{notes}` is gone: it would "
            "begin again with the first file that landed.",
            state=NOTHING_LOST,
            remedy="Bring that folder back. If it is lost: seal the live partitions, launch them from their source, "
            f"then `backfill-assets live {spec.key} --new-stream`.",
        )
    if fence is not None and not fence.stream and is_kept:
        table.table.log(
            f"`{spec.key}` was made again since stream `{found['stream']}` wrote it: each event that landed is written."
        )
        return _new_stream(spark, checkpoint, mine)
    return found["stream"]


def _new_stream(spark: SparkSession, checkpoint: str, mine: Mapping[str, str]) -> str:
    """Note that a stream of this table and folder begins in a checkpoint; return its id."""
    owner = {**mine, "stream": uuid.uuid4().hex[:12], "made_at": datetime.now(UTC).isoformat()}
    made = spark.range(1).select(F.lit(json.dumps(owner)).alias("value")).coalesce(1)
    made.write.mode("append").text(f"{checkpoint}/owner")
    return owner["stream"]


def _owner(spark: SparkSession, checkpoint: str, table: LiveTable) -> dict[str, str] | None:
    """Return the stream in this checkpoint that the table belongs to; the newest if it belongs to none of them."""
    try:
        rows = spark.read.text(literal_path(f"{checkpoint}/owner")).collect()
    except AnalysisException:
        return None
    owners: list[dict[str, str]] = [json.loads(row["value"]) for row in rows]
    fence = table.fence()
    return max(
        owners,
        key=lambda owner: (fence is not None and owner["stream"] == fence.stream, owner["made_at"]),
        default=None,
    )
