"""What landed, held against what the stream has listed: files that wait, that are gone, that have changed since.

And which of those somebody has dealt with.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.history.ports import Source
from backfill_assets.core.live.checks import ChangedFile
from backfill_assets.core.live.receipts import is_batch
from backfill_assets.lake.table import LakeTable
from backfill_assets.live.live_table import LiveTable
from backfill_assets.sources.version import VersionSource
from backfill_assets.spark.local_disk import local_path, seen_as_spark_does
from backfill_assets.spark.storage import is_there, literal_path, those_there


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
    listed = _listed(spark, log).select("path", "timestamp").distinct()
    if not is_there(spark, folder):
        return [], listed.count()
    differs = F.when(F.col("changed") != F.col("timestamp"), F.struct("path", "changed"))
    found_there = listed.join(_landed(spark, folder), "path", "left")
    (found,) = found_there.agg(F.sort_array(F.collect_list(differs)).alias("files"), F.count("*").alias("n")).collect()
    said = _said(spark, checkpoint) if found["files"] else {}
    changed = [ChangedFile(path, at, said.get((path, at), "")) for path, at in found["files"]]
    return changed, int(found["n"])


def ask_checkpoint(source: Source[DataFrame], checkpoint_path: Callable[[str], str]) -> None:
    """Let the source that an earlier version with a stream is hear what that stream has listed."""
    if isinstance(source, VersionSource) and source.landing and isinstance(source.before, LakeTable):
        checkpoint = checkpoint_path(source.before.spec.key)
        source.drained_until = partial(drained_until, LiveTable(source.before), checkpoint, source.landing)


def drained_until(table: LiveTable, checkpoint: str, folder: str, clock: Callable[[], datetime]) -> datetime | None:
    """Return the instant such that a stream has written all that landed before it: now, if no file waits.

    A file that waits may be older than one that is written: it keeps its time when it is renamed or copied. If it has a
    time that is still to come, nobody knows since when it waits.

    Returns:
        None where the stream has listed nothing, or keeps its checkpoint elsewhere.
    """
    spark, fence, now = table.table.spark, table.fence(), clock()
    notes = f"{checkpoint}/{fence.stream}" if fence and fence.stream else ""
    if not fence or not notes or not is_there(spark, f"{notes}/sources/0"):
        return None
    newest = table.find(is_batch(fence.stream))
    number = newest.batch if newest else fence.last_batch
    until = _listed_up_to(spark, f"{notes}/offsets/{number}") if number >= 0 else -1
    if until is None or not is_there(spark, folder):
        return None if until is None else now
    written = _listed(spark, f"{notes}/sources/0").where(F.col("batchId") <= until)
    waiting = _landed(spark, folder).join(written, "path", "left_anti")
    (found,) = waiting.agg(F.min("changed").alias("first"), F.max("changed").alias("last")).collect()
    if found["first"] is None:
        return now
    first, last = (datetime.fromtimestamp(found[name] / 1_000, UTC) for name in ("first", "last"))
    return first if last < clock() else datetime.min.replace(tzinfo=UTC)  # it may have landed since `now`


def gone_before_read(spark: SparkSession, checkpoint: str, stream: str, number: int) -> list[str]:
    """Return the files that a stream has listed for a batch, and that are gone: Spark would read on without them."""
    until = _listed_up_to(spark, f"{checkpoint}/{stream}/offsets/{number}")
    after = _listed_up_to(spark, f"{checkpoint}/{stream}/offsets/{number - 1}") if number else -1
    if until is None or after is None:
        return []
    listed: list[str] = []
    for listing in range(after + 1, until + 1):
        note, of_note = f"{checkpoint}/{stream}/sources/0/{listing}", f'"batchId":{listing}}}'
        lines = _lines(spark, note, of_note) or _lines(spark, f"{note}.compact", of_note)
        listed += [json.loads(line)["path"] for line in lines]
    plain = {re.sub(r"^file:/+", "file:/", unquote(path)): path for path in listed}
    lacking = plain.keys() - those_there(spark, list(plain))
    return sorted(path for path in lacking if not is_there(spark, plain[path]))


def _listed_up_to(spark: SparkSession, noted: str) -> int | None:
    """Return up to where the list of files is meant in a batch's note; None if there is none."""
    lines = _lines(spark, noted, '{"logOffset"')
    return int(json.loads(lines[0])["logOffset"]) if lines else None


def _lines(spark: SparkSession, path: str, text: str) -> list[str]:
    """Return the lines of a file of the checkpoint in which a text is; none if there is no such file."""
    local = seen_as_spark_does(spark, path)
    try:
        if local is not None:
            with local.open(encoding="utf-8") as lines:
                return [line for line in lines if text in line]
        rows = spark.read.text(literal_path(path)).where(F.col("value").contains(text)).collect()
    except (AnalysisException, FileNotFoundError):
        return []
    return [row["value"] for row in rows]


def _listed(spark: SparkSession, log: str) -> DataFrame:
    """Return what a stream has listed: path, time in milliseconds, and the note of its log in which that was."""
    entry = F.from_json("value", "path STRING, timestamp BIGINT, batchId BIGINT").alias("entry")
    entries = spark.read.text(literal_path(log)).where("value LIKE '{%'").select(entry)
    return entries.select(one_spelling("entry.path").alias("path"), "entry.timestamp", "entry.batchId")


def _landed(spark: SparkSession, folder: str) -> DataFrame:
    """Return the files that lie in a folder now: path, and time in milliseconds."""
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(literal_path(folder))
    return files.select(
        one_spelling("_metadata.file_path").alias("path"),
        F.unix_millis("_metadata.file_modification_time").alias("changed"),
    )


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
