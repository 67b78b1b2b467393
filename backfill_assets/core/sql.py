"""SQL text: every identifier quoted, every value a typed literal. The one file of the project that makes it.

Nothing else joins names or values into SQL; `tests/test_sql.py` looks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime

from backfill_assets.core.calendar.partitions import Partition, runs_of
from backfill_assets.core.calendar.windows import Window, as_utc
from backfill_assets.core.spec.table import TableSpec

# -- names and values --------------------------------------------------------------------------------------------------


def quoted(identifier: str) -> str:
    """Return an identifier as Spark SQL quotes it: whatever letters it has, they are only letters."""
    return "`" + identifier.replace("`", "``") + "`"


def table_at(path: str) -> str:
    """Return a Delta table as Spark SQL names it by its path."""
    return f"delta.{quoted(path)}"


def text_literal(text: str) -> str:
    """Return text as a literal in single quotes; a quote or a backslash in it has a backslash before it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def literal(value: date | str) -> str:
    """Return a value of the partition column as a typed literal."""
    return text_literal(value) if isinstance(value, str) else f"DATE'{value.isoformat()}'"


def instant_literal(instant: datetime) -> str:
    """Return an instant as a typed literal: TIMESTAMP'2024-01-01 05:00:00Z', and with microseconds if it has any.

    Raises:
        NaiveInstantError: It has no zone.
    """
    return f"TIMESTAMP'{as_utc(instant).replace(tzinfo=None).isoformat(' ')}Z'"


# -- predicates --------------------------------------------------------------------------------------------------------


def replace_where(column: str, partitions: Sequence[Partition]) -> str:
    """Return the predicate that holds exactly for the given partitions: literals only, identifiers quoted.

    | partitions             | predicate                                              |
    |------------------------|--------------------------------------------------------|
    | 2024-01-01, 2024-01-02 | `dt` >= DATE'2024-01-01' AND `dt` < DATE'2024-01-03'   |
    | 2024-01-01, 2024-01-03 | `dt` IN (DATE'2024-01-01', DATE'2024-01-03')           |

    Hours and months are always listed: `dt` IN ('2024-01-01-00', '2024-01-01-01'). Between two of them somebody may
    have written a value that is no partition, and a range would replace it with them.

    Raises:
        ValueError: There are no partitions. A predicate for nothing could only be a mistake.
    """
    if not partitions:
        raise ValueError("an overwrite needs at least one partition")
    ordered = sorted(set(partitions))
    name = quoted(column)
    if _is_a_day(ordered[0]) and len(list(runs_of(ordered))) == 1:
        return f"{name} >= {literal(ordered[0].value)} AND {name} < {literal(ordered[-1].next_value)}"
    return f"{name} IN ({', '.join(literal(p.value) for p in ordered)})"


def _is_a_day(partition: Partition) -> bool:
    """Say whether the partition column can hold nothing between a partition and the one after it."""
    value, following = partition.value, partition.next_value
    return isinstance(value, date) and isinstance(following, date) and (following - value).days == 1


def inside(spec: TableSpec, partitions: Sequence[Partition]) -> str:
    """Return a filter on the event time that holds inside the partitions; Parquet skips row groups by it."""
    name = quoted(spec.event_time)
    spans = [(run[0], run[-1]) for run in runs_of(sorted(partitions))]
    if spec.columns[spec.event_time].type == "date":
        ends = [(literal(first.value), literal(last.next_value)) for first, last in spans]
    else:
        ends = [
            (instant_literal(first.window.start_utc), instant_literal(last.window.end_utc)) for first, last in spans
        ]
    return " OR ".join(f"({name} >= {start} AND {name} < {end})" for start, end in ends) or "false"


def between(spec: TableSpec, window: Window) -> str:
    """Return a filter on the event time that holds from an instant on and before another."""
    return f"{since(spec, window.start_utc)} AND {before(spec, window.end_utc)}"


def since(spec: TableSpec, at_utc: datetime) -> str:
    """Return a filter on the event time that holds from an instant on, without an end."""
    return f"{quoted(spec.event_time)} >= {_event_literal(spec, at_utc)}"


def before(spec: TableSpec, at_utc: datetime) -> str:
    """Return a filter on the event time that holds before an instant, without a beginning."""
    return f"{quoted(spec.event_time)} < {_event_literal(spec, at_utc)}"


def _event_literal(spec: TableSpec, at_utc: datetime) -> str:
    if spec.columns[spec.event_time].type == "date":
        return literal(at_utc.astimezone(spec.grid.zone).date())
    return instant_literal(at_utc)


def inside_or_nowhere(spec: TableSpec, partitions: Sequence[Partition]) -> str:
    """Return the filter of `inside`, and for rows without an event time too: they are not another partition's."""
    return f"{inside(spec, partitions)} OR {quoted(spec.event_time)} IS NULL"


# -- statements --------------------------------------------------------------------------------------------------------


def column_list(columns: Mapping[str, str], *, not_null: Collection[str] = ()) -> str:
    """Return columns as they stand in a schema or between the brackets of CREATE TABLE.

    Args:
        columns: Types by name.
        not_null: Names of the columns that must be filled.
    """
    return ", ".join(
        f"{quoted(name)} {kind}{' NOT NULL' if name in not_null else ''}" for name, kind in columns.items()
    )


def create_table(
    path: str,
    columns: Mapping[str, str],
    *,
    not_null: Collection[str] = (),
    partitioned_by: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> str:
    """Return the statement that makes a Delta table at a path, unless there is one.

    Args:
        columns: Types by name, the partition column among them.
        not_null: Names of the columns that must be filled.
    """
    by = f" PARTITIONED BY ({quoted(partitioned_by)})" if partitioned_by else ""
    more = f" TBLPROPERTIES ({_property_list(properties)})" if properties else ""
    named = column_list(columns, not_null=not_null)
    return f"CREATE TABLE IF NOT EXISTS {table_at(path)} ({named}) USING DELTA{by}{more}"


def add_columns(path: str, columns: Mapping[str, tuple[str, str]]) -> str:
    """Return the statement that adds columns to a table.

    Args:
        columns: Type and comment by name; an empty comment is none.
    """
    named = (
        f"{quoted(name)} {kind}{f' COMMENT {text_literal(comment)}' if comment else ''}"
        for name, (kind, comment) in columns.items()
    )
    return f"ALTER TABLE {table_at(path)} ADD COLUMNS ({', '.join(named)})"


def drop_not_null(path: str, column: str) -> str:
    """Return the statement after which a column of a table may be NULL."""
    return f"ALTER TABLE {table_at(path)} ALTER COLUMN {quoted(column)} DROP NOT NULL"


def set_properties(path: str, properties: Mapping[str, str]) -> str:
    """Return the statement that sets properties of a table, all in one commit."""
    return f"ALTER TABLE {table_at(path)} SET TBLPROPERTIES ({_property_list(properties)})"


def show_properties(path: str) -> str:
    """Return the statement that lists a table's properties; unlike DESCRIBE DETAIL it counts no files."""
    return f"SHOW TBLPROPERTIES {table_at(path)}"


def describe_history(path: str, *, newest: int | None = None) -> str:
    """Return the statement that lists a table's commits.

    Args:
        newest: So many of the newest only.
    """
    limit = "" if newest is None else f" LIMIT {newest:d}"
    return f"DESCRIBE HISTORY {table_at(path)}{limit}"


def describe_detail(path: str) -> str:
    """Return the statement that describes a table as a whole: its partition columns, its files, its size."""
    return f"DESCRIBE DETAIL {table_at(path)}"


def _property_list(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{text_literal(name)} = {text_literal(value)}" for name, value in properties.items())
