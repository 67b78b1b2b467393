"""Where the demo happens, and how much of it."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Self

from backfill_assets.demo.belongings import Belongings
from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError

FIRST_DAY, LAST_DAY = date(2023, 1, 1), date(2025, 12, 31)
MIN_DAYS = 20

TABLES = ("bronze/orders", "silver/daily_sales", "gold/monthly_revenue")
"""What the demo makes of the export."""


@dataclass(frozen=True, slots=True)
class Shop:
    """Where the demo happens, and how much of it.

    Args:
        root: The lakehouse's root: a local folder.
        days: Days from 2023-01-01 on.
    """

    root: Path
    orders_per_day: int
    days: int
    seed: int

    @classmethod
    def from_environment(cls, *, orders_per_day: int, days: int, seed: int) -> Self:
        """Read `LAKEHOUSE_ROOT`.

        Raises:
            ConfigurationError: The root is not a local folder, or there are too few days to tell the story.
        """
        root = os.environ.get("LAKEHOUSE_ROOT") or ".lakehouse"
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", root):
            raise ConfigurationError(
                f"The demo makes its data in a local folder, and LAKEHOUSE_ROOT is `{root}`.",
                state=NOTHING_WRITTEN,
                remedy="Unset it, or name a local folder.",
            )
        if days < MIN_DAYS:
            raise ConfigurationError(
                f"{days} days are too few to kill a launch half-way.",
                state=NOTHING_WRITTEN,
                remedy=f"Use --days {MIN_DAYS} or more.",
            )
        return cls(Path(root).absolute(), orders_per_day, days, seed)

    @property
    def export(self) -> Path:
        return self.root / "landing" / "orders"

    @property
    def away(self) -> Path:
        """Where the export is while tables are made without it."""
        return self.export.with_name("orders.away")

    @property
    def events(self) -> Path:
        return self.root / "landing" / "order_events"

    @property
    def last_day(self) -> date:
        return FIRST_DAY + timedelta(days=self.days - 1)

    @property
    def all_days(self) -> str:
        return f"{FIRST_DAY}...{self.last_day}"

    @property
    def last_month(self) -> str:
        return f"{max(FIRST_DAY, self.last_day.replace(day=1))}...{self.last_day}"

    @property
    def last_year(self) -> str:
        return f"{max(FIRST_DAY, self.last_day.replace(month=1, day=1))}...{self.last_day}"

    @property
    def reaches_fence(self) -> bool:
        """Whether the export ends where the stream begins; a shorter one leaves a gap, and the check says so."""
        return self.last_day == LAST_DAY

    @property
    def whole_months(self) -> str | None:
        """The months that begin and end within the last year; None if there is none."""
        first = date.fromisoformat(self.last_year.partition("...")[0])
        end = (self.last_day + timedelta(days=1)).replace(day=1) - timedelta(days=1)
        return None if end < first else f"{first}...{end.replace(day=1)}"

    @property
    def belongings(self) -> Belongings:
        tables = tuple(self.root / "tables" / key for key in TABLES)
        return Belongings(self.root, "landing/.demo", (self.export, self.away), tables)

    def make_room(self) -> None:
        """Refuse to write over somebody's own; bring back what a story that was killed has put away.

        Raises:
            ConfigurationError: There is something that the demo has not made.
        """
        self.belongings.refuse_others()
        self.belongings.claim()
        if self.away.exists():  # a story that was killed has left it there
            if self.export.exists():
                shutil.rmtree(self.away)
            else:
                self.away.rename(self.export)


def refuse_dotenv() -> None:
    """Refuse to start Dagster where a file `.env` would set what a story has set itself: it would act on another place.

    Raises:
        ConfigurationError: There is one.
    """
    from dotenv import dotenv_values

    for name, value in dotenv_values(".env").items():
        if value is not None and name in os.environ and os.environ[name] != value:
            raise ConfigurationError(
                f"`{Path.cwd() / '.env'}` sets {name}, and so does the demo, for its own processes.",
                state="The demo ended there.",
                remedy="Call it in another folder, one without that file.",
            )
