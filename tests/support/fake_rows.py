"""What the table over lists does with rows: where it keeps them, which of one key wins, and which break a rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from backfill_assets.core.history.audit import AuditRule
from backfill_assets.core.history.guards import Guard
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import NOTHING_WRITTEN, CommitConflictError, UnreadableSourceError
from tests.support.fakes import HOME, PROBLEM, UNREADABLE_FILE, Row, hash_of, partition_key_of, row_key

IS_LATE = "_ba_is_late"
EXAMPLES = 3
"""Rows that are named for each rule and partition."""


def conflict(what: str) -> CommitConflictError:
    return CommitConflictError(what, state=NOTHING_WRITTEN, remedy="Try again.")


def refuse_unreadable(rows: Iterable[Row]) -> None:
    if unreadable := [row[UNREADABLE_FILE] for row in rows if UNREADABLE_FILE in row]:
        what = f"`{unreadable[0]}` cannot be read."
        raise UnreadableSourceError(what, state=NOTHING_WRITTEN, remedy="Restore it.")


def types_of(spec: TableSpec) -> dict[str, str]:
    return {name: column.type for name, column in spec.columns.items()}


def by_partition(spec: TableSpec, rows: Iterable[Row], by_file: Mapping[Any, str] | None) -> dict[str, list[Row]]:
    """Return staged rows by the partition in which they are kept: that of their file, else that of their event time."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        key = partition_key_of(spec, row) if by_file is None else by_file[row[HOME]]
        assert key is not None, "without files a row is kept by its event time"
        found.setdefault(key, []).append(row)
    return found


def latest_wins(
    spec: TableSpec, rows: Iterable[Row], by_file: Mapping[Any, str] | None
) -> tuple[list[Row], dict[str, int]]:
    """Return the rows that stay when the latest of each key wins, and by partition how many it replaced."""
    if not spec.latest_wins_by:
        return list(rows), {}
    kept: list[Row] = []
    superseded: dict[str, int] = {}
    for partition, all_here in by_partition(spec, rows, by_file).items():
        newest: dict[tuple[Any, ...], Row] = {}
        kept += [row for row in all_here if row.get(PROBLEM) is not None]
        here = [row for row in all_here if row.get(PROBLEM) is None]
        for row in here:
            key = row_key(spec, row)
            if key not in newest or rank_of(spec, newest[key]) < rank_of(spec, row):
                newest[key] = row
        kept += newest.values()
        if len(newest) < len(here):
            superseded[partition] = len(here) - len(newest)
    return kept, superseded


def is_covered(spec: TableSpec, row: Row, staged: Sequence[Row]) -> bool:
    """Say whether staged rows have a row, or one that supersedes it."""
    if not spec.key_columns:
        return hash_of(row) in map(hash_of, staged)
    same_key = [other for other in staged if row_key(spec, other) == row_key(spec, row)]
    return any(_age_of(spec, other) > _age_of(spec, row) or _has_values_of(spec, other, row) for other in same_key)


def at_stake(
    spec: TableSpec, guard: Guard, key: str, sides: tuple[Mapping[str, list[Row]], Mapping[str, list[Row]]]
) -> list[Row]:
    """Return the rows of a partition that a guard keeps, and staged rows would not.

    Args:
        sides: Staged rows and the table's, by partition key.
    """
    staged, now = sides
    if guard.keys:
        first, last = int(guard.keys.first), int(guard.keys.last)
        ours, theirs = (
            Counter({hash_of(row): 1 for row in rows.get(key, []) if not first <= row[guard.keys.column] <= last})
            for rows in sides
        )
        others = {*(ours - theirs), *(theirs - ours)}
        return [row for rows in sides for row in rows.get(key, []) if hash_of(row) in others]
    if guard.rule is AuditRule.KEYS_ARE_KEPT:
        there = {row_key(spec, row) for rows in staged.values() for row in rows}
        return [row for row in now[key] if row_key(spec, row) not in there]
    return [row for row in now[key] if not is_covered(spec, row, staged[key])]


def _has_values_of(spec: TableSpec, other: Row, row: Row) -> bool:
    """Say whether a row that is as new as another has each of its values."""
    same_age = _age_of(spec, other) == _age_of(spec, row)
    return same_age and all(row[name] is None or row[name] == other[name] for name in spec.columns)


def rank_of(spec: TableSpec, row: Row) -> tuple[Any, ...]:
    """Return by what a row wins over others with its key: the latest, NULL before all others; then the source's; then any, but always the same.

    Of late rows that with more values goes before.
    """
    filled = sum(row[name] is not None for name in spec.columns) if row.get(IS_LATE) else 0
    return (*_age_of(spec, row), not row.get(IS_LATE), filled, hash_of(row))


def _age_of(spec: TableSpec, row: Row) -> tuple[Any, ...]:
    return tuple((False,) if (value := row[name]) is None else (True, value) for name in spec.latest_wins_by)


def breaking(spec: TableSpec, rule: AuditRule, key: str, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of a partition that break a rule; for other rules than these three nobody can name one."""
    if rule is AuditRule.ROWS_INSIDE_PARTITION:
        return [row for row in rows if partition_key_of(spec, row) not in (key, None)]
    if rule is AuditRule.REQUIRED_COLUMNS_ARE_FILLED:
        return [row for row in rows if any(row[name] is None for name in spec.required_columns)]
    if rule is AuditRule.KEYS_ARE_UNIQUE:
        times = Counter(row_key(spec, row) for row in rows)
        return [row for row in rows if times[row_key(spec, row)] > 1]
    return []


def named(spec: TableSpec, key: str, row: Row) -> str:
    """Name a row by its key and event time, and by where it belongs if that is another partition."""
    shown = {name: "NULL" if row[name] is None else row[name] for name in spec.key_columns or spec.columns}
    values = ", ".join(f"{name}={value}" for name, value in shown.items() if name != spec.event_time)
    belongs = partition_key_of(spec, row)
    return f"{values} at {row[spec.event_time]:%Y-%m-%d %H:%M:%S}Z" + (
        f" (belongs to {belongs})" if belongs not in (key, None) else ""
    )


def without(spec: TableSpec, rows: Mapping[str, list[Row]], gone: list[Row]) -> dict[str, list[Row]]:
    """Return rows by partition, but for those with a key that has left their partition."""
    left = {key: {row_key(spec, row) for row in some} for key, some in by_partition(spec, gone, None).items()}
    return {key: [row for row in some if row_key(spec, row) not in left.get(key, set())] for key, some in rows.items()}
