# ruff: noqa: T201 (its parent reads what it prints)
"""A launch in a process with a small heap. Argument: the root."""

from __future__ import annotations

import sys
from pathlib import Path

from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.outcomes import Published
from backfill_assets.core.history.publish import materialize
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import MemoryExhaustedError
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.files.source import FilesSource
from backfill_assets.spark.session import classic_config, start_session
from backfill_assets.spark.settings import SparkSettings
from tests.support.fakes import launch_with

SPEC = TableSpec.model_validate(
    {
        "key": "bronze/blobs",
        "columns": {"blob_id": "bigint", "made_at": "timestamp", "blob": "string"},
        "key_columns": ["blob_id"],
        "event_time": "made_at",
        "grain": "daily",
        "start": "2024-01-01",
        "source": {"kind": "files", "path": "blobs", "format": "parquet"},
    }
)


def main() -> None:
    root = Path(sys.argv[1])
    spark = start_session(classic_config(SparkSettings(master="local[2]", driver_memory="512m")))
    table = LakeTable(spark, SPEC, str(root / "tables" / "blobs"))
    table.create()
    source = FilesSource(spark, SPEC, SPEC.source, str(root / "landing"))
    partitions = SPEC.grid.between("2024-01-01", "2024-01-01")
    effects = Effects(log=lambda text: print("LOG", text, flush=True), sleep=lambda _: None)
    try:
        for outcome in materialize(SPEC, partitions, source, table, launch_with(), effects=effects):
            if isinstance(outcome, Published):
                for key, part in outcome.receipt.partitions.items():
                    print("PUBLISHED", key, part.rows, flush=True)
    except MemoryExhaustedError as error:
        print("EXHAUSTED", error, flush=True)
    print("ALIVE", spark.range(7).count(), table.version(), flush=True)


if __name__ == "__main__":
    main()
