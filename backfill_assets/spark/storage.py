"""Whether folders and files are there, in any storage that Spark reads."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from backfill_assets.spark.local_disk import seen_as_spark_does

_GLOB = re.compile(r"([\[\]{}*?\\])")


def is_there(spark: SparkSession, path: str) -> bool:
    """Say whether there is a folder or a file."""
    local = seen_as_spark_does(spark, path)
    return _all_there(spark, [path]) if local is None else os.path.exists(local)  # noqa: PTH110 (no error of rights)


def those_there(spark: SparkSession, paths: Sequence[str]) -> set[str]:
    """Return which of some folders or files are there; cheapest where all are, or on this disk."""
    here = {path: local for path in paths if (local := seen_as_spark_does(spark, path)) is not None}
    found = {path for path, local in here.items() if os.path.exists(local)}  # noqa: PTH110 (no error of rights)
    elsewhere = [path for path in paths if path not in here]
    pending = [elsewhere[i : i + _AT_ONCE] for i in range(0, len(elsewhere), _AT_ONCE)]
    while pending:
        some = pending.pop()
        if _all_there(spark, some):
            found.update(some)
        elif len(some) > 1:
            pending += [some[: len(some) // 2], some[len(some) // 2 :]]
    return found


_AT_ONCE = 30
"""Spark looks at more than 32 paths in a job."""


def _all_there(spark: SparkSession, paths: Sequence[str]) -> bool:
    return all_match(spark, [*map(literal_path, paths)])


def all_match(spark: SparkSession, patterns: Sequence[str]) -> bool:
    """Say whether each of some patterns of Hadoop names a file or a folder."""
    try:
        found = spark.read.format("binaryFile").option("recursiveFileLookup", "true")  # folders may be called `dt=...`
        found.load([*patterns]).schema  # noqa: B018 (only now a Connect server looks)
    except AnalysisException:
        return False
    return True


def literal_path(path: str) -> str:
    """Escape what Hadoop would take for a pattern."""
    return _GLOB.sub(r"\\\1", path)
