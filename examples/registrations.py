"""Registrations for TheWorldShop's events, as the registration desk wrote them: JSON lines, one file a day.

They lie in folders by year, month and day. Invented; the same seed gives the same rows, and a day is the same whichever
days are written with it.
"""

from __future__ import annotations

import json
import os
import random
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from backfill_assets.demo.belongings import Belongings

FILE_NAME = "registrations.json"
FIRST_DAY, LAST_DAY = date(2022, 1, 1), date(2024, 12, 31)
MAX_A_DAY = 60
"""A quarter of it on a quiet day, all of it before a fair."""

_EVENTS = ("Spring Fair", "Coffee Tasting", "Night Market", "Makers' Day", "Winter Fair")
_ATTENDEES = (
    "Jürgen Weiß",
    "Zoé Lefèvre",
    "Begoña Núñez",
    "Niamh O'Connor",
    "Łukasz Wójcik",
    "Ελένη Νικολάου",
    "佐藤 美咲",
    "فاطمة حسن",
)
_COUNTRIES = ("DE", "FR", "ES", "GB", "PL", "GR", "JP", "EG", None)
_STATUSES = ("registered", "registered", "registered", "registered", "waitlisted", "cancelled")


def file_of(folder: Path, day: date) -> Path:
    """Return where the file of a day lies."""
    return folder / f"{day:%Y}" / f"{day:%m}" / f"{day:%d}" / FILE_NAME


def registrations_of(day: date, *, seed: int) -> list[dict[str, Any]]:
    """Return the registrations of one day in UTC, by the time they came."""
    chance = random.Random(f"{seed} {day}")  # noqa: S311 (data, not a secret)
    seconds = sorted(chance.sample(range(86_400), chance.randint(MAX_A_DAY // 4, MAX_A_DAY)))
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return [
        {
            "registration_id": day.toordinal() * 1_000 + number,
            "event_name": chance.choice(_EVENTS),
            "attendee": chance.choice(_ATTENDEES),
            "country": chance.choice(_COUNTRIES),
            "status": chance.choice(_STATUSES),
            "registered_at": (midnight + timedelta(seconds=second)).isoformat(),
        }
        for number, second in enumerate(seconds)
    ]


def write_registrations(folder: Path, *, first_day: date = FIRST_DAY, last_day: date = LAST_DAY, seed: int) -> int:
    """Write one file for each day, both included; return how many rows that are. A file that is there is replaced."""
    rows = 0
    for number in range((last_day - first_day).days + 1):
        day = first_day + timedelta(days=number)
        found = registrations_of(day, seed=seed)
        file = file_of(folder, day)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{FILE_NAME}.part")  # hidden: a reader sees the old file or the new one
        part.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found), encoding="utf-8")
        part.replace(file)
        rows += len(found)
    return rows


def main() -> None:
    """Write three years of registrations below `LAKEHOUSE_ROOT`, over those that an earlier call has made."""
    root = Path(os.environ.get("LAKEHOUSE_ROOT") or ".lakehouse")
    folder = root / "landing" / "registrations"
    made = Belongings(root, "landing/.demo-registrations", (folder,))
    made.refuse_others()
    made.claim()
    rows = write_registrations(folder, seed=2023)
    print(f"{rows:,} registrations in {(LAST_DAY - FIRST_DAY).days + 1:,} daily files, in {folder}")


if __name__ == "__main__":
    main()
