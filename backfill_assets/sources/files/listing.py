"""The files below a folder, as Spark lists them: in any storage that Spark reads, with its credentials."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.calendar.layouts import Layout
from backfill_assets.core.calendar.partitions import Grid
from backfill_assets.core.calendar.windows import Window, midnight_utc
from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.state.tallies import instant_of
from backfill_assets.errors import NOTHING_WRITTEN, SourceMissingError, SourceRepeatedError
from backfill_assets.sources.files.links import identity
from backfill_assets.sources.files.local_files import (
    SUMMARIES,
    FoundFile,
    files_below,
    files_unseen,
    left_in,
)
from backfill_assets.sources.files.table_logs import (
    HIVE,
    MARKERS,
    above,
    is_hive_folder,
    kind_by_names,
    refuse_link_into_table,
    refuse_table_at,
    table_folder,
)
from backfill_assets.spark.local_disk import seen_as_spark_does
from backfill_assets.spark.storage import all_match, is_there, literal_path

PACKED = (".gz", ".zst", ".bz2", ".xz", ".lz4", ".snappy", ".deflate")

_COPIED = ("~", ".bak", ".orig", ".tmp", ".part", ".filepart")
"""What editors and copies that were broken off put behind a name."""

_PUT_BEHIND = re.compile(f"(?:{'|'.join(map(re.escape, (*PACKED, *_COPIED)))})+$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class SourceFile:
    """One file of the manifest.

    Args:
        path: As Spark lists it, unescaped.
        window: The time that its folder or its name stands for; `ANY_TIME` if they say nothing.
        modified_micros: Microseconds since 1970.
        uri: As Spark names it beside a row that it read, escaped.
        file_id: A 64-bit hash of the `uri`, which is what rows carry: a long path beside each of millions would cost
            much memory.
        name: Below the root: what stays when all of it moves to another place.
    """

    path: str
    window: Window
    size_bytes: int
    modified_micros: int
    uri: str
    file_id: int
    name: str


@dataclass(frozen=True, slots=True)
class Listing:
    """What lies below a root.

    Args:
        files: Those that belong to the history.
        unseen: Those that would, and that Spark does not see.
        by_time: Windows of files that were left out for when they were modified.
        strange: Paths that do not fit the layout.
    """

    files: list[SourceFile]
    unseen: list[SourceFile]
    by_time: set[Window]
    strange: list[str]

    @property
    def every(self) -> list[SourceFile]:
        """The files that belong to the history, whether Spark sees them or not."""
        return self.files + self.unseen


def list_files(
    spark: SparkSession,
    key: str,
    source: FilesSpec,
    layout: Layout,
    root: str,
    *,
    grid: Grid | None = None,
    top: str | None = None,
) -> Listing:
    """List every file below a root.

    Files and folders whose names start with `.` or `_` are not looked at: everywhere in Spark, and here without the two
    exceptions that it makes for summaries of Parquet files.

    Args:
        key: Of the table, for the message.
        grid: Of the table: which times are one partition. Files whose time is over when it begins do not belong to the
            history. Without it all do.
        top: The lakehouse's root, above which nothing is looked at.

    Raises:
        SourceMissingError: The root is not there.
        TableFolderError: The root, or a folder above or below it, is a table.
        SourceRepeatedError: A link makes a file appear twice in one partition.
    """
    refuse_table_above(spark, root, top)
    found, unseen = every_file(spark, key, root)
    begin_utc = midnight_utc(source.begins(grid.start), grid.zone) if grid else None
    listing, hidden = Listing([], [], set(), []), {file.path for file in unseen}
    for path, size_bytes, modified_micros, uri, file_id in [*found, *unseen]:
        name = below_root(root, path)
        window = layout.window_of(name)
        if window is None:
            listing.strange.append(path)
        elif begin_utc is not None and window.end_utc <= begin_utc:
            continue
        elif size_bytes and not _modified_within(source, modified_micros):
            listing.by_time.add(window)
        else:
            into = listing.unseen if path in hidden else listing.files
            into.append(SourceFile(path, window, size_bytes, modified_micros, uri, file_id=file_id, name=name))
    if known := kind_by_names(
        [*(file.name for file in listing.every), *(below_root(root, p) for p in listing.strange)]
    ):
        raise table_folder(f"{root.rstrip('/')}/{known[0]}".rstrip("/"), known[1])
    _refuse_repeated(key, listing.files, grid)
    return listing


def every_file(spark: SparkSession, key: str, root: str) -> tuple[list[FoundFile], list[FoundFile]]:
    """Return the files below a root that Spark sees, and those that it does not.

    Args:
        key: Of the table, for the message.

    Raises:
        SourceMissingError: The root is not there.
    """
    here = seen_as_spark_does(spark, root)
    if here is not None and not os.path.lexists(here):
        raise _missing(key, root)
    try:
        found = files_below(spark, root)
        return (_listed_by_spark(spark, root), files_unseen(spark, root)) if found is None else (found, [])
    except AnalysisException as error:
        raise _missing(key, root) from error


def _missing(key: str, root: str) -> SourceMissingError:
    return SourceMissingError(
        f"`{key}`: the folder `{root}` is not there, or cannot be listed.",
        state=NOTHING_WRITTEN,
        remedy="Put the files there, or correct the path, `source.path` in a spec (a relative one is below "
        "`landing/`).",
        path=root,
    )


def refuse_table_above(spark: SparkSession, root: str, top: str | None = None) -> None:
    """Refuse a root that is a table, or lies in one: hidden names say so, which no listing shows.

    Args:
        top: The lakehouse's root, above which nothing is looked at.

    Raises:
        TableFolderError: It does.
    """
    if is_hive_folder(root):
        raise table_folder(root, HIVE)
    for folder in above(root, top):
        local = seen_as_spark_does(spark, folder)
        if local is not None:
            refuse_table_at(str(local))
        elif all_match(spark, [f"{literal_path(folder)}/{{{','.join(MARKERS)}}}"]):
            for pattern, what in MARKERS.items():
                if all_match(spark, [f"{literal_path(folder)}/{pattern}"]):
                    raise table_folder(folder, what)
    here = seen_as_spark_does(spark, root)
    if here is not None and os.path.realpath(here) != os.path.normpath(here):
        refuse_link_into_table(str(here))


def below_root(root: str, path: str) -> str:
    """Return the name of a listed path below its root."""
    return path[len(as_listed(root, path)) :].lstrip("/")


def newest_change(spark: SparkSession, root: str) -> datetime | None:
    """Return when the newest file below a root was changed; None if there is none."""
    found = files_below(spark, root)
    if found is None:
        found = _listed_by_spark(spark, root) if is_there(spark, root) else []
    return instant_of(max((file.modified_micros for file in found), default=None))


def _listed_by_spark(spark: SparkSession, root: str) -> list[FoundFile]:
    """List a folder of any storage."""
    below = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(literal_path(root))
    modified = F.unix_micros("modificationTime").alias("modified")
    beside = F.col("_metadata.file_path").alias("uri"), file_id_of_row().alias("file_id")
    listed = below.select("path", "length", modified, *beside).collect()
    every = {re.sub(r"^file:/+", "file:/", uri) for uri in below.inputFiles()}
    without_bytes = sorted(every - {row["uri"] for row in listed})  # Spark makes no task for these
    found = [
        FoundFile(row["path"], int(row["length"]), int(row["modified"]), row["uri"], row["file_id"]) for row in listed
    ]
    found += [FoundFile(unquote(uri), 0, 0, uri, 0) for uri in without_bytes]
    return [file for file in found if file.path.rpartition("/")[2] not in SUMMARIES]


def _refuse_repeated(key: str, files: Sequence[SourceFile], grid: Grid | None) -> None:
    """Refuse a file that one partition has more than once, by a link to it or to its folder.

    Links are followed on local disks only; elsewhere there are none.
    """
    seen: dict[tuple[int, int], list[SourceFile]] = {}
    for file in files:
        seen.setdefault((file.size_bytes, file.modified_micros), []).append(file)
    for alike in seen.values():
        known: dict[object, SourceFile] = {}
        for file in sorted(alike, key=lambda file: file.window.start_utc) if len(alike) > 1 else ():
            name = identity(file.path)
            if (other := known.get(name)) is not None and _meet(other.window, file.window, grid):
                raise SourceRepeatedError(
                    f"`{key}`: `{file.path}` and `{other.path}` are one file, by a link; its rows would be counted "
                    "twice.",
                    state=NOTHING_WRITTEN,
                    remedy="Remove the link, or put it outside of the source's root.",
                    path=file.path,
                )
            known[name] = file


def refuse_copies(key: str, files: Sequence[SourceFile]) -> None:
    """Refuse a file beside its packed twin, or beside its copy: `zstd` keeps what it packs, as a killed `gzip` does."""
    seen: dict[str, SourceFile] = {}
    for file in files:
        other = seen.setdefault(unpacked_name(file.path), file) if file.size_bytes else file
        if other is not file:
            first, second = sorted((file.path, other.path))
            raise SourceRepeatedError(
                f"`{key}`: `{first}` and `{second}` have one name but for how they are packed or kept: one is a "
                "copy of the other; its rows would be counted twice.",
                state=NOTHING_WRITTEN,
                remedy="Remove the copy, or put it outside of the source's root.",
                path=second,
            )


def unpacked_name(path: str) -> str:
    """Return a file's path without what says how it is packed, or that it is a copy that somebody kept."""
    return _PUT_BEHIND.sub("", path)


def _meet(first: Window, second: Window, grid: Grid | None) -> bool:
    """Say whether there is a partition to which both of two windows, the earlier one first, may give rows."""
    if grid is None or first == second:
        return first == second
    last = grid.covering(Window(first.end_utc - timedelta(microseconds=1), first.end_utc))
    return bool(last) and second.start_utc < last[0].window.end_utc


def _modified_within(source: FilesSpec, modified_micros: int) -> bool:
    modified = instant_of(modified_micros)
    assert modified is not None  # noqa: S101 (it is a number)
    return (source.modified_after is None or source.modified_after <= modified) and (
        source.modified_before is None or modified < source.modified_before
    )


def left_below(spark: SparkSession, folder: str) -> str | None:
    """Return what a job or a copy that goes on or has failed left below a folder without data; None if it is empty."""
    local = seen_as_spark_does(spark, folder)
    if local is not None:
        found = left_in(str(local))
        return f"`{found}`" if found else None
    below = literal_path(folder.rstrip("/"))
    hidden = any(all_match(spark, [f"{below}/{depth}{_LEFT}"]) for depth in ("", "*/"))
    return "a hidden file or folder" if hidden else None


_LEFT = "{_[!Smc]*,.[!_]*,*._COPYING_}"
"""Pattern of Hadoop: names that Spark hides, but for marks of an end (`_SUCCESS`), summaries and checksums of both."""


def file_id_of_row() -> Column:
    """Return the file of a row: the `file_id` of the listing."""
    return F.xxhash64("_metadata.file_path")


def paths_of(files: Sequence[SourceFile]) -> list[str]:
    """Return the paths of files as Spark's readers want them."""
    return [literal_path(file.path) for file in files]


def as_listed(root: str, listed: str) -> str:
    """Return the root in the form in which Spark lists the files below it: with the storage's scheme."""
    root = re.sub(r"(?<!:)(?<!:/)/{2,}", "/", root).rstrip("/")  # as Hadoop does
    for form in (root, f"file:{root}", f"file://{root}"):
        if listed.startswith(form + "/"):
            return form
    bare = re.sub(r"^\w+:/*", "/", root)
    host = re.match(r"\w+:(//[^/]*)?", listed)  # may have the name of the folder in its own
    behind = listed.find(bare, host.end() if host else 0)
    return listed[: (behind if behind >= 0 else listed.index(bare)) + len(bare)]
