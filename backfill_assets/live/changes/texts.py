"""Values as PostgreSQL and Debezium write them, made values of the lakehouse: exactly, or not at all."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from backfill_assets.sources.files.exact_values import ExactValues


def typed_text(text: Column, kind: str, zone: str | None) -> Column:
    """Return a text as a value of a type; NULL if it is none.

    Args:
        zone: Of instants that are written without one.
    """
    exact = ExactValues(zone)
    if kind == "boolean":
        return F.when(text.isin("t", "true"), F.lit(True)).when(text.isin("f", "false"), F.lit(False))
    if kind == "binary":
        is_hex = text.startswith(r"\x")
        return F.when(is_hex, F.unhex(F.substring(text, F.lit(3), F.length(text)))).otherwise(exact.value(text, kind))
    return exact.value(text, kind)
