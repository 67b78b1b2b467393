"""What a version has that its copies lack: it is not given up with the version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from backfill_assets.commands.project import ProjectTable
from backfill_assets.commands.version.switching import UNCHANGED
from backfill_assets.errors import BackfillAssetsError, SourceMissingError, VersionError

if TYPE_CHECKING:
    from backfill_assets.core.spec.table import TableSpec
    from backfill_assets.core.state.current_versions import CurrentVersions
    from backfill_assets.lake.table import LakeTable
    from backfill_assets.runs.table import Table


def refuse_late_rows(chosen: ProjectTable, now: CurrentVersions, log: Callable[[str], None]) -> None:
    """Raise if a version that was copied has late rows which it does not hold yet: whoever copied it lacks them too."""
    key = chosen.spec.key
    if not _copies(chosen, now):
        return
    lake = chosen.lakehouse.table(chosen.spec, log)
    if left := unfolded(lake):
        first, last = min(left), max(left)
        raise VersionError(
            f"{sum(left.values()):,} late rows of `{key}` are in no partition of it yet (`{first}` to `{last}`); "
            "whoever copied it has not got them.",
            state=UNCHANGED,
            remedy=f"Launch `{first}...{last}` of it, and copy again, before `retired: true` is said; then retire it. "
            f"If nobody is to have them, remove `{lake.late_table.path}` first.",
            partitions=sorted(left),
        )


def unfolded(lake: LakeTable) -> dict[str, int]:
    """Return how many late rows are in no partition of a version yet, by partition key."""
    from backfill_assets.live.fence_queries import waiting

    fence = lake.fence()
    late = lake.late(lake.spec.grid.until(fence.at_utc)).rows if fence else {}
    return waiting(lake.spec, late, lake.published())


def refuse_a_copy_that_goes_on(chosen: ProjectTable, now: CurrentVersions) -> None:
    """Raise if a version with copies is a copy itself, of one that is not retired: they have that from nowhere else."""
    from backfill_assets.core.spec.versions import name_of

    origins = [one.table for one in chosen.spec.source.inputs] if chosen.spec.source.is_of_version else []
    origins = [key for key in origins if key in chosen.specs and not now.is_retired(key)]
    is_current = bool(origins) and now.key_of(name_of(origins[0])) == origins[0]
    if origins and (copies := _copies(chosen, now)):
        raise VersionError(
            f"`{chosen.spec.key}` is a copy of `{origins[0]}`, which goes on, and whatever comes into that would never "
            f"come into `{copies[0].key}`.",
            state=UNCHANGED,
            remedy=f"Readers have `{origins[0]}`: retire `{copies[0].key}` first, or let its `source` name that."
            if is_current
            else f"Retire `{origins[0]}` first, which asks whether `{chosen.spec.key}` has all of it.",
            tables=[copy.key for copy in copies],
        )


def still_to_begin(chosen: ProjectTable, now: CurrentVersions, log: Callable[[str], None]) -> list[str]:
    """Return the partitions of time to come of which changes have landed, and that no copy of a version will have."""
    from backfill_assets.live.changes.followed import readable

    source = chosen.changed_source(log) if _copies(chosen, now) else None
    if source is None or (reach := readable(source, log)) is None:
        return []
    known = filter(chosen.spec.grid.is_key, source.reader.newest.until(reach))
    return sorted(key for key in known if chosen.spec.grid.partition(key).window.start_utc >= source.now())


def _copies(chosen: ProjectTable, now: CurrentVersions) -> list[TableSpec]:
    """Return the versions that were copied from one, whether or not they say that they read it no more."""
    copies = (one for one in chosen.specs.values() if one.source.is_of_version and not now.is_retired(one.key))
    return [one for one in copies if any(source.table == chosen.spec.key for source in one.source.inputs)]


def given_up(chosen: ProjectTable, now: CurrentVersions, log: Callable[[str], None], *, is_allowed: bool) -> str:
    """Return in words what a version lacks, and its copies would have from nowhere else; nothing if it lacks nothing.

    Raises:
        VersionError: It lacks some, or nobody can say, and it may not be retired so.
    """
    copies, lake = _copies(chosen, now), chosen.lakehouse.table(chosen.spec, log)
    if not copies or not lake.exists():
        return ""
    try:
        lacking, what = _lacks_changes(chosen, log) if chosen.spec.changes else _never_launched(chosen, log)
    except BackfillAssetsError as error:
        if not is_allowed:
            remedy = f"{error.remedy} If that cannot be, `--except` gives up what nobody can see."
            raise VersionError(error.what, state=UNCHANGED, remedy=remedy) from error
        return f"what nobody can see: {error.what}"
    if not lacking:
        return ""
    named = f"`{lacking[0]}` to `{lacking[-1]}`"
    if not is_allowed:
        first = f"`backfill-assets live {chosen.spec.key} --once`, a launch of what that leaves out, then "
        raise VersionError(
            f"{len(lacking):,} partitions of `{chosen.spec.key}`, {named}, lack {what}, and `{copies[0].key}` has them "
            "from nowhere else.",
            state=UNCHANGED,
            remedy=f"{first if chosen.spec.changes else 'Launch them, then '}`backfill-assets version deploy "
            f"{copies[0].key}`, and retire it then; if changes come all the time, with the capture stopped meanwhile. "
            "If nobody can bring them any more, or nobody is to, `--except` gives them up.",
            partitions=lacking,
        )
    return f"{len(lacking):,} partitions, {named}, lack {what}"


def _lacks_changes(chosen: ProjectTable, log: Callable[[str], None]) -> tuple[list[str], str]:
    """Return the partitions that lack what the feed of a version has brought, or is to read; and what that is."""
    from backfill_assets.live.changes.lacking import had_by

    source = chosen.changed_source(log)
    if source is None or (reach := source.reader.reach()) is None:
        return [], ""
    is_loaded = source.feed.backfill == "automatic"
    past = {p.key for p in source.spec.grid.until(source.now())} if is_loaded else source.lake.history.undone()
    had = had_by(source, source.lake.published(), reach, past=past)
    behind, missed = had.behind(source, reach, past=had.past).keys(), had.missed(past=had.past)
    unread = had.never_launched | (had.past if is_loaded else set())  # may have had rows before the feed began
    or_missed = ", or were missed between two feeds" if missed else ""
    or_unread = ", or rows that were never read from its database" if unread - behind - missed else ""
    return sorted(behind | missed | unread), f"changes that have landed{or_missed}{or_unread}"


def _never_launched(chosen: ProjectTable, log: Callable[[str], None]) -> tuple[list[str], str]:
    """Return the partitions that the source of a version has, and that were never published; and what they lack.

    Of a source that is gone nobody would launch any.
    """
    import dagster as dg

    from backfill_assets.core.spec.files import FilesSpec
    from backfill_assets.core.state.partition_status import State
    from backfill_assets.runs.table_status import look_at_table

    try:
        with dg.DagsterInstance.get() as instance:
            seen = look_at_table(instance, chosen.table, chosen.specs, chosen.lakehouse, log)
    except SourceMissingError as error:
        log(f"The source of `{chosen.spec.key}` is gone: {error.what}")
        return [], ""
    missing = [status.partition.key for status in seen.complete if status.state is State.MISSING]
    if isinstance(chosen.spec.source, FilesSpec):
        missing = [key for key in missing if seen.surveys[key].files]
    return missing, "rows of its source that were never published"


def refuse_what_was_not_copied(chosen: ProjectTable, now: CurrentVersions, log: Callable[[str], None]) -> None:
    """Raise if a copy is not what a version has: by a launch or an undo there since, or by a hand on the copy itself.

    Whatever lacks is nowhere else: from a version that is retired nothing is copied again.
    """
    import dagster as dg

    from backfill_assets.core.state.partition_status import State
    from backfill_assets.runs.table_status import look_at_table

    if not chosen.lakehouse.table(chosen.spec, log).exists():
        return
    is_whole = {State.PUBLISHED, State.STALE_CODE, State.STALE_LATE_ROWS}  # late rows of the copy are its own
    with dg.DagsterInstance.get() as instance:
        for copy in _copies(chosen, now):
            reads = copy.version_of and copy.version_of.model_copy(update={"retired": False})
            table = replace(chosen.project.table(copy.key).table, spec=copy.model_copy(update={"version_of": reads}))
            seen = look_at_table(instance, table, chosen.specs, chosen.lakehouse, log)
            _refuse_what_waits(chosen, table, log)  # nothing waited before either: no writer of its stream runs
            lacking = [status.partition.key for status in seen.complete if not is_whole.issuperset(status.states)]
            if lacking:
                raise VersionError(
                    f"`{copy.key}` is copied from `{chosen.spec.key}`, and {len(lacking):,} of its partitions, "
                    f"`{lacking[0]}` to `{lacking[-1]}`, are not as that has them now.",
                    state=UNCHANGED,
                    remedy=f"Take `retired: true` out of `version_of` of `{copy.key}`, `backfill-assets version deploy "
                    f"{copy.key}`, say it again, and retire `{chosen.spec.key}` then.",
                    partitions=lacking,
                )


def _refuse_what_waits(chosen: ProjectTable, copy: Table, log: Callable[[str], None]) -> None:
    """Raise if something has landed for a version's stream that is in no table yet, nor comes into its copy's.

    A copy with a stream of its own needs what landed until that begins; any other one needs all.
    """
    from backfill_assets.sources.version import VersionSource

    source = chosen.lakehouse.source(copy.spec, chosen.specs, None, log)
    if chosen.spec.live is None or not isinstance(source, VersionSource):
        return
    fence, now = chosen.lakehouse.table(copy.spec, log).fence(), datetime.now(UTC)
    if source.landed_until() < (fence.at_utc if fence else now):
        until = f"until {fence.at_utc.isoformat()}, where the stream of `{copy.spec.key}` begins" if fence else "by now"
        raise VersionError(
            f"Not all that landed for the stream of `{chosen.spec.key}` {until} is written, and `{copy.spec.key}` has "
            "it from nowhere else.",
            state=UNCHANGED,
            remedy=f"`backfill-assets live {chosen.spec.key} --once`, then `backfill-assets version deploy "
            f"{copy.spec.key}`, and retire it then.",
        )
