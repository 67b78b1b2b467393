"""A lakehouse on S3: an S3-compatible server on loopback, credentials from the environment alone. `make test-s3` runs it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_assets.spark.jars import fetch_jars
from tests.e2e.world import SCHEMA, expected, shop_orders
from tests.places.servers import CLEAN, ROOT, free_port, running
from tests.places.slow_bucket import slow_proxy
from tests.support.shop import multiset

pytestmark = [pytest.mark.e2e, pytest.mark.prove]

JARS = [
    ("org.apache.hadoop", "hadoop-aws", "3.5.0"),
    ("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1"),
    ("software.amazon.awssdk", "bundle", "2.35.4"),
]
"""What Spark 4.2.0's Hadoop needs for `s3a://`: 690 MB, fetched once."""

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "shop", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_REGION": "eu-central-1"}
DAYS = ["2023-01-01", "2023-01-02", "2023-01-03"]
TABLE = "bronze/orders"
REQUIRED = os.environ.get("BACKFILL_ASSETS_S3_TESTS") == "required"


@pytest.fixture(scope="module")
def jars() -> list[Path]:
    """The jars, from a cache that only `make test-s3` fills."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "backfill_assets" / "s3"
    paths = [cache / f"{name}-{revision}.jar" for _, name, revision in JARS]
    if all(path.exists() for path in paths):
        return paths
    if not REQUIRED:
        pytest.skip("the jars for S3 are not here; `make test-s3` fetches them (690 MB)")
    return fetch_jars(JARS, cache)


class Bucket:
    """A bucket on a server of its own.

    Args:
        seen_at: Where Spark is to look for the server.
    """

    def __init__(self, endpoint: str, seen_at: str) -> None:
        import boto3

        self.endpoint, self.seen_at = endpoint, seen_at
        names = {
            "aws_access_key_id": "AWS_ACCESS_KEY_ID",
            "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
            "region_name": "AWS_REGION",
        }
        self.client: Any = boto3.client(
            "s3", endpoint_url=endpoint, **{name: CREDENTIALS[key] for name, key in names.items()}
        )
        self.client.create_bucket(
            Bucket="lake", CreateBucketConfiguration={"LocationConstraint": CREDENTIALS["AWS_REGION"]}
        )

    def export(self, day: str, **same: Any) -> None:
        """Put a day of the shop's orders where the old system exports them."""
        packed = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(shop_orders(day, **same), schema=SCHEMA), packed)
        key = f"landing/orders/{date.fromisoformat(day):%Y/%m/%d}/orders.parquet"
        self.client.put_object(Bucket="lake", Key=key, Body=packed.getvalue())

    def table(self) -> deltalake.DeltaTable:
        """The table as delta-rs opens it, with a client of its own."""
        options = {**CREDENTIALS, "AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": "true"}
        return deltalake.DeltaTable(f"s3://lake/tables/{TABLE}", storage_options=options)

    def content(self) -> Any:
        return multiset(self.table().to_pyarrow_table().to_pylist(), SCHEMA.names)


@pytest.fixture(params=["at once", "late and twice"])
def bucket(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bucket]:
    """A server that answers at once; and one that does every write twice, late, and loses some answers."""
    if not REQUIRED:
        pytest.importorskip("moto", reason="`make test-s3` installs the server")
    port = free_port()
    command = [str(Path(sys.executable).parent / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with running(command, tmp_path / "s3.log", CLEAN):
        until = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=5).close()
                break
            except (urllib.error.URLError, ConnectionError):
                assert time.monotonic() < until, (tmp_path / "s3.log").read_text()[-2000:]
                time.sleep(0.2)
        if request.param == "at once":
            yield Bucket(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port}")
            return
        with slow_proxy(port) as (address, lost):
            yield Bucket(f"http://127.0.0.1:{port}", address)
            assert any("_delta_log" in path for path in lost), lost


def test_a_lakehouse_in_a_bucket(tmp_path: Path, bucket: Bucket, jars: list[Path]):
    """Launched, corrected and launched again, reconciled: source and table in a bucket, read back by another client, and no secret in a log."""
    home = tmp_path / "dagster_home"
    home.mkdir()
    (home / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text())
    settings = {
        "spark.driver.extraClassPath": ":".join(map(str, jars)),
        "spark.hadoop.fs.s3a.endpoint": bucket.seen_at,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.delta.logStore.s3a.impl": "io.delta.storage.S3SingleDriverLogStore",  # one process at a time writes here
    }
    environment = {
        **CLEAN, **CREDENTIALS, "PYTHONPATH": str(ROOT), "LAKEHOUSE_ROOT": "s3a://lake", "DAGSTER_HOME": str(home),
        "SPARK_MASTER": "local[2]", "SPARK_DRIVER_MEMORY": "1g", "DAGSTER_DISABLE_TELEMETRY": "1",
        "SPARK_EXTRA_CONF": ";".join(f"{name}={value}" for name, value in settings.items()),
    }  # fmt: skip

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:]
        assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in done.stdout
        return done.stdout

    def launch(first: str, last: str) -> str:
        module = ("-m", "dagster", "asset", "materialize", "-m", "backfill_assets.definitions")
        return run(*module, "--select", f'key:"{TABLE}"', "--partition-range", f"{first}...{last}")

    for day in DAYS:
        bucket.export(day)
    assert "Published 3 partitions" in launch(DAYS[0], DAYS[-1])
    assert bucket.content() == expected(*DAYS)
    before = {action["path"] for action in pa.table(bucket.table().get_add_actions()).to_pylist()}

    bucket.export(DAYS[1], status="refunded")
    assert "Published 1 partitions" in launch(DAYS[1], DAYS[1])
    assert bucket.content() == expected(DAYS[0], DAYS[2]) + expected(DAYS[1], status="refunded")
    after = {action["path"] for action in pa.table(bucket.table().get_add_actions()).to_pylist()}
    assert {path.split("/")[-2] for path in before ^ after} == {f"dt={DAYS[1]}"}, "other days keep their files"

    run(
        "-c", "from backfill_assets.cli import main; main()", "reconcile", TABLE
    )  # its exit code says that every partition is equal
