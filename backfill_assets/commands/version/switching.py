"""How readers are switched from one version to another: compared first, then in one commit."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Literal

from backfill_assets.commands.version.chosen import ChosenVersion, now_iso, record, who
from backfill_assets.commands.version.compare import compare_all
from backfill_assets.errors import VersionError

if TYPE_CHECKING:
    from backfill_assets.core.history.version_comparison import VersionComparison
    from backfill_assets.core.state.current_versions import CurrentVersions
    from backfill_assets.core.state.version_steps import StepName

UNCHANGED = "Readers get what they got before."
_AGAIN = 3
"""So often two versions are compared if launches write them meanwhile."""

_MAY_DIFFER = "Or name the reason why they may differ with `--except REASON`."
_BEFORE_IT_IS_CUT_OVER = (
    "`backfill-assets version deploy {key}` launches what the new version lacks, and `status` says which partitions of "
    "either wait for a launch, and how far a stream or a feed is behind, for which `--patience SECONDS` waits longer; "
    "then repeat this. What goes to its stream alone is left out by `--before DAY`. "
    f"{_MAY_DIFFER}"
)
_BEFORE_IT_GOES_BACK = (
    "Launch in `{before}` what only the new version has, so that nobody loses it, and in what is made of it; then "
    f"repeat this. {_MAY_DIFFER}"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person asks for: which names are to stand for which versions.

    Args:
        to: Key by name.
        now: Key by name that is expected to be current.
        exception: Why versions that differ are switched all the same.
        until: Up to where they are compared. Whoever goes back gives up what only the new version has: so then all is
            that either has.
    """

    what: StepName
    to: Mapping[str, str]
    now: Mapping[str, str]
    reason: str
    exception: str
    until: Literal["before", "both"] | date = "before"

    @property
    def why(self) -> str:
        """What is kept of the reasons that were given."""
        return "; ".join(filter(None, [self.exception, self.reason]))


def refuse_not_forked(chosen: ChosenVersion, left: Sequence[str]) -> None:
    """Refuse a cut-over beside which tables stay that are made of the version before.

    Raises:
        VersionError: There are such tables, and they are not named.
    """
    from backfill_assets.core.spec.version_sets import not_forked

    missing = [key for key in not_forked(chosen.pairs, chosen.specs) if key not in left]
    if missing:
        named = ", ".join(f"`{key}`" for key in missing)
        raise VersionError(
            f"{named} is made of what `{chosen.key}` replaces, and has no version that is made of the new one: readers "
            "would join rows of both.",
            state=UNCHANGED,
            remedy=f"Write one, `backfill-assets version new {chosen.pairs[0].name} --downstream`; or leave it as it "
            f"is, with `--not-forked {missing[0]}`.",
            tables=missing,
        )


def one_of_each_name(chosen: ChosenVersion, *, goes_back: bool = False) -> ChosenVersion:
    """Return a chosen version with one pair for each name, by what is current now."""
    from backfill_assets.core.spec.version_sets import pairs_to_switch

    if not goes_back and len({pair.name for pair in chosen.pairs}) == len(chosen.pairs):
        return chosen
    current = chosen.project.lakehouse.current_table().read().key_of
    return replace(chosen, pairs=tuple(pairs_to_switch(chosen.pairs, current, goes_back=goes_back)))


def _refuse_mixture(chosen: ChosenVersion, asked: Asked, now: CurrentVersions) -> None:
    """Refuse to leave or make a version current beside another one of what it is made of.

    Raises:
        VersionError: There is such a version.
    """
    from backfill_assets.core.spec.version_sets import left_behind, made_of_what_goes
    from backfill_assets.core.spec.versions import name_of

    current = {name: one.key for name, one in now.by_name.items()}
    goes_back = asked.what == "rolled back"  # else whoever stays was named
    if goes_back and (left := left_behind(asked.to, current, chosen.specs)):
        key, goes = next(iter(left.items()))
        raise VersionError(
            f"`{key}` stays current, and is made of `{goes}`, which would not be any more: readers would join rows of "
            "both.",
            state=UNCHANGED,
            remedy=f"The version before `{key}` is retired, or has no spec: nothing goes back without it. Write a new "
            f"version that is as the earlier one was: `backfill-assets version new {name_of(goes)} --downstream`.",
            tables=[key],
        )

    if mixed := made_of_what_goes(asked.to, chosen.specs):
        key, goes = next(iter(mixed.items()))
        raise VersionError(
            f"`{key}` would become current, and is made of `{goes}`, which would not be any more: readers would join "
            "rows of both.",
            state=UNCHANGED,
            remedy=f"Take one step at a time: `backfill-assets version rollback {asked.now[name_of(key)]}`, then this.",
            tables=[key],
        )


@dataclass(frozen=True, slots=True)
class Switched:
    """What came of a switch.

    Args:
        found: The comparisons that it rests on; none if it had been saved before.
        is_new: Whether anything was switched; else it was so already.
    """

    now: CurrentVersions
    found: Sequence[VersionComparison] = ()
    is_new: bool = True


def switch_versions(
    chosen: ChosenVersion, asked: Asked, *, patience_seconds: float, log: Callable[[str], None]
) -> Switched:
    """Compare versions, and make others of them current in one commit. What is so already is left as it is.

    Raises:
        VersionError: They differ, do not fit together, or somebody was first. Nothing was changed.
    """
    from backfill_assets.core.spec.version_sets import made_of_others
    from backfill_assets.core.state.current_versions import Switch, switched
    from backfill_assets.core.state.version_steps import VersionStep, detail_of

    current = chosen.project.lakehouse.current_table()
    now = current.read()
    if all(now.key_of(name) == key for name, key in asked.to.items()):
        record_missing(chosen, asked, now, log)
        return Switched(now, is_new=False)
    _refuse_mixture(chosen, asked, now)
    paths = {key: chosen.project.lakehouse.table_path(key) for key in asked.to.values()}
    expected = {**made_of_others([*asked.to.values()], chosen.specs), **asked.now}
    switch = Switch(uuid.uuid4().hex, asked.to, expected, paths, now_iso(), by=who(), reason=asked.why)
    switched(now, switch)  # before the work of comparing
    found = _compared(chosen, asked, patience_seconds, log)
    switch = replace(switch, at=now_iso())
    saved = current.switch(switch)
    differing = "; ".join(str(one) for one in found if not one.is_equal)
    said = f"although {differing}" if differing else "equal"
    steps = [
        VersionStep(
            switch.at,
            asked.what,
            asked.to[one_name],
            asked.now[one_name],
            switch.by,
            reason=switch.reason,
            versions={one.before: one.before_version, one.new: one.new_version},
            rows=one.rows,
            equal=one.is_equal,
            switch_id=switch.switch_id,
            detail=detail_of(said, asked.until, one.not_compared),
        )
        for one, one_name in zip(found, asked.to, strict=True)
    ]
    record(chosen.project, *steps, log=log)
    return Switched(saved, found)


def _compared(
    chosen: ChosenVersion, asked: Asked, patience_seconds: float, log: Callable[[str], None]
) -> list[VersionComparison]:
    """Compare, and again if a launch came between; raise if versions differ, unless that is excepted."""
    goes_back = asked.what == "rolled back"
    launched: list[str] = []
    for _ in range(_AGAIN):
        found = compare_all(chosen, patience_seconds=patience_seconds, log=log, until=asked.until)
        differing = [one for one in found if (one.has_more if goes_back else not one.is_equal)]
        if differing and not asked.exception:
            raise VersionError(
                f"{differing[0]}.",
                state=UNCHANGED,
                remedy=(_BEFORE_IT_GOES_BACK if goes_back else _BEFORE_IT_IS_CUT_OVER).format(
                    key=chosen.key, before=differing[0].before
                ),
                tables=[one.new for one in differing],
            )
        if isinstance(asked.until, date) and not asked.exception:
            _refuse_left_over(chosen, found, asked.until, log)
        if not (launched := _launched_since(chosen, found, log)):
            return found
        log(f"{', '.join(launched)} was launched meanwhile; comparing again.")
    raise VersionError(
        f"{', '.join(f'`{key}`' for key in launched)} was launched during each of {_AGAIN} comparisons, so what "
        "would be switched was not compared as it is.",
        state=UNCHANGED,
        remedy="Repeat this when these launches have ended: `backfill-assets history` shows them.",
        tables=launched,
    )


def _refuse_left_over(
    chosen: ChosenVersion, found: Sequence[VersionComparison], until: date, log: Callable[[str], None]
) -> None:
    """Refuse to leave out rows of history: only from where its own stream begins a new version may get others.

    Raises:
        VersionError: The version before has rows from a day on that lies before that.
    """
    from backfill_assets.core.calendar.windows import midnight_utc
    from backfill_assets.core.spec.lakehouse import all_below
    from backfill_assets.core.state.fence import first_fence

    for one in found:
        end = midnight_utc(until, chosen.specs[one.new].grid.zone)
        below = all_below(one.new, chosen.specs)
        fences = [chosen.lake(key, log).fence() or first_fence(chosen.specs[key]) for key in below]
        boundaries = [fence.at_utc for fence in fences if fence]
        if one.left_over and (not boundaries or end < max(boundaries)):
            left = one.not_compared[-1]
            raise VersionError(
                f"`{one.new}` was held against `{one.before}` only before {until}, which leaves out {left}.",
                state=UNCHANGED,
                remedy="Leave `--before` out, or name the day from which on events go to the stream of the new version "
                f"alone. {_MAY_DIFFER}",
                tables=[one.new],
            )


def _launched_since(chosen: ChosenVersion, found: Sequence[VersionComparison], log: Callable[[str], None]) -> list[str]:
    """Return the versions that a launch has written since they were compared.

    A copy that follows the other version does not count, nor what is made of such copies alone: what they launch is
    what the other version has by then, and comes all the time. Nor does a refresh: it brings changes as a stream does.
    """
    copies = {one.new for one in found if chosen.specs[one.new].source.is_of_version}
    pinned = {one.before: one.before_version for one in found} | {one.new: one.new_version for one in found}
    follows = {one.new: {one.before} for one in found}
    launched: set[str] = set()
    for key, version in pinned.items():
        for receipt in chosen.lake(key, log).receipts_after(version).values():
            made_of = {*receipt.source.get("versions", {})}
            is_expected = made_of == follows.get(key) or (key in follows and bool(made_of) and made_of <= copies)
            is_expected |= receipt.source.get("kind") == "changes"
            if receipt.kind != "publish" or not is_expected:
                launched.add(key)
    return sorted(launched)


def record_missing(chosen: ChosenVersion, asked: Asked, now: CurrentVersions, log: Callable[[str], None]) -> None:
    """Note a switch that was saved by a command that was killed before it could note it."""
    from backfill_assets.core.state.version_steps import VersionStep, is_noted, left_by_the_newest_switch

    steps = {name: chosen.project.lakehouse.version_steps(name) for name in asked.to if name in now.by_name}
    lacking = [
        VersionStep(
            known.since, asked.what, known.key, asked.now[name], known.by, reason=known.reason, switch_id=now.switch_id
        )
        for name, known in now.by_name.items()
        if name in steps and not is_noted(known, steps[name])
        if left_by_the_newest_switch(known, steps[name]) == asked.now[name]  # else it came by another switch
    ]
    if lacking:
        record(chosen.project, *lacking, log=log)
