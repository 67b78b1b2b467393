"""What taking a launch back does with each partition that it wrote. Only looks: nothing is written anywhere.

What somebody has written since is left as it is, unless that is asked for. Everything is looked at before the first
write, also whether the old content can still be read. `undo.py` carries a plan out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.ports import Lake, Rows
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.fence import is_history
from backfill_assets.core.state.receipts import PublishedPartition, Receipt, Run, as_at, undone_by
from backfill_assets.core.state.tallies import EMPTY, Tally


class UndoAction(StrEnum):
    """What becomes of a partition of a launch that is taken back."""

    RESTORED = "restored"
    DONE = "restored before"
    KEPT = "kept"
    """Somebody has written it since, or it cannot be written."""


@dataclass(frozen=True, slots=True)
class Undo:
    """Which launch is taken back, and by what run.

    Args:
        name: What it was named by: a run, a backfill, or a plan.
        is_of: Says whether a receipt is of it.
        discard_later: Whether partitions are put back that somebody has written since.
    """

    name: str
    is_of: Callable[[Receipt], bool]
    run: Run = field(default_factory=Run)
    discard_later: bool = False


@dataclass(frozen=True, slots=True)
class Undoing:
    """One partition of a launch that is taken back.

    Args:
        launched: What the launch left there.
        newest: The newest receipt that names it, the launch's or a later one.
        replacing: What replaced the content that it gets: the launch's first write of it, if it has several.
        then: What that content is; None until it was read.
    """

    key: str
    action: UndoAction
    why: str
    launched: PublishedPartition
    newest: PublishedPartition
    replacing: PublishedPartition
    then: Tally | None = None

    @property
    def before(self) -> int:
        """Version of the table whose content it gets."""
        return self.replacing.version - 1


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """What taking a launch back does with a table.

    Args:
        version: Newest version of the table when it was looked at.
        partitions: In order; none if the launch has written nothing to the table that the log still tells of.
    """

    version: int
    partitions: tuple[Undoing, ...]

    @property
    def replaced_at(self) -> datetime | None:
        """When the first of what would be put back was replaced, as far as receipts tell: Delta keeps it from then."""
        made = [one.replacing.receipt.made_at for one in self.partitions]
        return min((datetime.fromisoformat(at) for at in made if at), default=None)

    def of(self, action: UndoAction) -> list[Undoing]:
        """Return the partitions with which this is done."""
        return [one for one in self.partitions if one.action is action]


def of_launch(name: str, run_ids: Sequence[str]) -> Callable[[Receipt], bool]:
    """Return what says whether a receipt is of a launch: by its run, its runs' first one, or its plan.

    Args:
        run_ids: Of the launch's runs; a backfill may have several.
    """
    ids = {name, *run_ids} - {""}  # receipts that name no run, or no plan, are of no launch

    def is_of(receipt: Receipt) -> bool:
        return bool(ids & {receipt.run.id, receipt.run.root_id}) or receipt.run.plan in ids

    return is_of


def plan_undo(spec: TableSpec, lake: Lake[Rows], undo: Undo, *, only: Sequence[str] | None = None) -> UndoPlan:
    """Say what taking a launch back does, and read what would be put back. Writes nothing.

    What wrote a partition, in order: `L` the launch, `O` another one, `S` a stream, `F` somebody else. `U` puts back
    what `L` replaced, `V` puts back what `U` did; `B` is the launch, which found by itself that what it had published
    must not stay.

    | writes      | what is done    | as of version |
    |-------------|-----------------|---------------|
    | L1          | restored        | 0             |
    | O1 L2       | restored        | 1             |
    | F1 L2       | restored        | 1             |
    | O1 L2 L3    | restored        | 1             |
    | O1 L2 O3 L4 | restored        | 3             |
    | O1 L2 F3 L4 | restored        | 3             |
    | O1 L2 U3 L4 | restored        | 3             |
    | O1 L2 O3    | kept            | -             |
    | O1 L2 F3    | kept            | -             |
    | O1 L2 S3    | kept            | -             |
    | O1 L2 U3    | restored before | -             |
    | O1 L2 U3 F4 | kept            | -             |
    | O1 L2 U3 O4 | kept            | -             |
    | O1 L2 U3 V4 | restored        | 1             |
    | O1 L2 B3    | restored before | -             |
    | O1 L2 B3 L4 | restored        | 1             |

    Args:
        only: Keys of the partitions that are looked at; all of the launch if not given.

    Raises:
        UndoError: The old content of a partition cannot be read any more.
    """
    version = lake.version()
    writes: dict[str, list[PublishedPartition]] = {}
    for number, receipt in sorted(lake.receipts_after(-1).items()):
        for key, partition in receipt.partitions.items():
            writes.setdefault(key, []).append(PublishedPartition(number, receipt, partition))
    ours = {key: all_of_it for key, all_of_it in writes.items() if any(undo.is_of(one.receipt) for one in all_of_it)}
    if only is not None:
        ours = {key: ours[key] for key in only if key in ours}
    theirs = _written_by_others(spec, lake, ours, undo, until=version)
    judged = [_judged(key, all_of_it, theirs.get(key, []), undo) for key, all_of_it in sorted(ours.items())]
    return UndoPlan(version, _with_contents(spec, lake, _what_may_be_written(spec, lake, judged)))


def _written_by_others(
    spec: TableSpec, lake: Lake[Rows], ours: Mapping[str, Sequence[PublishedPartition]], undo: Undo, *, until: int
) -> dict[str, list[int]]:
    """Return the versions by which a live stream, or somebody else, wrote each partition since the launch began."""
    partitions = [spec.grid.partition(key) for key in ours if spec.grid.is_key(key)]
    if not partitions:
        return {}
    began = min(one.version for all_of_it in ours.values() for one in all_of_it if undo.is_of(one.receipt))
    of_history = lake.receipts_after(began).keys() | {began}
    versions = [v for v in lake.versions_writing(began, until + 1, partitions) if v not in of_history]
    found: dict[str, list[int]] = {}
    for version in versions:
        for partition in partitions:
            if lake.versions_writing(version - 1, version + 1, [partition]):
                found.setdefault(partition.key, []).append(version)
    return found


def _judged(key: str, writes: Sequence[PublishedPartition], theirs: Sequence[int], undo: Undo) -> Undoing:
    """Say what is done with one partition, by everything that was ever written of it, in order.

    Args:
        theirs: Versions by which somebody else wrote it, or a live stream.
    """
    newest = writes[-1]
    at = _of_which_it_is(writes, theirs, undo, newest.version)
    last = at if at is not None else max(n for n, one in enumerate(writes) if undo.is_of(one.receipt))
    first = last
    while (earlier := _of_which_it_is(writes[:first], theirs, undo, writes[first].version - 1)) is not None:
        first = earlier
    launched, replacing = writes[last], writes[first]
    since = [version for version in theirs if version > newest.version]
    action, why = UndoAction.RESTORED, f"as it was in version {replacing.version - 1}"
    is_done = launched.receipt.receipt_id in undone_by(newest.receipt)
    if since and not undo.discard_later:
        action, why = UndoAction.KEPT, f"somebody else wrote it in version {since[-1]}"
    elif (is_done or (newest is launched and _took_itself_back(newest))) and not since:
        action, why = UndoAction.DONE, f"in version {newest.version}"
    elif at is None and not undo.discard_later:
        what = "put back" if newest.receipt.kind == "put_back" else "published"
        action, why = UndoAction.KEPT, f"{what} since, in version {newest.version} by run {newest.receipt.run.id}"
    return Undoing(key, action, why, launched, newest, replacing=replacing)


def _of_which_it_is(
    writes: Sequence[PublishedPartition], theirs: Sequence[int], undo: Undo, version: int
) -> int | None:
    """Return which write a partition's content is of at a version, if that is the launch's.

    What was put back is of an earlier write; and of nobody's if somebody else wrote it in between.

    | writes, in order                                     | content is of |
    |------------------------------------------------------|---------------|
    | the launch                                           | the launch    |
    | the launch, another launch                           | the other one |
    | the launch, somebody else                            | somebody else |
    | the launch, put back as before it                    | an earlier    |
    | the launch, put back as before it, that put back too | the launch    |
    """
    at = len(writes) - 1
    while at >= 0:
        if any(writes[at].version < number <= version for number in theirs):
            return None
        if undo.is_of(writes[at].receipt):
            return at
        if writes[at].receipt.kind != "put_back":
            return None
        version = as_at(writes[at].version, writes[at].receipt)
        at = max((n for n, one in enumerate(writes[:at]) if one.version <= version), default=-1)
    return None


def _took_itself_back(newest: PublishedPartition) -> bool:
    """Say whether a launch found by itself that what it had published must not stay."""
    return newest.receipt.kind == "put_back" and not undone_by(newest.receipt)


def _what_may_be_written(spec: TableSpec, lake: Lake[Rows], found: Sequence[Undoing]) -> Iterator[Undoing]:
    """Yield what is done with each partition, once it is known who owns it."""
    fence = lake.fence() if found else None
    for one in found:
        if one.action is not UndoAction.RESTORED:
            yield one
        elif not spec.grid.is_key(one.key):
            yield replace(one, action=UndoAction.KEPT, why="it is no partition of the table any more")
        elif fence is not None and not is_history(spec.grid.partition(one.key), fence):
            yield replace(one, action=UndoAction.KEPT, why="it is live")
        else:
            yield one


def _with_contents(spec: TableSpec, lake: Lake[Rows], undoing: Iterable[Undoing]) -> tuple[Undoing, ...]:
    """Read what would be put back."""
    found, by_version = list(undoing), dict[int, list[Partition]]()
    for one in found:
        if one.action is UndoAction.RESTORED:
            by_version.setdefault(one.before, []).append(spec.grid.partition(one.key))
    before: dict[str, Tally] = {}
    for version, partitions in by_version.items():
        tallies = lake.earlier_tally(partitions, version=version)
        before |= {p.key: tallies.get(p.key, EMPTY) for p in partitions}
    return tuple(replace(one, then=before.get(one.key)) for one in found)
