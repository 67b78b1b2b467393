"""What the table over lists measures, where Spark counts in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.measures import Counted, Measures, measured
from tests.support.fakes import Row


def measures_of(spec: TableSpec, by_key: Mapping[str, Sequence[Row]]) -> Measures:
    """Return what a spec's expectations measure of rows, by partition key."""
    return {
        key: {
            expected.name: {
                group: measured(expected.function, _counted(some, expected.column))
                for group, some in _groups(rows, expected.by).items()
            }
            for expected in spec.expect
        }
        for key, rows in by_key.items()
    }


def _groups(rows: Sequence[Row], by: str | None) -> dict[str | None, list[Row]]:
    found: dict[str | None, list[Row]] = {}
    for row in rows:
        group = "" if by is None else None if row[by] is None else str(row[by])
        found.setdefault(group, []).append(row)
    return found


def _counted(rows: Sequence[Row], name: str | None) -> Counted:
    values = [row[name] for row in rows if row[name] is not None] if name else []
    if not values or not isinstance(values[0], (int, float, Decimal)):
        return Counted(len(rows), len(values))
    exact = [Decimal(str(value)) for value in values]
    return Counted(len(rows), len(exact), sum(exact), min(exact), max(exact))
