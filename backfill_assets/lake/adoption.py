"""What a table that is there already is given by its spec: facts that it was made without, and a first fence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.fence import AT, first_fence, refuse_past_boundary, refuse_rows_behind
from backfill_assets.core.state.table_facts import OTHER_TABLE, facts_of
from backfill_assets.errors import NOTHING_WRITTEN, TableFactsError, WindowError
from backfill_assets.spark.expressions import column, is_no_partition, partition_value


def adopt(spec: TableSpec, properties: Mapping[str, str], rows: Callable[[], DataFrame]) -> dict[str, str]:
    """Return the properties that a table lacks; nothing is stored here.

    A table that was made before tables had facts takes those of its spec if every row lies in the partition that the
    spec puts it into: its content is then what this spec would have written.

    Args:
        rows: All rows of the table, which are read only if it lacks something.

    Raises:
        TableFactsError: A row lies elsewhere: the table was made by another spec.
        FenceError: Rows lie where the stream is to write, or a new version would begin in the past.
    """
    facts = {name: value for name, value in facts_of(spec).items() if name not in properties}
    fence = None if AT in properties else first_fence(spec)
    if not facts and fence is None:
        return {}
    own = F.col(spec.partition_column)
    elsewhere = ~partition_value(spec, column(spec.event_time)).eqNullSafe(own)
    named = F.coalesce(own.cast("string"), F.lit("NULL"))
    seen = (
        rows()
        .agg(
            F.max(F.when(~is_no_partition(spec), own)).cast("string").alias("newest"),
            F.min(F.when(elsewhere, named)).alias("wrong") if facts else F.lit(None).alias("wrong"),
            (F.count_if(elsewhere) if facts else F.lit(0)).alias("misplaced"),
            F.count(F.lit(1)).alias("rows"),
        )
        .collect()[0]
    )
    if seen["wrong"] is not None:
        raise TableFactsError(
            f"`{spec.key}`: partition `{seen['wrong']}` of the table has rows that this spec puts into another one, as "
            f"it does with {seen['misplaced']:,} of its {seen['rows']:,} rows: it was made with another grain, zone or "
            "event time, or somebody else wrote them there.",
            state=NOTHING_WRITTEN,
            remedy=f"If somebody else did, delete these rows and launch again. {OTHER_TABLE}",
        )
    if fence is not None:
        if spec.version_of and not spec.version_of.retired:  # until then, the version before has what it had
            refuse_past_boundary(spec, fence, datetime.now(UTC), state=NOTHING_WRITTEN)
        refuse_rows_behind(spec, fence, _partition(spec, seen["newest"]))
    return facts | (fence.properties() if fence else {})


def _partition(spec: TableSpec, value: str | None) -> Partition | None:
    """Return the partition of a value in the partition column; None if there is none, or none from the start on."""
    try:
        return None if value is None else spec.grid.partition(spec.grid.key_of(value))
    except WindowError:
        return None
