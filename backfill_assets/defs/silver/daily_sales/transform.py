"""The rows of `silver/daily_sales`."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def daily_sales(orders: DataFrame) -> DataFrame:
    """Return one row per day, country and currency; refunds are orders with a negative amount."""
    is_refund = F.col("amount") < 0
    return orders.groupBy(
        F.to_date("ordered_at").alias("sales_date"),
        F.coalesce("country", F.lit("unknown")).alias("country"),
        "currency",
    ).agg(
        F.count_if(~is_refund).alias("orders"),
        F.count_if(is_refund).alias("refunds"),
        F.count_distinct("customer_id").alias("customers"),
        F.sum("amount").cast("decimal(28,2)").alias("revenue"),
    )
