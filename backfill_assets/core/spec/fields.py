"""What the parts of a spec share: strict fields, and the words of their messages."""

from __future__ import annotations

import difflib
import zoneinfo

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A part of a spec: a field that it does not know is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True, serialize_by_alias=True)


def known_zone(name: str) -> str:
    """Return the name of a time zone, or refuse it."""
    try:
        zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # ZoneInfoNotFoundError is a KeyError
        raise ValueError(unknown(name, sorted(zoneinfo.available_timezones()), "time zone")) from error
    return name


def unknown(value: str, known: list[str], noun: str) -> str:
    """Say that a name is unknown, and which one may have been meant."""
    close = difflib.get_close_matches(value, known, n=1, cutoff=0.5)
    if close:
        return f"there is no {noun} `{value}`; did you mean `{close[0]}`?"
    return f"there is no {noun} `{value}`; there are {in_words(known[:12])}" + (" and more" if len(known) > 12 else "")


def in_words(names: list[str]) -> str:
    """Return names, quoted, with commas between them."""
    return ", ".join(f"`{name}`" for name in names)
