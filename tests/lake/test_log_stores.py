"""Where no lock can be taken: a table with a stream needs a log store that keeps drivers apart."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from backfill_assets.errors import ConfigurationError
from backfill_assets.lake.locks import refuse_racing_writers
from backfill_assets.lake.table import LakeTable
from tests.support.live_shop import live_spec


@pytest.mark.parametrize("scheme", ["s3a", "s3"])
def test_a_stream_on_s3_needs_a_log_store(scheme):
    """Neither a launch nor the live writer makes the table, or goes on with it, before anything of it is read."""
    spark = SimpleNamespace(conf={})
    with pytest.raises(ConfigurationError) as caught:
        LakeTable(spark, live_spec(), f"{scheme}://lake/tables/bronze/orders").create()
    assert str(caught.value) == (
        f"`bronze/orders` has a live stream and lies at `{scheme}://lake/tables/bronze/orders`, where Delta cannot keep two drivers "
        "from writing the same version: a launch or a batch could be lost without an error. Nothing was written. "
        f"Set `spark.delta.logStore.{scheme}.impl` in SPARK_EXTRA_CONF: `io.delta.storage.S3DynamoDBLogStore`, or, if one driver alone "
        "ever writes, `io.delta.storage.S3SingleDriverLogStore`; docs/places.md says more."
    )


@pytest.mark.parametrize(
    ("uri", "settings"),
    [
        ("/lake/orders", {}),
        ("file:///lake/orders", {}),
        ("hdfs://name/lake/orders", {}),
        ("abfss://lake@account/orders", {}),
        ("gs://lake/orders", {}),
        ("s3a://lake/orders", {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"}),
        ("s3://lake/orders", {"spark.delta.logStore.s3.impl": "io.delta.storage.S3SingleDriverLogStore"}),
        ("s3a://lake/orders", {"spark.delta.logStore.class": "org.example.Store"}),
    ],
)
def test_other_places_and_configured_stores_are_not_refused(uri, settings):
    """A local disk has the lock, other stores have a "create if absent"; whoever names a log store has chosen."""
    refuse_racing_writers("bronze/orders", uri, settings.get)


def test_a_log_store_of_another_scheme_does_not_count():
    """Delta looks for the store of the scheme that the table's path has."""
    with pytest.raises(ConfigurationError, match="spark.delta.logStore.s3a.impl"):
        refuse_racing_writers("bronze/orders", "s3a://lake/orders", {"spark.delta.logStore.s3.impl": "x"}.get)
