"""How long a launch can be taken back: as long as Delta keeps the files that it replaced, and their log. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

PROMISED = timedelta(days=30)
"""What tables of this project are made with."""

_PROPERTIES = {
    "delta.deletedFileRetentionDuration": timedelta(days=7),
    "delta.logRetentionDuration": timedelta(days=30),
}
"""What bounds an undo, and what Delta takes where a table does not say."""

_UNITS = {"week": 604_800, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
_INTERVAL = re.compile(r"(?:interval\s+)?(\d+)\s+(week|day|hour|minute|second)s?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class UndoWindow:
    """How long what a table's launches replaced is kept.

    Args:
        kept: From when it was replaced.
        shortest: The property that says so.
    """

    kept: timedelta
    shortest: str

    def until(self, replaced_at: datetime) -> datetime:
        """Return until when something can be taken back that replaced something at an instant."""
        return replaced_at + self.kept

    def warning(self, key: str) -> str:
        """Say that it is shorter than promised; empty if it is not."""
        if self.kept >= PROMISED:
            return ""
        return (
            f"`{key}` keeps what launches replace for {self.kept.total_seconds() / 86_400:g} days only "
            f"(`{self.shortest}`), and not for {PROMISED.days}. `VACUUM` may take it after that. Set the property to "
            f"`interval {PROMISED.days} days` while nobody writes the table."
        )


def undo_window(properties: Mapping[str, str]) -> UndoWindow:
    """Return how long a table with these properties keeps what an undo needs; what is not said is as Delta has it.

    | deletedFileRetentionDuration | logRetentionDuration | kept, in hours |
    |------------------------------|----------------------|----------------|
    | interval 30 days             | interval 30 days     | 720            |
    | interval 1 week              | interval 30 days     | 168            |
    | interval 60 days             | interval 36 hours    | 36             |
    | 2 Days                       | interval 30 days     | 48             |
    | -                            | -                    | 168            |
    | a while                      | interval 30 days     | 168            |
    """
    kept = {name: _duration(properties.get(name, ""), otherwise) for name, otherwise in _PROPERTIES.items()}
    shortest = min(kept, key=lambda name: kept[name])
    return UndoWindow(kept[shortest], shortest)


def _duration(text: str, otherwise: timedelta) -> timedelta:
    found = _INTERVAL.fullmatch(text.strip())
    return timedelta(seconds=int(found[1]) * _UNITS[found[2].lower()]) if found else otherwise
