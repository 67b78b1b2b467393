"""The definitions that `scale.py` launches: one table of files, as long and as finely cut as its environment says."""

from __future__ import annotations

import os

import dagster as dg

from backfill_assets.assets.factory import build_lakehouse_table
from backfill_assets.assets.lakehouse import lakehouse_definitions
from backfill_assets.core.spec.table import TableSpec

HOURLY = "{year}/{month}/{day}/{hour}"


@dg.definitions
def defs() -> dg.Definitions:
    """Return the table `bronze/visits`, from `SCALE_START` on, cut by `SCALE_GRAIN`."""
    grain = os.environ.get("SCALE_GRAIN", "daily")
    spec = TableSpec.model_validate(
        {
            "key": "bronze/visits",
            "columns": {"visit_id": "bigint not null", "page": "string", "visited_at": "timestamp not null"},
            "key_columns": ["visit_id"],
            "event_time": "visited_at",
            "grain": grain,
            "start": os.environ.get("SCALE_START", "2023-01-01"),
            "source": {
                "kind": "files",
                "path": "visits",
                "format": "parquet",
                "layout": HOURLY if grain == "hourly" else "year/month/day",
            },
        }
    )
    return lakehouse_definitions(build_lakehouse_table(spec))
