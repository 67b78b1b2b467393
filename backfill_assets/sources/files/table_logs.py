"""Folders that are tables: a log, not the folder, says which of their files hold rows."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from backfill_assets.errors import NOTHING_WRITTEN, TableFolderError

MARKERS = {
    "_delta_log": "a Delta table",
    ".hoodie": "a Hudi table",
    "_spark_metadata": "the output of a Spark stream",
    "metadata/*.metadata.json*": "an Iceberg table",
}
"""What a table keeps in its own folder, as a pattern."""

HIVE = "a transactional Hive table"
_HIVE = re.compile(r"base_\d+(_v\d+)?|(delete_)?delta_\d+_\d+(_\d+)?(_v\d+)?")
"""Names of the folders in a transactional table of Hive."""

_ICEBERG = re.compile(r"(.*/)?metadata/[^/]+\.metadata\.json(\.gz)?")


def above(root: str, top: str | None = None) -> Iterator[str]:
    """Yield a folder and those above it, up to the top, or to the root of the disk or the bucket.

    | root            | top      | folders                                         |
    |-----------------|----------|-------------------------------------------------|
    | `/lake/in/a`    | `/lake`  | `/lake/in/a`, `/lake/in`, `/lake`               |
    | `/data/a`       | `/lake`  | `/data/a`, `/data`                              |
    | `s3a://b/in/a/` |          | `s3a://b/in/a`, `s3a://b/in`, `s3a://b`         |
    """
    found = re.match(r"[A-Za-z][A-Za-z0-9+.-]+:(//[^/]*)?", root)
    host = found[0] if found else ""
    path, last = root[len(host) :].rstrip("/"), (top or "").rstrip("/")
    while path:
        yield host + path
        if host + path == last:
            return
        path = posixpath.dirname(path).rstrip("/")
    if host.rstrip("/").count("/") > 1:  # a bucket, not the root of a disk
        yield host


def kind_by_names(names: Iterable[str]) -> tuple[str, str] | None:
    """Return the folder of a table and what it is, by the names of files below a root; None if there is none."""
    for name in names:
        folders = name.split("/")[:-1]
        for depth, folder in enumerate(folders):
            if _HIVE.fullmatch(folder):
                return "/".join(folders[:depth]), HIVE
        if _ICEBERG.fullmatch(name):
            return "/".join(folders[:-1]), MARKERS["metadata/*.metadata.json*"]
    return None


def is_hive_folder(folder: str) -> bool:
    """Say whether a folder is called as one in a transactional table of Hive."""
    return _HIVE.fullmatch(posixpath.basename(folder.rstrip("/"))) is not None


def refuse_link_into_table(path: str) -> None:
    """Refuse a link on this disk that leads into a table, or to one.

    Raises:
        TableFolderError: It does.
    """
    for folder in above(os.path.realpath(path)):
        refuse_table_at(folder)


def refuse_table_at(folder: str) -> None:
    """Refuse a folder of this disk that has the log of a table in it.

    Raises:
        TableFolderError: It has.
    """
    for pattern, what in MARKERS.items():
        if any(Path(folder).glob(pattern)):
            raise table_folder(folder, what)


def table_folder(folder: str, what: str) -> TableFolderError:
    """Return the error about a folder that is a table."""
    return TableFolderError(
        f"`{folder}` is {what}; its folder also holds files whose rows the table has removed.",
        state=NOTHING_WRITTEN,
        remedy="If it is a table of this lakehouse, say `kind: delta`. Otherwise export a copy of its rows with the "
        "engine that owns it, and read that folder.",
        path=folder,
    )
