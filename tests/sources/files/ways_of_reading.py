"""The ways in which a text is read, of history and live, and what became of each row."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.spec.live import LiveStream
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.live.landing import events_of, landed_lines
from tests.sources.files.landing import days, source_of


def outcomes(spec: TableSpec, rows: DataFrame) -> dict[int, tuple[dict[str, str | None], str | None]]:
    """What each row became, as text, and why it cannot be read; Spark says both."""
    texts = {
        name: F.hex(name) if column.type == "binary" else F.col(name).cast("string")
        for name, column in spec.columns.items()
        if name not in ("id", "at")
    }
    found = rows.select("id", "_ba_problem", *(text.alias(name) for name, text in texts.items())).collect()
    return {row["id"]: ({name: row[name] for name in texts}, row["_ba_problem"]) for row in found}


def staged(spark: SparkSession, spec: TableSpec, root: Path) -> DataFrame:
    source, named = source_of(spark, spec, root), days(spec, "2024-01-01")
    return source.scan(named, source.survey(named)).rows


def streamed(spark: SparkSession, spec: TableSpec, root: Path, zone: str | None) -> DataFrame:
    live = LiveStream.model_validate({"path": "events", "starts": "2024-01-01", "timestamps_without_zone": zone})
    lines = landed_lines(spark, str(root), modified_after=datetime(2000, 1, 1, tzinfo=UTC))
    return events_of(spec, live, lines)
