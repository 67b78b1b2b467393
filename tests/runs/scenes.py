"""Lakehouses as they were right after a run, for tests that look at what a launch left behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.support.launching import TOTALS, Lake, Ran
from tests.support.shop import multiset, orders

DAY_1, DAY_2, DAY_3, DAY_4, DAY_5 = (f"2024-01-0{n}" for n in range(1, 6))


@dataclass(frozen=True)
class Scene:
    """A lakehouse as it was right after a run."""

    lake: Lake
    ran: Ran
    content: Any
    files: dict[str, set[str]]
    shown: dict[str, str]
    totals_shown: dict[str, str]


def scene(lake: Lake, ran: Ran) -> Scene:
    days = (DAY_1, DAY_2, DAY_3, DAY_4, DAY_5)
    return Scene(lake, ran, lake.content(), lake.files(), lake.shown(*days), lake.shown(*days, table=TOTALS))


def same_keys(*days: str, count: int = 3, **same: Any) -> Any:
    """The rows of some days, as they should be in the table."""
    return multiset(row for day in days for row in orders(day, count, **same))
