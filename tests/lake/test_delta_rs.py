"""What delta-rs cannot read of a table, and who can."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from backfill_assets.errors import UnreadableSourceError
from backfill_assets.lake.delta_rs import contents, opened


@pytest.mark.parametrize("feature", ["deletionVectors", "columnMapping"])
def test_table_with_unknown_features_is_for_spark(spark: SparkSession, tmp_path: Path, feature: str):
    """No file is broken, and no launch helps: the message names the reader that can."""
    made = pa.table({"id": pa.array([1], pa.int64()), "dt": pa.array([date(2024, 1, 1)])})
    deltalake.write_deltalake(tmp_path, made, partition_by=["dt"])
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature], "writerFeatures": [feature]}
    (log,) = tmp_path.glob("_delta_log/*.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text("\n".join(json.dumps({"protocol": protocol} if "protocol" in a else a) for a in actions))
    with pytest.raises(UnreadableSourceError) as refused:
        list(contents(opened(spark, str(tmp_path)), {"id": "bigint"}, "dt", {"2024-01-01": date(2024, 1, 1)}))
    assert "Spark reads it: `backfill-assets reconcile`" in refused.value.remedy
