"""What was done to versions of tables: each step, with who did it, when and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Literal

from backfill_assets.core.state.current_versions import CurrentVersion

StepName = Literal["making", "made", "copying", "copied", "compared", "cut over", "rolled back", "retired"]
"""`making` and `copying` are noted before anything is written, so that what is killed leaves a trace."""

_ONLY_BEFORE = "only before "


@dataclass(frozen=True, slots=True)
class VersionStep:
    """One step of a version.

    Args:
        at: Instant in ISO format, in UTC.
        key: Of the version that it is about.
        before: Of the other one: what it was compared with, or switched from.
        versions: Of the tables' logs, by key, that were read or made.
        rows: That were compared, or are in what became current; None where nobody counted.
        equal: Of a comparison, whether both have the same rows.
        switch_id: Of a switch.
        detail: In words.
    """

    at: str
    what: StepName
    key: str
    before: str = ""
    by: str = ""
    reason: str = ""
    versions: Mapping[str, int] = field(default_factory=dict[str, int])
    rows: int | None = None
    equal: bool | None = None
    switch_id: str = ""
    detail: str = ""


def detail_of(said: str, until: date | str, not_compared: Sequence[str]) -> str:
    """Return the detail of a step that rests on a comparison: what came of it, up to which day, and what was left out.

    Args:
        until: A day, before which all was compared; or any word, where all was.
        not_compared: In words.
    """
    whole = f"{_ONLY_BEFORE}{until}: {said}" if isinstance(until, date) else said
    return "; not compared: ".join(filter(None, [whole, "; ".join(not_compared)]))


def newest_comparison(steps: Sequence[VersionStep]) -> tuple[str, bool]:
    """Return in words what the newest comparison said, and when; and whether all that there is was found equal.

    What is equal before a day, which was named, says nothing of the rest.

    Args:
        steps: Comparisons of one version, the oldest first.
    """
    whole = [step for step in steps if not step.detail.startswith(_ONLY_BEFORE)]
    if not steps:
        return "", False
    last = steps[-1]
    said = f"{'equal' if last.equal else 'differs'}{'' if last in whole[-1:] else ' in part'}"
    return f"{said} at {last.at[:19].replace('T', ' ')}", bool(whole and whole[-1].equal and last.equal)


def is_noted(known: CurrentVersion, steps: Sequence[VersionStep]) -> bool:
    """Say whether the newest switch of a name was noted; a command that was killed could not.

    Args:
        steps: Of the name.
    """
    return not known.since or any(step.at == known.since for step in steps)


def left_by_the_newest_switch(known: CurrentVersion, steps: Sequence[VersionStep]) -> str:
    """Return the key that a name stood for before its newest switch, by its steps.

    Args:
        steps: Of the name, the oldest first.
    """
    switches = [step for step in steps if step.what in ("cut over", "rolled back")]
    if not is_noted(known, steps):
        return switches[-1].key if switches else known.name
    return switches[-1].before if switches else known.name
