"""The other side of the benchmark: the job that a good engineer writes by hand, and nothing more.

Spark's default configuration plus Delta. One read of the whole tree, one CREATE, one overwrite of the range. Nothing is
audited,
checked, recorded or resumable. The jars come from the project's own cache, so that no side spends time on the network.
"""

from __future__ import annotations

import os
import sys
from datetime import date
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill_assets.spark.jars import delta_jars
from backfill_assets.spark.settings import settings_from_environment


def plain_session() -> SparkSession:
    """Return a session with Spark's defaults plus Delta."""
    spark = (
        SparkSession.builder.config(
            "spark.jars", ",".join(str(jar) for jar in delta_jars(settings_from_environment(os.environ)))
        )
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main(landing: Path, table: Path, first_day: date, last_day: date) -> int:
    """Overwrite the days of a range; return the rows that were written."""
    spark = plain_session()
    spark.sql(
        f"""
        CREATE TABLE IF NOT EXISTS delta.`{table}` (
            order_id BIGINT NOT NULL,
            customer_id BIGINT NOT NULL,
            customer_name STRING,
            country STRING,
            ordered_at TIMESTAMP NOT NULL,
            amount DECIMAL(18, 2) NOT NULL,
            currency STRING NOT NULL,
            status STRING NOT NULL,
            updated_at TIMESTAMP NOT NULL,
            order_date DATE
        )
        USING delta
        PARTITIONED BY (order_date)
        """
    )
    orders = (
        spark.read.option("recursiveFileLookup", "true")
        .parquet(str(landing))
        .withColumn("order_date", F.to_date("ordered_at"))
        .where(F.col("order_date").between(first_day, last_day))
    )
    (
        orders.write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", f"order_date >= '{first_day}' AND order_date <= '{last_day}'")
        .save(str(table))
    )
    done = spark.sql(f"DESCRIBE HISTORY delta.`{table}` LIMIT 1").collect()[0]
    spark.stop()
    return int(done["operationMetrics"]["numOutputRows"])


if __name__ == "__main__":
    print(
        "rows:",
        main(Path(sys.argv[1]), Path(sys.argv[2]), date.fromisoformat(sys.argv[3]), date.fromisoformat(sys.argv[4])),
    )
