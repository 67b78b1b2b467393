"""Whether new versions have the rows that the versions before them have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Literal

import click

from backfill_assets.commands.version.chosen import ChosenVersion, now_iso, record, who

if TYPE_CHECKING:
    from rich.table import Table as Shown

    from backfill_assets.core.history.version_comparison import VersionComparison
    from backfill_assets.core.spec.version_sets import VersionPair
    from backfill_assets.lake.table import LakeTable
    from backfill_assets.live.changes.at_one_position import AtOnePosition

patience_option = click.option(
    "--patience",
    "patience_seconds",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds for which rows may be missing that a stream or a feed is still to bring.",
)
before_option = click.option(
    "--before",
    "before_day",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DAY",
    help="Compare only what happened before this day of the new version's time zone: where it alone gets events since.",
)
_DAYS_SHOWN = 10


def compare_all(
    chosen: ChosenVersion,
    *,
    patience_seconds: float,
    log: Callable[[str], None],
    until: Literal["before", "both"] | date = "before",
) -> list[VersionComparison]:
    """Compare each new version with the one before it, and note what came of it.

    Args:
        until: Up to where, as `compare_versions` says; up to a day of each new version's zone.

    Raises:
        VersionError: One of them was not made.
        SameTableError: Both are one table.
    """
    from backfill_assets.core.calendar.windows import midnight_utc
    from backfill_assets.core.state.version_steps import VersionStep, detail_of
    from backfill_assets.lake.version_comparison import compare_versions

    found: list[VersionComparison] = []
    for pair in chosen.pairs:
        lakes = chosen.lake(pair.before, log), chosen.lake(pair.new, log)
        end = midnight_utc(until, chosen.specs[pair.new].grid.zone) if isinstance(until, date) else until
        if both := _both_followed(chosen, pair, log):
            one = compared_as_followed(both, *lakes, patience_seconds=patience_seconds, until=end)
        else:
            one = compare_versions(*lakes, patience_seconds=patience_seconds, until=end)
        found.append(one)
        versions = {one.before: one.before_version, one.new: one.new_version}
        step = VersionStep(
            now_iso(),
            "compared",
            one.new,
            one.before,
            who(),
            reason="",
            versions=versions,
            rows=one.rows,
            equal=one.is_equal,
            detail=detail_of(str(one), until, one.not_compared),
        )
        record(chosen.project, step, log=log)
    return found


def _both_followed(chosen: ChosenVersion, pair: VersionPair, log: Callable[[str], None]) -> AtOnePosition | None:
    """Return what reads both versions where each follows a database by a feed of its own; else nothing."""
    from backfill_assets.live.changes.at_one_position import AtOnePosition

    before, new = (chosen.table(key).changed_source(log) for key in (pair.before, pair.new))
    return AtOnePosition([before, new], log) if before and new else None


def compared_as_followed(
    both: AtOnePosition,
    before: LakeTable,
    new: LakeTable,
    *,
    patience_seconds: float,
    until: Literal["before", "both"] | datetime,
) -> VersionComparison:
    """Compare both as of one moment, if that can be; and say what of either lacks changes, now or from now on.

    What was folded in while they were read must come into them by a refresh; else they are compared once more as they
    are. So they are where a day has begun meanwhile, which each launches in its own turn. Of versions that follow by
    two feeds, or by one that cannot be read on, what they have is compared.
    """
    from backfill_assets.lake.version_comparison import compare_versions, refuse_same_table

    refuse_same_table(before, new)
    launched = both.launched()
    both.wait(patience_seconds)
    is_one_feed = both.is_one_feed()
    read, patience = (both.read, 0.0) if is_one_feed else (None, patience_seconds)
    found = compare_versions(before, new, until=until, read=read, patience_seconds=patience)
    may_be_switched = found.is_equal or not found.has_more
    has_begun = is_one_feed and not found.is_equal and both.launched() != launched
    has_come = not (may_be_switched or has_begun) or both.wait(patience_seconds)
    if has_begun or (is_one_feed and not has_come):
        found = compare_versions(before, new, until=until, read=read)
        both.wait(patience_seconds)
    left_before, left_new = both.not_followed()
    lagging_before, lagging_new = both.lagging()
    return replace(
        found,
        not_followed=left_new,
        not_followed_before=left_before,
        lagging=lagging_new,
        lagging_before=lagging_before,
    )


def fields_of(one: VersionComparison) -> dict[str, Any]:
    """Return a comparison for JSON."""
    return {
        "table": one.new,
        "before": one.before,
        "versions": {one.before: one.before_version, one.new: one.new_version},
        "equal": one.is_equal,
        "days": one.days,
        "rows": one.rows,
        "came_later": one.came_later,
        "not_compared": list(one.not_compared),
        "before_the_start": one.outside,
        "not_followed": {one.before: list(one.not_followed_before), one.new: list(one.not_followed)},
        "lagging": {one.before: list(one.lagging_before), one.new: list(one.lagging)},
        "differing": [
            {"day": day.day, "only_before": day.only_before, "only_new": day.only_new, "examples": list(day.examples)}
            for day in one.differing
        ],
    }


def shown_as_table(found: Sequence[VersionComparison]) -> Shown:
    """Return what a person reads."""
    from rich.markup import escape
    from rich.table import Table as Shown

    equal = all(one.is_equal for one in found)
    title = "The versions are equal, as far as they can be compared" if equal else "The versions differ"
    shown = Shown(title=title, title_justify="left", show_lines=True)
    for name in ("versions", "days", "rows", "result", "not compared"):
        shown.add_column(name, justify="right" if name in ("days", "rows") else "left", overflow="fold")
    for one in found:
        lines = [
            f"{day.day}: {day.only_before:,} only in {one.before}, {day.only_new:,} only in {one.new}"
            + "".join(f"\n  {text}" for text in day.examples)
            for day in one.differing[:_DAYS_SHOWN]
        ]
        if len(one.differing) > _DAYS_SHOWN:
            lines.append(f"... and {len(one.differing) - _DAYS_SHOWN:,} more days")
        lines += filter(None, [one.outside, one.without_changes])
        if one.came_later:
            lines.append(f"{one.came_later:,} rows had not come to both when they were read, and have by now")
        pinned = f"{one.before} at {one.before_version}\n{one.new} at {one.new_version}"
        result = "\n".join(["equal" if one.is_equal else "differs", *lines])
        cells = (pinned, f"{one.days:,}", f"{one.rows:,}", result, "\n".join(one.not_compared))
        shown.add_row(*map(escape, cells), style="green" if one.is_equal else "bold red")
    return shown
