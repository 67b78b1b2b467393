"""The rows of `gold/monthly_revenue`."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def monthly_revenue(daily_sales: DataFrame) -> DataFrame:
    """Return one row per month, country and currency."""
    return daily_sales.groupBy(F.trunc("sales_date", "month").alias("month"), "country", "currency").agg(
        F.sum("orders").alias("orders"),
        F.sum("refunds").alias("refunds"),
        F.sum("revenue").cast("decimal(28,2)").alias("revenue"),
    )
