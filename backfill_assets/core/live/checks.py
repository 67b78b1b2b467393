"""The checks around the fence: their names, what is known of a live table, and what can be told from that alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from backfill_assets.core.live.receipts import LiveReceipt
from backfill_assets.core.spec.live import LiveStream
from backfill_assets.core.state.fence import Fence

NEIGHBOURS = 31
"""Partitions of history before the fence whose keys are held against the live ones."""

CLOCKS_MAY_DIFFER_SECONDS = 60.0
"""A batch that was written so far in the future tells nothing about silence."""

CHECKS = {
    "live_is_writing": "The newest batch is not older than `live.silent_after_seconds`.",
    "no_gap_at_fence": "Every partition before the fence is published; every live one that has ended holds exactly the "
    "events that landed.",
    "no_overlap_at_fence": f"No partition is written by both sides; no live key is in the last {NEIGHBOURS} "
    "partitions before the fence; nobody else wrote a published one; every row lies in a partition.",
    "landed_files_are_as_read": "No file that landed has changed since the stream listed it: what is written to a file "
    "afterwards is never read. Spark sees each of them.",
    "late_rows_are_folded": "No partition waits for a launch that folds late rows in.",
    "nothing_is_quarantined": "Everything that landed was a valid event of the table.",
}
"""What is looked at around the fence: what holds when a check is green."""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file that landed, and that is not as it was when the stream listed it.

    Args:
        changed_millis: Its time now, in milliseconds since 1970.
        acknowledged: Who has dealt with it as it is now, and when, in words; empty if nobody has.
    """

    path: str
    changed_millis: int
    acknowledged: str = ""


@dataclass(frozen=True, slots=True)
class LiveCheck:
    """Whether one thing holds around the fence.

    Args:
        name: What holds when it passed.
        what: One sentence, with names and values.
        partitions: By partition key, a sentence each; only those that are not as they should be.
        numbers: What was counted.
        is_warning: Whether nothing is wrong yet when it does not hold.
    """

    name: str
    passed: bool
    what: str
    partitions: Mapping[str, str] = field(default_factory=dict[str, str])
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class LiveStatus:
    """A table's live side, without reading its rows.

    Args:
        newest: The newest batch's receipt and when it was committed; None before the first.
        late: Late rows by partition key.
        stale: Of these, the ones that no publish has folded yet.
        quarantined: Rows by reason.
    """

    fence: Fence
    newest: tuple[datetime, LiveReceipt] | None
    late: dict[str, int]
    stale: dict[str, int]
    quarantined: dict[str, int]


def live_is_writing(status: LiveStatus, live: LiveStream, now: datetime) -> LiveCheck:
    """Say whether the newest batch is recent.

    Delta lets the time of a commit never lie before an earlier one's: after a clock that was ahead it says what was
    not. The writer's own word, in its receipt, counts where that is older: until when events could lie, less how far
    ahead the spec lets them be. A writer whose spec let them be less far ahead is not taken for an older one: it wrote
    after the newest of its files had landed.
    """
    if status.newest is None:
        return LiveCheck("live_is_writing", False, "No batch was ever written.")
    committed, receipt = status.newest
    if receipt.until_utc:
        said = receipt.until - timedelta(seconds=live.max_future_seconds)
        landed = datetime.fromisoformat(receipt.landed_utc[1]) if receipt.landed_utc else said
        committed = min(committed, max(said, landed))
    silent = (now - committed).total_seconds()
    what = f"Batch {receipt.batch} was written {silent:,.0f} s ago ({committed:%Y-%m-%d %H:%M:%S} UTC)."
    if silent < -CLOCKS_MAY_DIFFER_SECONDS:
        what = f"Batch {receipt.batch} was written at {committed:%Y-%m-%d %H:%M:%S} UTC by the clock of its writer, "
        what += f"{-silent:,.0f} s from now by this one: one of them is wrong, and an outage would not be seen."
    passed = -CLOCKS_MAY_DIFFER_SECONDS <= silent <= live.silent_after_seconds
    if silent > live.silent_after_seconds:
        what += f" More than {live.silent_after_seconds:,} s is an outage: of the writer, or of what delivers events."
    return LiveCheck("live_is_writing", passed, what, numbers={"silent_seconds": round(silent, 1)})


def landed_files_are_as_read(
    changed: Sequence[ChangedFile] | None,
    files: int,
    key: str,
    *,
    unseen: Sequence[str] = (),
    twice: Sequence[tuple[str, str]] = (),
) -> LiveCheck:
    """Say whether files that landed are as they were when the stream listed them, or somebody has dealt with them.

    Args:
        changed: Those that are not; None where it is not known what the stream has read.
        files: How many the stream has listed.
        key: Of the table.
        unseen: Files that the stream does not list, for their names, or because they are links that lead nowhere.
        twice: What has landed once and is read twice, each with the path that it has besides.
    """
    check = _changed_since_listed(changed, files, key)
    if twice:
        path, other = twice[0]
        what = (
            f"{len(twice):,} files or folders lie there twice, by a link, or as a copy: `{path}` is `{other}` too. "
            "Their events are in the table twice, or will be. Remove the link or the copy; seal the days that "
            f"`no_gap_at_fence` then names (`backfill-assets fence {key} --at ...`), and launch them from their "
            f"source.{'' if check.passed else f' {check.what}'}"
        )
        check = LiveCheck(check.name, False, what, numbers={**check.numbers, "files_twice": len(twice)})
    if not unseen:
        return check
    what = (
        f"Spark does not see {len(unseen):,} files (first `{min(unseen)}`): their names are not UTF-8, or they are "
        f"links that lead nowhere. Once that is put right they are read. {check.what}"
    )
    return LiveCheck(check.name, False, what, numbers={**check.numbers, "files_unseen": len(unseen)})


def _changed_since_listed(changed: Sequence[ChangedFile] | None, files: int, key: str) -> LiveCheck:
    name, numbers = "landed_files_are_as_read", {"files_read": files}
    if changed is None:
        what = "Nobody knows which files the stream has read when: it has read none yet, or its checkpoint is not in "
        what += "its usual place below the root."
        return LiveCheck(name, False, what, is_warning=True)
    open_ = [file.path for file in changed if not file.acknowledged]
    dealt_with = [file for file in changed if file.acknowledged]
    numbers |= {"files_changed": len(open_)} if open_ else {}
    numbers |= {"files_acknowledged": len(dealt_with)} if dealt_with else {}
    others = f" {_dealt_with(dealt_with)}" if dealt_with else ""
    if not open_:
        but = "other " if dealt_with else ""
        what = f"None of {files - len(dealt_with):,} {but}files has changed since it was listed.{others}"
        return LiveCheck(name, True, what, numbers=numbers)
    named = ", ".join(f"`{path}`" for path in open_[:3])
    what = (
        f"{len(open_):,} of {files:,} files have changed since the stream listed them ({named}"
        f"{', ...' if len(open_) > 3 else ''}). Lines that came into them later may be in no table: look for them "
        "there, and land in a new file those that are missing, and no others; keep the file, and say that it was done: "
        f"`backfill-assets live {key} --acknowledge {open_[0]}`. From now on write files elsewhere and rename them "
        f"into the folder, or let their names begin with `.` until they are whole.{others}"
    )
    return LiveCheck(name, False, what, numbers=numbers)


def _dealt_with(files: Sequence[ChangedFile]) -> str:
    said = "; ".join(f"`{file.path}` {file.acknowledged}" for file in files[:3])
    more = "; ..." if len(files) > 3 else ""
    return f"{len(files):,} changed, and somebody has dealt with them ({said}{more})."


def late_rows_are_folded(status: LiveStatus, live: LiveStream) -> LiveCheck:
    """Say whether late rows wait: for a launch, or for somebody to look at them where they are only kept."""
    waiting = status.stale if live.late == "fold" else status.late
    late_rows, rows_waiting = sum(status.late.values()), sum(waiting.values())
    what = f"{late_rows:,} late rows came, and all are folded in."
    if waiting:
        keys = sorted(waiting)
        what = f"{rows_waiting:,} late rows of {len(keys):,} partitions ({keys[0]} to {keys[-1]}) " + (
            "wait for a launch that folds them in."
            if live.late == "fold"
            else "are kept beside the table (`late: keep`)."
        )
    return LiveCheck(
        "late_rows_are_folded",
        not waiting,
        what,
        partitions={key: f"{waiting[key]:,} late rows" for key in sorted(waiting)},
        numbers={"late_rows": late_rows, "stale_partitions": len(waiting), "rows_waiting": rows_waiting},
        is_warning=True,
    )


def nothing_is_quarantined(status: LiveStatus) -> LiveCheck:
    """Say how many rows are in quarantine, and why."""
    rows = sum(status.quarantined.values())
    what = "Nothing is in quarantine."
    if rows:
        reasons = "; ".join(f"{reason}: {count:,}" for reason, count in status.quarantined.items())
        what = f"{rows:,} rows are in quarantine. {reasons}."
    return LiveCheck("nothing_is_quarantined", not rows, what, numbers={"quarantined_rows": rows}, is_warning=True)
