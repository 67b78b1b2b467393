"""Why a launch is made: a few kinds, each with the scope that it suggests, and whatever one wants to say beside it.

Source: "Backfill data", lesson of a course on safe backfills, which asks for the purpose before anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import NOTHING_WRITTEN, ReasonMissingError


class ReasonKind(StrEnum):
    """Kinds of reasons; a launch's reason begins with one: `logic changed: revenue without tax`."""

    NEW_DATA = "new data"
    HISTORY_MISSING = "history missing"
    SOURCE_CHANGED = "source changed"
    OUTAGE = "outage"
    LOGIC_CHANGED = "logic changed"
    BAD_UPSTREAM = "bad upstream"
    SCHEMA_CHANGED = "schema changed"


SCOPES: Mapping[ReasonKind, str] = {
    ReasonKind.NEW_DATA: "the whole table, from its start, once",
    ReasonKind.HISTORY_MISSING: "what is missing: `backfill-assets gaps`, or `only: MISSING`",
    ReasonKind.SOURCE_CHANGED: "the partitions whose source has changed: `only: MISSING` finds them",
    ReasonKind.OUTAGE: "the partitions of the outage, and those that late events belong to: `only: MISSING`",
    ReasonKind.LOGIC_CHANGED: "the table and all that is made of it, from where the new logic is to hold",
    ReasonKind.BAD_UPSTREAM: "the range that was bad, here and in all that is made of it",
    ReasonKind.SCHEMA_CHANGED: "the partitions that are to have values in the new columns",
}
"""What each kind suggests to launch."""


def kind_of(reason: str) -> ReasonKind | None:
    """Return the kind that a reason begins with; None if it begins with none."""
    named = reason.partition(":")[0].strip().casefold()
    return next((kind for kind in ReasonKind if kind.value == named), None)


def refuse_without_reason(spec: TableSpec, reason: str) -> None:
    """Refuse a launch of a table that requires a reason of a known kind.

    Raises:
        ReasonMissingError: It has none.
    """
    if spec.reason == "optional" or kind_of(reason) is not None:
        return
    given = f"`{reason}` begins with none of the kinds" if reason else "none was given"
    raise ReasonMissingError(
        f"`{spec.key}` requires a reason for each launch, and {given}.",
        state=NOTHING_WRITTEN,
        remedy=f"Set `reason` in the launch's config to one of: {', '.join(ReasonKind)}; and add what you like after a "
        "colon, as in `logic changed: revenue without tax`.",
    )
