"""Files that landed and are not as the stream listed them, and which of them somebody has dealt with."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.live.checks import ChangedFile
from backfill_assets.sources.files.listing import is_there, literal_path
from backfill_assets.spark.local_disk import local_path


def changed_since_listed(
    spark: SparkSession, checkpoint: str, stream: str, folder: str
) -> tuple[list[ChangedFile], int] | None:
    """Return the files that have another time than when a stream listed them, and how many files it has listed.

    A file that is replaced by an older one is among them; one that was given its old time again cannot be told.

    Returns:
        None where the stream has listed nothing, or keeps its checkpoint elsewhere. A file that is gone did not change.
    """
    log = f"{checkpoint}/{stream}/sources/0"
    if not is_there(spark, log):
        return None
    entry = F.from_json("value", "path STRING, timestamp BIGINT").alias("entry")
    entries = spark.read.text(literal_path(log)).where("value LIKE '{%'").select(entry)
    listed = entries.select(one_spelling("entry.path").alias("path"), "entry.timestamp").distinct()
    if not is_there(spark, folder):
        return [], listed.count()
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(literal_path(folder))
    now = files.select(
        one_spelling("_metadata.file_path").alias("path"),
        F.unix_millis("_metadata.file_modification_time").alias("changed"),
    )
    differs = F.when(F.col("changed") != F.col("timestamp"), F.struct("path", "changed"))
    found_there = listed.join(now, "path", "left")
    (found,) = found_there.agg(F.sort_array(F.collect_list(differs)).alias("files"), F.count("*").alias("n")).collect()
    said = _said(spark, checkpoint) if found["files"] else {}
    changed = [ChangedFile(path, at, said.get((path, at), "")) for path, at in found["files"]]
    return changed, int(found["n"])


def gone_before_read(spark: SparkSession, checkpoint: str, stream: str, number: int) -> list[str]:
    """Return the files that a stream has listed for a batch, and that are gone: Spark would read on without them."""
    until = _listed_up_to(spark, f"{checkpoint}/{stream}/offsets/{number}")
    after = _listed_up_to(spark, f"{checkpoint}/{stream}/offsets/{number - 1}") if number else -1
    if until is None or after is None:
        return []
    entry = F.from_json("value", "path STRING, batchId BIGINT").alias("entry")
    entries = spark.read.text(literal_path(f"{checkpoint}/{stream}/sources/0")).where("value LIKE '{%'").select(entry)
    of_batch = entries.where((F.col("entry.batchId") > after) & (F.col("entry.batchId") <= until))
    rows = of_batch.select("entry.path", one_spelling("entry.path").alias("plain")).distinct().collect()
    return sorted(row["plain"] for row in rows if not any(is_there(spark, row[name]) for name in ("path", "plain")))


def _listed_up_to(spark: SparkSession, noted: str) -> int | None:
    """Return up to where the list of files is meant in a batch's note; None if there is none."""
    try:
        rows = spark.read.text(literal_path(noted)).where("value LIKE '{\"logOffset\"%'").collect()
    except AnalysisException:
        return None
    return int(json.loads(rows[0]["value"])["logOffset"]) if rows else None


def acknowledge(spark: SparkSession, checkpoint: str, files: Sequence[ChangedFile], said: str) -> None:
    """Note that somebody has dealt with files as they are now; when they change again, that holds no longer.

    Args:
        said: By whom, and when.
    """
    notes = [json.dumps({"path": file.path, "changed": file.changed_millis, "said": said}) for file in files]
    made = spark.range(1).select(F.lit("\n".join(notes)).alias("value")).coalesce(1)
    made.write.mode("append").text(_notes(checkpoint))


def one_spelling(path: str) -> Column:
    """Return a path as it is spelled by whoever wrote it: with one slash or three, escaped or not."""
    plain = F.try_url_decode(F.replace(F.col(path), F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(F.coalesce(plain, F.col(path)), "^file:/+", "file:/")


def named(path: str) -> str:
    """Return a path that a person wrote, spelled as those of changed files are."""
    local = local_path(path)
    return path if local is None else f"file:{os.path.abspath(local)}"  # noqa: PTH100 (links are not resolved)


def _said(spark: SparkSession, checkpoint: str) -> dict[tuple[str, int], str]:
    """Return who has dealt with which file, by its path and its time."""
    try:
        rows = spark.read.text(literal_path(_notes(checkpoint))).collect()
    except AnalysisException:
        return {}
    notes = [json.loads(row["value"]) for row in rows]
    return {(note["path"], note["changed"]): note["said"] for note in notes}


def _notes(checkpoint: str) -> str:
    return f"{checkpoint}/acknowledged"
