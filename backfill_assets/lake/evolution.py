"""A table that follows its spec: new nullable columns, and NULL where it was refused; a step of its own, in no write.

Nothing is rewritten, so old files, old receipts and the protocol stay as they are. What else may differ (a type, a
column that is gone) is refused: `docs/decisions/0006-schema-evolution.md` says why, `docs/schemas.md` what to
do instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.types import StructType

from backfill_assets.core import sql
from backfill_assets.core.schema.compare import Action, ColumnChange, TableColumn, compare_columns
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import NOTHING_WRITTEN, SchemaMismatchError
from backfill_assets.lake.saving import saving
from backfill_assets.lake.table import LakeTable


@dataclass(frozen=True, slots=True)
class Evolved:
    """What was changed.

    Args:
        added: Columns that the table has now.
        relaxed: Columns that may be NULL now.
        version: The table's newest version; None if nothing was to be done.
    """

    added: tuple[str, ...] = ()
    relaxed: tuple[str, ...] = ()
    version: int | None = None


def columns_of(table: LakeTable) -> dict[str, TableColumn] | None:
    """Return the columns of a table without its partition column; None if there is no table."""
    schema = table.schema()
    return None if schema is None else _columns(schema, table.spec.partition_column)


def evolve(table: LakeTable) -> Evolved:
    """Let a table, and `<table>_late` beside it, follow the spec. Doing it again does nothing.

    The late table goes first: whatever is interrupted, `LakeTable.create` still refuses launches until this is done.
    Writers in flight fail because of the change and try again; the lock keeps them apart where the storage needs it.

    Raises:
        SchemaMismatchError: The spec differs in more than what can be done in place. Neither table was touched.
        TableFactsError: It is another table than its spec describes, for example of another grain. As above.
        CommitConflictError: Another writer changed the table's properties at the same time. A retry is safe.
        TableLockedError: Another writer holds the lock. A retry is safe.
    """
    late = table.late_table
    with (
        saving(late.path, table.spec.key, timeout_seconds=table.lock_timeout_seconds),
        saving(table.path, table.spec.key, timeout_seconds=table.lock_timeout_seconds),
    ):
        found = table.schema()
        if found is None:
            raise SchemaMismatchError(
                f"`{table.spec.key}`: there is no table at `{table.path}` yet.",
                state=NOTHING_WRITTEN,
                remedy="There is nothing to change: its first launch makes it with the columns of the spec.",
            )
        table.refuse_other_facts()
        have = _columns(found, table.spec.partition_column)
        changes = compare_columns(table.spec, [], have)
        if refused := [change for change in changes if change.action is Action.REFUSED]:
            raise _refusal(table.spec, table.path, refused)
        beside = late.columns()
        if beside is not None:
            lacking = [name for name in table.spec.columns if name not in beside]
            _alter(table, late.path, lacking, [])
        added = [name for name in table.spec.columns if name not in have]
        relaxed = [name for name, kept in have.items() if not kept.nullable and name not in table.spec.required_columns]
        _alter(table, table.path, added, relaxed)
        return Evolved(tuple(added), tuple(relaxed), table.version() if added or relaxed else None)


def _alter(table: LakeTable, path: str, added: Sequence[str], relaxed: Sequence[str]) -> None:
    columns = table.spec.columns
    if added:
        new = {name: (columns[name].type, columns[name].description) for name in added}
        table.spark.sql(sql.add_columns(path, new))
    for name in relaxed:
        table.spark.sql(sql.drop_not_null(path, name))


def _columns(schema: StructType, partition_column: str) -> dict[str, TableColumn]:
    return {
        f.name: TableColumn(f.dataType.simpleString(), f.nullable) for f in schema.fields if f.name != partition_column
    }


def _refusal(spec: TableSpec, path: str, refused: Sequence[ColumnChange]) -> SchemaMismatchError:
    problems: Mapping[str, str] = {change.column: change.what for change in refused}
    named = "; ".join(f"`{name}`: {what}" for name, what in problems.items())
    return SchemaMismatchError(
        f"`{spec.key}`: the table at `{path}` cannot follow its spec in place: {named}.",
        state=NOTHING_WRITTEN,
        remedy="Change the spec back, or make a new version of the table beside this one: "
        "`backfill-assets version new` begins it, and `docs/versions.md` shows how.",
        problems=list(problems),
    )
