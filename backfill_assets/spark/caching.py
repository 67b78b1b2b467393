"""Rows that are read once and cached until they are released."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

ADAPTIVE = "spark.sql.adaptive.enabled"


def persist(rows: DataFrame, level: StorageLevel = StorageLevel.MEMORY_AND_DISK) -> DataFrame:
    """Return rows that are kept from when they are first read until `unpersist`; reading them can be stopped."""
    spark = rows.sparkSession
    if not is_of_a_server(spark):
        return rows.persist(level)
    with _planned_once(spark):
        return rows.persist(level)


def is_of_a_server(spark: SparkSession) -> bool:
    """Say whether a session is one of a Connect server, which may run on another machine."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def _planned_once(spark: SparkSession) -> Iterator[None]:
    """Let no plan be made that changes while it runs.

    A Connect server stops an operation by interrupting its thread, once, and cancels its jobs when that thread ends. It
    would not end: where an adaptive plan of kept rows fails, Spark plans them anew (`CachedRDDBuilder.buildBuffers`,
    4.2), and that waits for a free core behind the very tasks that are to be stopped.
    """
    before = spark.conf.get(ADAPTIVE)
    spark.conf.set(ADAPTIVE, "false")
    try:
        yield
    finally:
        spark.conf.set(ADAPTIVE, before or "true")
