"""Measures of partitions, as a spec's expectations name them: the same on every side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from backfill_assets.core.spec.expectations import Function

Group = str | None
"""A value of the column by which a measure is taken, as text; empty where it is taken of all rows together."""

Measures = Mapping[str, Mapping[str, Mapping[Group, Decimal | None]]]
"""By partition key and name of the measure: its value of each group. A partition without rows is missing, and a value
is None where no row has one."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What an engine counts of one column, in the rows of one group; what no measure needs may be left out.

    Args:
        rows: Rows of the group.
        filled: Those with a value.
        total: Sum of the values.
        smallest: Of them.
        largest: Of them.
    """

    rows: int
    filled: int = 0
    total: Decimal | None = None
    smallest: Decimal | None = None
    largest: Decimal | None = None


NEEDED: Mapping[Function, tuple[str, ...]] = {
    Function.COUNT: (),
    Function.SUM: ("total", "filled"),
    Function.AVG: ("total", "filled"),
    Function.MIN: ("smallest",),
    Function.MAX: ("largest",),
    Function.NULL_SHARE: ("filled",),
}
"""Which fields of `Counted` a function is made of, besides the rows."""


def measured(function: Function, counted: Counted) -> Decimal | None:
    """Return what a function says of what was counted; None if no row has a value."""
    match function:
        case Function.COUNT:
            return Decimal(counted.rows)
        case Function.SUM:
            return _total(counted)
        case Function.AVG:
            total = _total(counted)
            return total / counted.filled if total is not None else None
        case Function.MIN:
            return counted.smallest
        case Function.MAX:
            return counted.largest
        case Function.NULL_SHARE:
            return Decimal(counted.rows - counted.filled) / counted.rows


def _total(counted: Counted) -> Decimal | None:
    """Return the sum; infinite if it has more digits than the engine can count, none if there is nothing to add."""
    if counted.total is None and counted.filled:
        return Decimal("Infinity")
    return counted.total
