"""The files below a folder of this disk, listed here in milliseconds as Spark would list them in a job.

Only where that is certain: what has a name or a nature that Spark may see otherwise is left to Spark.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import xxhash
from pyspark.sql import SparkSession

from backfill_assets.sources.files.table_logs import MARKERS, refuse_link_into_table, table_folder
from backfill_assets.spark.local_disk import seen_as_spark_does

SUMMARIES = ("_metadata", "_common_metadata")
"""Files without rows that older writers put beside the others."""

MARKER = "_SUCCESS"
"""What a writer leaves in a folder when it is done."""

JOB = "_temporary"
"""Where a job keeps what it has not committed, in the folder that it writes to; it is as old as the job's start."""

_PLACEHOLDERS = {".gitkeep", ".keep", ".DS_Store"}
"""Files that keep an empty folder, where folders without files are not kept; or that a desktop leaves in any."""

_SAY_NOTHING = _PLACEHOLDERS | {name for mark in (MARKER, *SUMMARIES) for name in (mark, f".{mark}.crc")}
"""Files that a writer leaves beside no row at all: marks of an end, summaries, and Hadoop's checksums of both."""

_COPYING = "._COPYING_"

_SEED = 42
"""Of `xxhash64` in Spark."""

_ASK_SPARK = re.compile(r"[:\ud800-\udfff]")
"""In a name: a colon, which Hadoop takes for a scheme, and bytes that are not UTF-8, which Java cannot name."""

_STAY = re.compile(r"[A-Za-z0-9_!.~'()*,;$&+=@/:-]+")
"""Letters of a path that Java's URI leaves as they are, beside those that are not ASCII."""


class FoundFile(NamedTuple):
    """One file as Spark lists it; a file without bytes has neither time nor id, because Spark says nothing of it.

    Args:
        path: Unescaped.
        modified_micros: Microseconds since 1970, of whole milliseconds.
        uri: As Spark names it beside a row that it read, escaped.
        file_id: Spark's `xxhash64` of the `uri`.
    """

    path: str
    size_bytes: int
    modified_micros: int
    uri: str
    file_id: int


class _AskSparkError(Exception):
    """There is something that Spark may see otherwise."""


def files_below(spark: SparkSession, root: str) -> list[FoundFile] | None:
    """Return every file below a root on this disk, links followed; None where Spark has to be asked.

    | name or nature                                       | here                 |
    |------------------------------------------------------|----------------------|
    | `.name`, `_name`, `name._COPYING_`: file or folder   | left out, as there   |
    | `_name=value`                                        | taken, as there      |
    | a folder, or a link, with a name of a summary        | Spark is asked       |
    | a colon, or bytes that are not UTF-8                 | Spark is asked       |
    | a link that leads nowhere, or back; no file, no dir  | Spark is asked       |
    | a folder that may not be read, or that is not there  | Spark is asked       |
    """
    folder = seen_as_spark_does(spark, root)
    if folder is None or not re.match(r"/[^/]", str(folder)) or str(folder) != os.path.normpath(folder):
        return None
    try:
        _refuse_odd(*folder.parts[1:])
        return _below(str(folder), frozenset())
    except (OSError, RecursionError, _AskSparkError):
        return None


def _below(folder: str, above: frozenset[tuple[int, int]]) -> list[FoundFile]:
    """Return the files of a folder and of those below it.

    Args:
        above: Device and number of each folder that it lies in.
    """
    known = Path(folder).stat()
    here = known.st_dev, known.st_ino
    if here in above:
        raise _AskSparkError
    found: list[FoundFile] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            _refuse_table(folder, name)
            if name.startswith(SUMMARIES) and not (name in SUMMARIES and entry.is_file(follow_symlinks=False)):
                raise _AskSparkError  # of a folder with such a name Spark lists what is in it
            if _is_hidden(name):
                continue
            _refuse_odd(name)
            if entry.is_symlink():
                refuse_link_into_table(entry.path)
            status = entry.stat()
            if stat.S_ISDIR(status.st_mode):
                found += _below(entry.path, above | {here})
            elif stat.S_ISREG(status.st_mode):
                found.append(_found(entry.path, status))
            else:
                raise _AskSparkError
    return found


def files_unseen(spark: SparkSession, root: str) -> list[FoundFile]:
    r"""Return the files below a root on this disk that Spark leaves out without a word.

    Java cannot name them: their own name, or that of a folder above them, is not UTF-8; its bytes are written out:
    `caf\xe9.json`. Or they are links that lead nowhere, whatever lay there before.
    """
    folder = seen_as_spark_does(spark, root)
    return [] if folder is None else list(_unseen(str(folder), frozenset()))


def _unseen(folder: str, above: frozenset[tuple[int, int]]) -> Iterator[FoundFile]:
    try:
        known = Path(folder).stat()
        everything = list(os.scandir(folder))
    except OSError:  # Spark says what is wrong with it
        return
    for entry in everything:
        _refuse_table(folder, entry.name)
    entries = [entry for entry in everything if not _is_hidden(entry.name)]
    here = known.st_dev, known.st_ino
    for entry in entries if here not in above else ():
        path = _shown(entry.path)
        if entry.is_symlink():
            refuse_link_into_table(entry.path)
        if entry.is_symlink() and not os.path.exists(entry.path):  # noqa: PTH110 (that raises where it may not look)
            yield _found(path, entry.stat(follow_symlinks=False))
        elif entry.is_dir():
            yield from _unseen(entry.path, above | {here})
        elif path != entry.path and entry.is_file():
            yield _found(path, entry.stat())


def left_in(folder: str) -> str | None:
    """Return the first thing below a folder of this disk that somebody has put there, hidden or not; None if empty.

    Folders without anything in them are nothing, unless they are hidden or links: a copy or a job makes those.
    """
    for where, folders, files in os.walk(folder):
        odd = [name for name in folders if _is_hidden(name) or Path(where, name).is_symlink()]
        if found := sorted({*odd, *files} - _SAY_NOTHING):
            return _shown(os.path.relpath(Path(where, found[0]), folder))
    return None


class Left(NamedTuple):
    """What somebody has left in a folder, in nanoseconds since 1970, as the disk has them.

    Args:
        began: When it was put there.
        moved: When something in it was last put there, or taken away; a job goes on in what another one has left.
    """

    began: int
    moved: int


class Marks(NamedTuple):
    """What a folder says of its writer.

    Args:
        marked: When it was marked as complete, in nanoseconds since 1970; None if it was not.
        left: What says that it is not, by name.
        below: The folders in it that are not hidden, links to folders too.
    """

    marked: int | None
    left: dict[str, Left]
    below: list[str]


def marks_in(folder: str) -> Marks:
    """Return what a folder of this disk says of its writer.

    | in the folder                                      | is marked | what says that it is not |
    |----------------------------------------------------|-----------|--------------------------|
    | `_SUCCESS`                                         | yes       | -                        |
    | `_temporary`: a job's, before it commits its files | no        | `_temporary`             |
    | `_SUCCESS` and `_temporary`: the newer one counts  | yes       | `_temporary`             |
    | `name._COPYING_` of HDFS, and no `name`            | no        | `name._COPYING_`         |
    | `name._COPYING_` and `name`                        | no        | -                        |
    | any other name                                     | no        | -                        |
    """
    try:
        with os.scandir(folder) as entries:
            is_folder = {entry.name: entry.is_dir() for entry in entries}
    except OSError:  # Spark says what is wrong with it
        return Marks(None, {}, [])
    names = is_folder.keys()
    copied = {name for name in names if name.endswith(_COPYING) and name.removesuffix(_COPYING) not in names}
    left: dict[str, Left] = {}
    for name in sorted(copied | ({JOB} & names)):
        inside = Path(folder, name).glob("*") if name == JOB else ()  # `0`, for the first attempt of a job
        began, ages = _age(Path(folder, name)), [_age(path) or 0 for path in inside]
        if began is None:  # its writer goes on: it is newer than any mark, and any file may be its own
            left[_shown(name)] = Left(0, sys.maxsize)
        else:  # a second attempt, or job, in it moves its time: nobody knows any more when the first one began
            left[_shown(name)] = Left(began if len(ages) < 2 else 0, max([began, *ages]))
    below = sorted(name for name, is_one in is_folder.items() if is_one and not _is_hidden(name))
    return Marks(_age(Path(folder, MARKER)), left, below)


def _age(path: Path) -> int | None:
    try:
        return path.lstat().st_mtime_ns
    except OSError:
        return None


def _shown(path: str) -> str:
    """Return a path with bytes that are not UTF-8 written out."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _refuse_table(folder: str, name: str) -> None:
    if name in MARKERS:
        raise table_folder(_shown(folder), MARKERS[name])


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith(_COPYING)


def _found(path: str, status: os.stat_result) -> FoundFile:
    listed, uri = f"file:{path}", f"file:{_escaped(path)}"
    if not status.st_size:
        return FoundFile(listed, 0, 0, uri, 0)
    file_id = xxhash.xxh64_intdigest(uri.encode(), seed=_SEED)
    signed = file_id - (1 << 64) if file_id >> 63 else file_id
    return FoundFile(listed, status.st_size, status.st_mtime_ns // 1_000_000 * 1_000, uri, signed)


def _escaped(path: str) -> str:
    """Return a path as Java's URI has it: of what is not ASCII only blanks and control characters are escaped.

    Source: `java.net.URI`, "Character categories", `other`.
    """
    if _STAY.fullmatch(path):
        return path
    return "".join(
        letter
        if _STAY.fullmatch(letter) or (letter > "\x7f" and unicodedata.category(letter) not in _BLANKS)
        else quote(letter)
        for letter in path
    )


_BLANKS = ("Cc", "Zs", "Zl", "Zp")


def _refuse_odd(*names: str) -> None:
    if any(map(_ASK_SPARK.search, names)):
        raise _AskSparkError
