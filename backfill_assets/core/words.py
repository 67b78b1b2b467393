"""Ranges and quantities as people read them."""

from __future__ import annotations

SHORT_ID = 8
"""Letters of a run's id that are shown to people, as many as in Dagster's UI."""


def range_in_words(first: str, last: str) -> str:
    """Return a range of partition keys: `2024-01-01...2024-01-31`, or the one key that it is."""
    return first if first == last else f"{first}...{last}"


def count_in_words(count: int | None) -> str:
    """Return a number of rows; `unknown` if nobody can count them."""
    return "unknown" if count is None else f"{count:,}"


def bytes_in_words(count: float) -> str:
    """Return a number of bytes: 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def seconds_in_words(seconds: float) -> str:
    """Return a duration: 12 s, 3 min, 2.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def money_in_words(amount: float) -> str:
    """Return an amount; what is less than a cent is shown too."""
    return f"{amount:,.2f}" if amount >= 0.01 else f"{amount:.1g}"


def shortened(text: str, most: int) -> str:
    """Return a text, or as many of its first words as fit into a number of characters, and an ellipsis.

    Only a word is cut that would leave two thirds of the room empty.
    """
    if len(text) <= most:
        return text
    room = text[: most - 2]
    words = room.rpartition(" ")[0]
    return f"{(words if len(words) > most // 3 else room).rstrip('.,;: ')} …"
