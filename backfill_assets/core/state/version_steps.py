"""What was done to versions of tables: each step, with who did it, when and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

StepName = Literal["making", "made", "copying", "copied", "compared", "cut over", "rolled back", "retired"]
"""`making` and `copying` are noted before anything is written, so that what is killed leaves a trace."""


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
