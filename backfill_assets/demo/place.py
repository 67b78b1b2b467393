"""Where the demo happens, and how much of it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Self

from backfill_assets.demo.belongings import Belongings
from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError

FIRST_DAY, LAST_DAY = date(2023, 1, 1), date(2025, 12, 31)
MIN_DAYS = 20

TABLE = "bronze/orders"
"""What the demo makes of the export."""

LATE_DAYS = 10
"""The last days of the export: for these, events come late."""


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
    def events(self) -> Path:
        return self.root / "landing" / "order_events"

    @property
    def last_day(self) -> date:
        return FIRST_DAY + timedelta(days=self.days - 1)

    @property
    def all_days(self) -> str:
        return f"{FIRST_DAY}...{self.last_day}"

    @property
    def last_days(self) -> str:
        """The last month of the export, or all of it if it is shorter."""
        return f"{self.last_day - timedelta(days=self.count_of_last - 1)}...{self.last_day}"

    @property
    def count_of_last(self) -> int:
        return min(self.days, 31)

    @property
    def broken_day(self) -> date:
        """A day for which no event comes late."""
        return self.last_day - timedelta(days=LATE_DAYS + 1)

    @property
    def reaches_fence(self) -> bool:
        """Whether the export ends where the stream begins; a shorter one leaves a gap, and the check says so."""
        return self.last_day == LAST_DAY

    @property
    def belongings(self) -> Belongings:
        return Belongings(self.root, "landing/.demo", (self.export,), (self.root / "tables" / TABLE,))

    def make_room(self) -> None:
        """Refuse to write over somebody's own.

        Raises:
            ConfigurationError: There is something that the demo has not made.
        """
        self.belongings.refuse_others()
        self.belongings.claim()


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
