"""What was done to a table, in order: read from its receipts, its log, and what launches did not publish. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from backfill_assets.core.history.causes import causes_in_words, causes_of
from backfill_assets.core.state.attempts import Attempt
from backfill_assets.core.state.fence import fence_of
from backfill_assets.core.state.receipts import Receipt, undone_by
from backfill_assets.core.state.table_facts import PREFIX
from backfill_assets.core.state.tallies import sum_if_known
from backfill_assets.core.state.version_steps import VersionStep

_WORDS = {"publish": "published", "put_back": "restored", "reset": "reset"}
_OF_COLUMNS = ("COLUMN", "COLUMNS")
"""How Delta's words for changes of columns end."""

BATCHES, FOREIGN = "live batches", "somebody else"
_GOES_ON_BESIDE = (BATCHES, FOREIGN)
"""What happens beside launches, in any number of commits: between two operations of ours each of them is one line."""


@dataclass(frozen=True, slots=True)
class LoggedOperation:
    """One commit as Delta's own history tells of it.

    Args:
        name: Delta's word for what it did.
        properties: That it set, if it set any.
        live: What it is of the live side: a batch, or the end of an epoch; empty if it is neither.
        stream: Whose it is, then.
        rows: That the batch brought.
        batches: How many commits it stands for, which follow each other: more than one of batches alone.
    """

    version: int
    at: datetime
    name: str
    properties: Mapping[str, str]
    live: Literal["", "batch", "close"] = ""
    stream: str = ""
    rows: int = 0
    batches: int = 1

    @property
    def last_version(self) -> int:
        """The last version that it tells of."""
        return self.version + self.batches - 1


def batches_as_one(logged: Iterable[LoggedOperation]) -> list[LoggedOperation]:
    """Return commits in order, batches of one stream that follow each other as one, which ended when the last did."""
    found: list[LoggedOperation] = []
    for one in sorted(logged, key=lambda commit: commit.version):
        last = found[-1] if found else None
        if (
            last is not None
            and one.live == "batch" == last.live
            and (one.stream, one.version) == (last.stream, last.last_version + 1)
        ):
            found[-1] = replace(last, at=one.at, rows=last.rows + one.rows, batches=last.batches + one.batches)
        else:
            found.append(one)
    return found


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that was done to a table, or that a launch tried.

    Args:
        at: When it ended; for several commits, the last.
        what: In one or two words.
        versions: First and last that it made; none if it made none.
        partitions: Keys, in order.
        rows_before: That the table had in these partitions, whoever wrote them; None where that is not known.
        rows_after: That it had in them afterwards.
        seconds: From the first read to the last commit; None where that is not known.
        by: Who: a user, a schedule or a sensor.
        reason: In the launcher's words.
        why: In ours.
        counted: Rows before and after of each partition, by key, as receipts say.
        commits: Somebody else's, by Delta's name for them: how many.
    """

    at: datetime
    what: str
    versions: tuple[int, int] | None = None
    partitions: tuple[str, ...] = ()
    rows_before: int | None = None
    rows_after: int | None = None
    seconds: float | None = None
    run_id: str = ""
    by: str = ""
    reason: str = ""
    why: str = ""
    counted: dict[str, tuple[int | None, int]] = field(default_factory=dict[str, "tuple[int | None, int]"], repr=False)
    commits: Mapping[str, int] = field(default_factory=dict[str, int], repr=False)


def operations_of(
    receipts: Mapping[int, Receipt], logged: Sequence[LoggedOperation], attempts: Sequence[Attempt]
) -> list[Operation]:
    """Return what was done to a table, the oldest first.

    Commits of one launch are one operation, with whatever comes between them beside it. Between two operations of ours
    the batches of a live stream are one, and so are somebody else's commits.

    | version | its commit                          | what            |
    |---------|-------------------------------------|-----------------|
    | 0       | CREATE TABLE                        | made            |
    | 1       | a receipt, of run A                 | published       |
    | 2       | a receipt, of run A                 |                 |
    | 3       | a receipt, of run B                 | published       |
    | 4       | a receipt that takes 3 back         | undone          |
    | 5       | a receipt of a bad write            | restored        |
    | 6       | a batch                             | live batches    |
    | 7       | a batch                             |                 |
    | 8       | SET TBLPROPERTIES, of a fence       | fence           |
    | 9       | ADD COLUMNS                         | columns changed |
    | 10      | a reset                             | reset           |
    | 11      | DELETE                              | somebody else   |
    | 12      | OPTIMIZE                            |                 |
    | 13      | SET TBLPROPERTIES, of ours          | adopted         |
    | 14      | SET TBLPROPERTIES, of another       | somebody else   |

    Args:
        receipts: All that there are, by version; the log may have forgotten their commits.
        logged: The commits that the log still has, or a copy of it; batches that follow each other may be one.
    """
    by_version = {commit.version: commit for commit in logged}
    found: list[Operation] = []
    for version in sorted(receipts.keys() | by_version.keys()):
        if receipt := receipts.get(version):
            found.append(_published(version, receipt, by_version.get(version)))
        elif told := _told(by_version[version]):
            found.append(told)
    return sorted([*_joined(found), *map(_attempted, attempts)], key=lambda operation: operation.at)


def _published(version: int, receipt: Receipt, commit: LoggedOperation | None) -> Operation:
    what = "undone" if undone_by(receipt) else _WORDS[receipt.kind]
    made = datetime.fromisoformat(receipt.made_at) if receipt.made_at else datetime.fromtimestamp(0).astimezone()
    at = commit.at if commit else made
    began = datetime.fromisoformat(receipt.began_at) if receipt.began_at else None
    return Operation(
        at,
        what,
        (version, version),
        tuple(sorted(receipt.partitions)),
        sum_if_known(part.rows_before for part in receipt.partitions.values()),
        rows_after=sum(part.rows for part in receipt.partitions.values()),
        seconds=(at - began).total_seconds() if began else None,
        run_id=receipt.run.id,
        by=receipt.run.by,
        reason=receipt.run.reason,
        why=_how(receipt),
        counted={key: (part.rows_before, part.rows) for key, part in receipt.partitions.items()},
    )


def _how(receipt: Receipt) -> str:
    flow = f"once-flow {receipt.run.flow}" if receipt.run.flow else ""
    plan = f"plan {receipt.run.plan}" if receipt.run.plan else ""
    allowed = f"in spite of guards: {receipt.overrides}" if receipt.overrides else ""
    return "; ".join(filter(None, (flow or plan, allowed)))


def _told(commit: LoggedOperation) -> Operation | None:
    """Return what a commit without a receipt of history did; None where the next one tells."""
    versions = commit.version, commit.last_version
    if commit.live == "close":
        return None
    if commit.live == "batch":
        return Operation(commit.at, BATCHES, versions, rows_after=commit.rows, by=f"stream {commit.stream}")
    if commit.name == "CREATE TABLE":
        return Operation(commit.at, "made", versions)
    if commit.name.endswith(_OF_COLUMNS):
        return Operation(commit.at, "columns changed", versions, why=commit.name)
    if fence := fence_of(dict(commit.properties), ""):
        why = f"history before {fence.at_utc:%Y-%m-%d %H:%M} UTC, epoch {fence.epoch}"
        return Operation(commit.at, "fence", versions, why=f"{why}, stream {fence.stream}" if fence.stream else why)
    if given := sorted(name.removeprefix(PREFIX) for name in commit.properties if name.startswith(PREFIX)):
        return Operation(commit.at, "adopted", versions, why=f"the table was given {', '.join(given)}")
    return Operation(commit.at, FOREIGN, versions, why=commit.name, commits={commit.name: 1})


def _attempted(attempt: Attempt) -> Operation:
    causes = causes_of({key: [why] for key, why in attempt.partitions.items()})
    why = attempt.why or (causes[0].what if len(causes) == 1 else causes_in_words(causes))
    return Operation(
        datetime.fromisoformat(attempt.at),
        attempt.outcome,
        partitions=tuple(sorted(attempt.partitions)),
        run_id=attempt.run.id,
        by=attempt.run.by,
        reason=attempt.run.reason,
        why=why,
    )


def steps_about(key: str, steps: Iterable[VersionStep]) -> list[VersionStep]:
    """Return the steps of versions that a version has a part in."""
    return [step for step in steps if key in (step.key, step.before)]


def operation_of(step: VersionStep) -> Operation:
    """Return a step of a version as one more thing that was done to its tables."""
    between = f"{step.before} to {step.key}" if step.what in ("cut over", "rolled back") else step.key
    if step.what == "compared" and step.equal:
        between = f"{step.before} and {step.key} are equal"
    elif step.detail:
        between = f"{between}: {step.detail}"
    return Operation(
        datetime.fromisoformat(step.at),
        step.what,
        rows_after=step.rows,
        by=step.by,
        reason=step.reason,
        why=between,
    )


def _joined(operations: Iterable[Operation]) -> list[Operation]:
    """Return operations, those that are parts of one as one; what goes on beside it may lie between them."""
    found: list[Operation] = []
    for one in operations:
        for number in reversed(range(len(found))):
            if _is_one(found[number], one):
                found[number] = _both(found[number], one)
                break
            if found[number].what not in _GOES_ON_BESIDE:
                found.append(one)
                break
        else:
            found.append(one)
    return found


def _is_one(last: Operation, one: Operation) -> bool:
    if one.what == FOREIGN:
        return last.what == FOREIGN
    is_ours = bool(one.run_id) or one.what == BATCHES
    return is_ours and (last.what, last.run_id, last.by, last.why) == (one.what, one.run_id, one.by, one.why)


def _commits_in_words(commits: Mapping[str, int]) -> str:
    """Return which commits of somebody else there are, the most first: `9 commits: WRITE (8), OPTIMIZE (1)`."""
    named = sorted(commits, key=lambda name: -commits[name])
    each = f" ({commits[named[0]]:,})" if len(named) > 1 else ""
    others = "".join(f", {name} ({commits[name]:,})" for name in named[1:])
    return f"{sum(commits.values()):,} commits: {named[0]}{each}{others}"


def _both(first: Operation, then: Operation) -> Operation:
    assert first.versions is not None  # noqa: S101 (only commits are joined)
    assert then.versions is not None  # noqa: S101 (as above)
    began = None if first.seconds is None else first.at.timestamp() - first.seconds
    counted = dict(then.counted)  # a launch that was overtaken publishes a partition once more
    counted |= {key: (before, then.counted.get(key, (0, after))[1]) for key, (before, after) in first.counted.items()}
    commits = {
        name: first.commits.get(name, 0) + then.commits.get(name, 0) for name in {**first.commits, **then.commits}
    }
    return replace(
        then,
        versions=(first.versions[0], then.versions[1]),
        partitions=tuple(sorted({*first.partitions, *then.partitions})),
        rows_before=sum_if_known(before for before, _ in counted.values())
        if counted
        else sum_if_known((first.rows_before, then.rows_before)),
        rows_after=sum_if_known(after for _, after in counted.values())
        if counted
        else sum_if_known((first.rows_after, then.rows_after)),
        counted=counted,
        commits=commits,
        why=_commits_in_words(commits) if commits else then.why,
        seconds=None if began is None else then.at.timestamp() - began,
    )
