"""What a table is made as: its columns, and the statement that makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from pyspark.sql.types import StructType

from backfill_assets.core import sql
from backfill_assets.core.spec.columns import WITHOUT_STATISTICS
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import quoted
from backfill_assets.core.state.fence import first_fence, refuse_past_boundary
from backfill_assets.core.state.table_facts import facts_of, refuse_other_facts
from backfill_assets.errors import NOTHING_WRITTEN, SchemaMismatchError, UnsafeWriteError
from backfill_assets.lake.properties import PROPERTIES
from backfill_assets.spark.expressions import partition_type
from backfill_assets.table.log import Snapshot


def columns_of(spec: TableSpec) -> dict[str, str]:
    """Return the types that a table's columns have by its spec, the partition column last."""
    return {name: c.type for name, c in spec.columns.items()} | {spec.partition_column: partition_type(spec)}


def column_problems(spec: TableSpec, found: StructType) -> list[str]:
    """Return in words how a table's columns differ from its spec's."""
    have, want = {f.name: f.dataType.simpleString() for f in found.fields}, columns_of(spec)
    return (
        [f"`{name}` is missing" for name in want if name not in have]
        + [f"`{name}` is not in the spec" for name in have if name not in want]
        + [f"`{n}` is `{have[n]}`, not `{kind}`" for n, kind in want.items() if n in have and have[n] != kind]
        + [
            f"`{f.name}` is never NULL there, and may be by the spec"
            for f in found.fields
            if f.name in spec.columns and not f.nullable and f.name not in spec.required_columns
        ]
    )


def refuse_another(spec: TableSpec, path: str, found: Snapshot) -> Mapping[str, str]:
    """Hold a table against its spec; return its properties.

    Raises:
        SchemaMismatchError: It has other columns or another partition column.
        TableFactsError: It is of another grain, zone, event time or key.
    """
    refuse_other_facts(spec, found.properties, path)
    problems, want = column_problems(spec, schema_of(found)), spec.partition_column
    if list(found.partition_columns) != [want]:
        problems.append(f"it is partitioned by {list(found.partition_columns)}, not by `{want}`")
    if problems:
        raise another_schema(spec, path, problems)
    return found.properties


def schema_of(found: Snapshot) -> StructType:
    """Return the columns that a table has."""
    return StructType.fromJson({**found.schema})


def no_table(spec: TableSpec, path: str) -> UnsafeWriteError:
    """Return the error for a write into a table that is not there: the write itself would make one."""
    return UnsafeWriteError(
        f"`{spec.key}`: there is no table at `{path}` to write into; it was deleted, or never made.",
        state=NOTHING_WRITTEN,
        remedy="Launch again: a launch makes the table before it writes.",
    )


def folder_taken(spec: TableSpec, path: str) -> UnsafeWriteError:
    """Return the error for a new table whose folder already has other files."""
    return UnsafeWriteError(
        f"`{spec.key}`: no table can be made at `{path}`: the folder has files, but no Delta table.",
        state=NOTHING_WRITTEN,
        remedy="Move them away and launch again. A first launch that was killed may leave a `_delta_log` without a "
        "commit, which can be removed.",
    )


def another_schema(spec: TableSpec, path: str, problems: Sequence[str]) -> SchemaMismatchError:
    """Return the error for a table that differs from its spec, by what differs in words."""
    return SchemaMismatchError(
        f"`{spec.key}`: the table at `{path}` differs from its spec: {'; '.join(problems)}.",
        state=NOTHING_WRITTEN,
        remedy=f"A launch never changes a schema. `backfill-assets schema {spec.key}` shows what "
        "differs, and with `--apply` lets the table follow where that is safe; or change the spec back.",
        problems=problems,
    )


def create_statement(spec: TableSpec, path: str) -> str:
    """Return the statement that makes a table where there is none; one with a stream has its first fence with it.

    Raises:
        FenceError: It is a new version whose stream would begin in the past.
    """
    fence = first_fence(spec)
    if fence and spec.version_of:
        refuse_past_boundary(spec, fence, utc_now())
    statistics = spec.statistics_columns or [
        name
        for name in dict.fromkeys([spec.event_time, *spec.key_columns])
        if spec.columns[name].type not in WITHOUT_STATISTICS
    ]
    properties = PROPERTIES | {"delta.dataSkippingStatsColumns": ",".join(quoted(name) for name in statistics)}
    properties |= facts_of(spec) | (fence.properties() if fence else {})
    return sql.create_table(
        path,
        columns_of(spec),
        not_null={*spec.required_columns, spec.partition_column},
        partitioned_by=spec.partition_column,
        properties=properties,
    )


def utc_now() -> datetime:
    """Return what time it is."""
    return datetime.now(UTC)
