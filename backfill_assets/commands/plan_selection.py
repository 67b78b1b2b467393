"""Which partitions a plan is about: a range, those that have certain keys, or those that were modified since."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from backfill_assets.commands.project import NOTHING_READ, ProjectTable
from backfill_assets.commands.terminal import partitions_named
from backfill_assets.core.spec.history import history_of
from backfill_assets.errors import ConfigurationError, WindowError

if TYPE_CHECKING:
    from backfill_assets.core.calendar.partitions import Partition
    from backfill_assets.sources.database.source import DatabaseSource

SAMPLE = 20
"""Of so many partitions that a modified time calls unchanged it is looked up whether they are."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Partitions, and in a sentence each why they are these."""

    partitions: Sequence[Partition]
    remarks: tuple[str, ...] = ()


def select(
    chosen: ProjectTable,
    partition_range: str | None,
    *,
    keys: str | None = None,
    modified_since: str | None = None,
    log: Callable[[str], None],
) -> Selection:
    """Return the partitions of a range, or of the whole table, that a plan is about.

    Args:
        keys: First and last key, `A...B`: of a database, the partitions that have one of them there or in the table.
        modified_since: An instant: the partitions with rows that were written since, by `source.modified_at`.

    Raises:
        WindowError: The range, the keys or the instant is none, or nothing says which partitions.
        ConfigurationError: The source does not know when its rows were modified, or knows it wrongly.
    """
    spec = chosen.spec
    if keys and modified_since:
        raise WindowError(
            "`--keys` and `--modified-since` do not go together.", state=NOTHING_READ, remedy="Make one plan for each."
        )
    if partition_range:
        wanted = partitions_named(spec, partition_range)
    elif keys or modified_since:
        wanted = history_of(spec).until(datetime.now(UTC))
    else:
        raise WindowError(
            "Nothing says which partitions the plan is about.",
            state=NOTHING_READ,
            remedy=f"Add `--partition-range {spec.start}...{spec.start}`, with its first and last partition.",
        )
    if keys:
        return _with_keys(chosen, wanted, keys, log)
    return _modified(chosen, wanted, modified_since, log) if modified_since else Selection(wanted)


def _with_keys(chosen: ProjectTable, wanted: Sequence[Partition], keys: str, log: Callable[[str], None]) -> Selection:
    from backfill_assets.core.history.guards import key_range
    from backfill_assets.lake.guarded_rows import rows_with

    found = key_range(chosen.spec, keys)
    database = _database(chosen, log)
    if database is None:
        return Selection(wanted, (f"Every partition of the range is read: its source cannot look up {found}.",))
    at_source = database.with_keys(wanted, found.first, found.last)
    in_table = rows_with(chosen.spec, chosen.lakehouse.table(chosen.spec, log).read(), found)
    named = [partition for partition in wanted if partition.key in at_source or partition.key in in_table]
    if not named:
        raise WindowError(
            f"No partition has {found}, neither in the database nor in the table.",
            state=NOTHING_READ,
            remedy="Look the keys up in the database.",
        )
    return Selection(named, (f"{sum(at_source.values()):,} rows with {found} are in {len(at_source):,} partitions.",))


def _modified(chosen: ProjectTable, wanted: Sequence[Partition], text: str, log: Callable[[str], None]) -> Selection:
    spec, database = chosen.spec, _database(chosen, log)
    column: str | None = getattr(spec.source, "modified_at", None)
    if database is None or column is None or spec.changes is not None:
        why = "its change feed says it" if spec.changes else "its spec has no `source.modified_at`"
        raise ConfigurationError(
            f"When rows of `{spec.key}` were modified is not asked of its source: {why}.",
            state=NOTHING_READ,
            remedy="`--only missing` launches what has changed: it compares what each partition was made of.",
        )
    modified = database.modified_since(wanted, _instant(text, spec.key))
    named = [partition for partition in wanted if partition.key in modified]
    rest = [partition for partition in wanted if partition.key not in modified]
    looked_at = _refuse_wrong_times(chosen, database, rest, log)
    if not named:
        raise WindowError(
            f"No row of `{spec.key}` was modified since `{text}`, by `{column}`.",
            state=NOTHING_READ,
            remedy="There is nothing to launch; `backfill-assets gaps` says whether anything is missing.",
        )
    return Selection(
        named,
        (
            f"{sum(modified.values()):,} rows in {len(modified):,} partitions were modified since `{text}`, as "
            f"`{column}` says. Assumed: each change sets it, nothing was deleted, and no row went "
            f"from one partition to another: it would be in both. Held against {looked_at:,} of the other partitions.",
        ),
    )


def _refuse_wrong_times(
    chosen: ProjectTable, database: DatabaseSource, unchanged: Sequence[Partition], log: Callable[[str], None]
) -> int:
    """Look at a sample of partitions that should not have changed since they were published; return how many.

    Raises:
        ConfigurationError: One has.
    """
    published = chosen.lakehouse.table(chosen.spec, log).published()
    known = [partition for partition in unchanged if partition.key in published]
    sample = known[:: max(1, -(-len(known) // SAMPLE))]
    surveys = database.survey(sample) if sample else {}
    wrong = [p.key for p in sample if surveys[p.key].fingerprint != published[p.key].partition.fingerprint]
    if wrong:
        raise ConfigurationError(
            f"`source.modified_at` of `{chosen.spec.key}` does not tell all: {len(wrong):,} of {len(sample):,} "
            f"partitions that it calls unchanged have changed since they were published ({', '.join(wrong[:3])}).",
            state=NOTHING_READ,
            remedy="Rows were deleted or changed before that instant, or without setting it. `--only missing` finds "
            "all of them.",
        )
    return len(sample)


def _database(chosen: ProjectTable, log: Callable[[str], None]) -> DatabaseSource | None:
    """Return the database that a table's history lies in; None if it lies elsewhere."""
    from backfill_assets.live.changes.source import ChangedSource
    from backfill_assets.sources.database.source import DatabaseSource

    transform = chosen.table.transform() if chosen.table.transform else None
    source: Any = chosen.lakehouse.source(chosen.spec, chosen.specs, transform, log)
    source = source.database if isinstance(source, ChangedSource) else source
    return source if isinstance(source, DatabaseSource) else None


def _instant(text: str, key: str) -> datetime:
    from backfill_assets.core.calendar.windows import as_utc
    from backfill_assets.errors import NaiveInstantError

    try:
        return as_utc(datetime.fromisoformat(text))
    except (ValueError, NaiveInstantError) as error:
        raise WindowError(
            f"`{text}` is no instant with a zone, for a plan of `{key}`.",
            state=NOTHING_READ,
            remedy="Write it with its offset: `2024-05-01T00:00:00Z`.",
        ) from error
