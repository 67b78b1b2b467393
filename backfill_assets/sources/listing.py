"""The files below a dated tree, as Spark lists them: any storage that Spark reads, with its credentials."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.spec import TableSpec
from backfill_assets.errors import NOTHING_WRITTEN, SourceMissingError

_FIELD_PATTERNS = {
    "year": r"(?P<year>\d{4})",
    "month": r"(?P<month>\d{1,2})",
    "day": r"(?P<day>\d{1,2})",
    "date": r"(?P<date>\d{4}-\d{2}-\d{2})",
}
_GLOB = re.compile(r"([\[\]{}*?\\])")


@dataclass(frozen=True, slots=True, order=True)
class SourceFile:
    """One file of the manifest.

    Args:
        path: As Spark lists it, unescaped.
        day: The local day of its folder.
        modified_micros: Microseconds since 1970.
        uri: As Spark names it beside a row that it read, escaped.
        home: A 64-bit hash of the `uri`, which is what rows carry: a long path beside each of millions of rows is dear.
    """

    path: str
    day: date
    size_bytes: int
    modified_micros: int
    uri: str
    home: int


def list_files(spark: SparkSession, spec: TableSpec, layout: str, root: str) -> list[SourceFile]:
    """List every file below a root that lies in a dated folder.

    Raises:
        SourceMissingError: The root is not there.
    """
    try:
        below = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(literal_path(root))
        modified = F.unix_micros("modificationTime").alias("modified")
        beside = F.col("_metadata.file_path").alias("uri"), home_of_row().alias("home")
        listed = below.select("path", "length", modified, *beside).collect()
        every = {re.sub(r"^file:/+", "file:/", uri) for uri in below.inputFiles()}
        without_bytes = every - {row["uri"] for row in listed}  # Spark makes no task for these
    except AnalysisException as error:
        raise SourceMissingError(
            f"`{spec.key}`: the folder `{root}` is not there, or cannot be listed.",
            state=NOTHING_WRITTEN,
            remedy="Put the files there, or change `source.path` in the spec (relative paths are below `landing/`).",
            path=root,
        ) from error
    found = [(row["path"], int(row["length"]), int(row["modified"]), row["uri"], row["home"]) for row in listed]
    found += [(unquote(uri), 0, 0, uri, 0) for uri in sorted(without_bytes)]
    pattern = _folder_pattern(layout)
    files: list[SourceFile] = []
    for path, size_bytes, modified_micros, uri, home in found:
        day = _day_of(pattern, path[len(_as_listed(root, path)) :])
        if day is not None:
            files.append(SourceFile(path, day, size_bytes, modified_micros, uri, home))
    return files


def is_there(spark: SparkSession, path: str) -> bool:
    """Say whether there is a folder or a file."""
    try:
        spark.read.format("binaryFile").load(literal_path(path)).schema  # noqa: B018 (only now a Connect server looks)
    except AnalysisException:
        return False
    return True


def home_of_row() -> Column:
    """Return the file of a row: the `home` of the listing."""
    return F.xxhash64("_metadata.file_path")


def literal_path(path: str) -> str:
    """Escape what Hadoop would take for a pattern."""
    return _GLOB.sub(r"\\\1", path)


def _folder_pattern(layout: str) -> re.Pattern[str]:
    """Return a pattern for the part of a path below the root: the dated folders, then the file."""
    parts = re.split(r"{(\w+)}", layout)
    body = "".join(_FIELD_PATTERNS[part] if i % 2 else re.escape(part) for i, part in enumerate(parts))
    return re.compile(rf"^/?{body}/(?:.*/)?[^/]+$")


def _day_of(pattern: re.Pattern[str], below_root: str) -> date | None:
    """Return the day of a file's folder; None if it lies in no dated folder."""
    match = pattern.match(below_root)
    if match is None:
        return None
    found = match.groupdict()
    try:
        if found.get("date"):
            return date.fromisoformat(found["date"])
        return date(int(found["year"]), int(found["month"]), int(found["day"]))
    except ValueError:
        return None


def _as_listed(root: str, listed: str) -> str:
    """Return the root in the form in which Spark lists the files below it: with the storage's scheme."""
    root = re.sub(r"(?<!:)(?<!:/)/{2,}", "/", root).rstrip("/")  # as Hadoop does
    for form in (root, f"file:{root}", f"file://{root}"):
        if listed.startswith(form + "/"):
            return form
    bare = re.sub(r"^\w+:/*", "/", root)
    return listed[: listed.index(bare) + len(bare)]
