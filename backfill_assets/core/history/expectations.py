"""What a partition measures, held against what its spec expects, before it is published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction

from backfill_assets.core.calendar.partitions import Grid, Partition
from backfill_assets.core.history.audit import AuditRule, Finding, Verdict
from backfill_assets.core.history.ports import Lake, Rows
from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.spec.expectations import Expectation, Function
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.measures import Group, Measures
from backfill_assets.core.state.receipts import NO_VALUE, Measured, Receipt, without
from backfill_assets.errors import StorageError, UnreadableSourceError, UnreadableTableError

MOST_GROUPS_KEPT = 20
"""So many groups of one measure go into a partition's receipt."""

_NAMED = 5
"""So many groups are named in a refusal."""

Groups = Mapping[Group, Decimal | None]


@dataclass(frozen=True, slots=True)
class ComparedWith:
    """Versions of the table with which a chunk is compared.

    Args:
        itself: For what its partitions are now.
        others: For what other partitions are: the same for every chunk of a launch.
    """

    itself: int
    others: int


def hold_to_expectations(
    spec: TableSpec,
    lake: Lake[Rows],
    staged: StagedChunk[Rows],
    receipt: Receipt,
    versions: ComparedWith,
    *,
    are_binding: bool = True,
    log: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, Verdict], Receipt]:
    """Measure the partitions that a receipt names, and refuse those that are not as expected.

    What has no rows is not measured: `empty` says whether that may be. Where what it is compared with cannot be read,
    there is nothing to compare with: a damaged file of the table is written anew by a launch.

    Args:
        are_binding: Whether partitions that are not as expected are refused; if not, they are measured all the same.

    Returns:
        The verdicts on those that are refused, by key, and the receipt of the others, with what was measured.
    """
    partitions = [spec.grid.partition(key) for key, part in receipt.partitions.items() if part.rows]
    if not spec.expect or not partitions:
        return {}, receipt
    now = lake.measures(partitions, staged=staged)
    before = _before(spec, lake, partitions, versions, log)
    refused: dict[str, Verdict] = {}
    kept = dict(receipt.partitions)
    for partition in partitions:
        found: list[Finding] = []
        told: list[Measured] = []
        for expected in spec.expect:
            is_now = now.get(partition.key, {}).get(expected.name, {})
            was = before[expected.of].get(partition.key, {}).get(expected.name) if expected.within is not None else None
            if finding := _finding(expected, was, is_now):
                found.append(finding)
            told += _told(expected, was, is_now)
        kept[partition.key] = replace(kept[partition.key], measures=tuple(told))
        if found and are_binding:
            refused[partition.key] = Verdict(partition, tuple(found))
    return refused, without(replace(receipt, partitions=kept), refused)


def is_within(within: Decimal, was: Decimal | None, now: Decimal | None) -> bool:
    """Say whether a value differs from an earlier one by no more than a part of that.

    | within | was  | now  | holds |
    |--------|------|------|-------|
    | 0.1    | 100  | 110  | yes   |
    | 0.1    | 100  | 111  | no    |
    | 0.1    | 100  | 90   | yes   |
    | 0.1    | 100  | 89   | no    |
    | 0.1    | -100 | -110 | yes   |
    | 0.1    | -100 | 100  | no    |
    | 0      | 5    | 5    | yes   |
    | 0.1    | 0    | 0    | yes   |
    | 0.1    | 0    | 1    | no    |
    | 0.1    | 100  | none | no    |
    | 0.1    | none | 100  | yes   |
    | 0.1    | none | none | yes   |
    | 0.1    | 100  | NaN  | no    |
    | 0.1    | NaN  | 100  | yes   |
    """
    if was is None or not was.is_finite():
        return True
    if now is None or not now.is_finite():
        return False
    return abs(Fraction(now) - Fraction(was)) <= Fraction(within) * abs(Fraction(was))


def _before(
    spec: TableSpec,
    lake: Lake[Rows],
    partitions: Sequence[Partition],
    versions: ComparedWith,
    log: Callable[[str], None],
) -> dict[str, Measures]:
    """Return what is compared with, by what `of` names, under the keys of the partitions that are compared."""
    found: dict[str, Measures] = {"published": {}, "previous": {}, "week_before": {}}
    for of in {expected.of for expected in spec.expect if expected.within is not None}:
        compared = {p.key: _compared_with(spec.grid, of, p) for p in partitions}
        version = versions.itself if of == "published" else versions.others
        there = _readable(lake, sorted(set(compared.values())), version, log)
        found[of] = {key: there[other.key] for key, other in compared.items() if other.key in there}
    return found


def _readable(
    lake: Lake[Rows], partitions: Sequence[Partition], version: int, log: Callable[[str], None]
) -> dict[str, Mapping[str, Groups]]:
    """Measure partitions of the table; those that cannot be read are left out, and said."""
    try:
        return dict(lake.measures(partitions, version=version))
    except (UnreadableTableError, UnreadableSourceError, StorageError) as error:
        if len(partitions) == 1:
            log(
                f"Nothing is compared with what the table has of {partitions[0].key}, which is unreadable: {error.what}"
            )
            return {}
    return {key: found for p in partitions for key, found in _readable(lake, [p], version, log).items()}


def _compared_with(grid: Grid, of: str, partition: Partition) -> Partition:
    match of:
        case "previous":
            return grid.previous(partition)
        case "week_before":
            return grid.week_before(partition)
        case _:
            return partition


def _finding(expected: Expectation, was: Groups | None, now: Groups) -> Finding | None:
    """Return what is not as expected of one measure; None if all is.

    Args:
        was: What is compared with; None if that has no rows.
    """
    wrong = [
        f"{f'`{group}` ' if expected.by else ''}{why}"
        for group, before, value in _pairs(was, now)
        if (why := _why(expected, before, value, has_before=was is not None))
    ]
    if not wrong:
        return None
    more = f", and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    what = (
        f"`{expected.name}`: {'; '.join(wrong[:_NAMED])}{more}. `allow_unexpected: true` in the launch's config "
        "publishes it"
    )
    return Finding(AuditRule.MEASURES_ARE_AS_EXPECTED, 0, f"{what}.")


def _why(expected: Expectation, was: Decimal | None, now: Decimal | None, *, has_before: bool) -> str:
    """Say why a value is not as expected; empty if it is. A group that is on one side only counts as 0 on the other."""
    if expected.within is not None and has_before and not is_within(expected.within, was, now):
        before, after = _in_words(expected, was), _in_words(expected, now)
        allowed = f"where `within: {expected.within}` is allowed"
        return f"{before} {_OF[expected.of]} and {after} now{_change(was, now)}, {allowed}"
    if now is None or (expected.at_least is None and expected.at_most is None):
        return ""
    if expected.at_least is not None and not (now.is_finite() and now >= expected.at_least):
        return f"{_in_words(expected, now)} is not `at_least: {expected.at_least}`"
    if expected.at_most is not None and not (now.is_finite() and now <= expected.at_most):
        return f"{_in_words(expected, now)} is not `at_most: {expected.at_most}`"
    return ""


def _change(was: Decimal | None, now: Decimal | None) -> str:
    """Return by which part a value has changed; nothing where no number says it."""
    if not was or now is None or not now.is_finite():
        return ""
    with suppress(OverflowError):
        return f", {float((Fraction(now) - Fraction(was)) / abs(Fraction(was))):+.3g} of it"
    return ""


_OF = {"published": "in the table", "previous": "in the partition before", "week_before": "a week before"}


def _pairs(was: Groups | None, now: Groups) -> list[tuple[Group, Decimal | None, Decimal | None]]:
    """Return each group with its value on both sides, in order; NULL is the first."""
    absent, before = Decimal(0), was or {}
    groups = sorted(before.keys() | now.keys(), key=lambda group: (group is not None, group or ""))
    return [(group, before.get(group, absent), now.get(group, absent)) for group in groups]


def _told(expected: Expectation, was: Groups | None, now: Groups) -> list[Measured]:
    """Return what goes into the receipt of one measure."""
    compares = was is not None and expected.within is not None
    return [
        Measured(expected.name, group, _in_words(expected, before) if compares else None, _in_words(expected, value))
        for group, before, value in _pairs(was if compares else None, now)[:MOST_GROUPS_KEPT]
    ]


def _in_words(expected: Expectation, value: Decimal | None) -> str:
    """Return a value as text: exactly, but of an average or a share twelve digits."""
    if value is None:
        return NO_VALUE
    if not value.is_finite():
        return str(value)
    if expected.function in (Function.AVG, Function.NULL_SHARE):
        with localcontext(prec=12):
            value = +value
    return f"{value:f}"
