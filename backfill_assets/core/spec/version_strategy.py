"""How a new version of a table is brought up and kept in step, by what the table is. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from backfill_assets.core.spec.table import TableSpec

_OWN_FEED = (
    "it folds what the capture `{capture}` lands by a writer of its own; {how}, and each partition is kept up to date "
    "from its launch on"
)
_HOW = {
    "automatic": "its history is read from the database by `live`",
    "manual": "its history is read from the database by `copy`",
    "excluded": "of what came before the capture's oldest file it has nothing",
}


@dataclass(frozen=True, slots=True)
class Strategy:
    """How one new version is brought up.

    Args:
        name: In a word or two.
        why: One sentence.
    """

    name: str
    why: str


def strategy_of(new: TableSpec, before: TableSpec) -> Strategy:
    """Choose how a new version is brought up and kept in step.

    | new version | the one before | strategy |
    |---|---|---|
    | has a stream | has one | own stream |
    | has none, copies the one before | - | copy and follow |
    | has a change feed | - | own feed |
    | has none | has a stream, or a change feed | frozen |
    | made of other tables | - | rebuild from inputs |
    | has none | has none | rebuild |
    """
    if new.live:
        return Strategy(
            "own stream",
            f"its own stream takes what happens from {new.live.starts} on; history before that is launched when it is "
            "complete, so each event has one place",
        )
    if new.source.is_of_version:
        return Strategy(
            "copy and follow",
            f"it is copied from `{before.key}` at a version of its log; what that changes later makes the partitions "
            "stale that hold it, and they are copied again: no column has to grow",
        )
    if new.changes:
        return Strategy("own feed", _OWN_FEED.format(capture=new.changes.capture, how=_HOW[new.changes.backfill]))
    if before.live or before.changes:
        return Strategy(
            "frozen",
            f"`{before.key}` is written by a stream, and this has none: it will lag behind as soon as something lands",
        )
    if new.inputs:
        return Strategy("rebuild from inputs", "it is launched from the tables that it is made of, at pinned versions")
    return Strategy(
        "rebuild",
        "it is launched from the source; a source that is replaced whole makes it stale, and it is read again",
    )
