"""What a plan's reason suggests: which range, which tables below, and of a database which kind of backfill. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from backfill_assets.core.history.forecast import Action
from backfill_assets.core.history.plan_document import PlanDocument
from backfill_assets.core.history.reasons import SCOPES, ReasonKind, kind_of
from backfill_assets.core.spec.databases import DatabaseSpec
from backfill_assets.core.spec.table import TableSpec

_MISSING_IS_ENOUGH = (ReasonKind.HISTORY_MISSING, ReasonKind.SOURCE_CHANGED, ReasonKind.OUTAGE)
_WHAT_IS_MADE_OF_IT = (ReasonKind.LOGIC_CHANGED, ReasonKind.BAD_UPSTREAM)

_RANGE = "*incremental*, a range again: `dg launch --assets 'key:\"{key}\"' --partition-range A...B`"
_OF_A_DATABASE: Mapping[ReasonKind, str] = {
    ReasonKind.NEW_DATA: f"`backfill-assets estimate {{key}}`, then {_RANGE}",
    ReasonKind.HISTORY_MISSING: "what is missing: `backfill-assets gaps {key} -o plan.json`",
    ReasonKind.SOURCE_CHANGED: "what has changed: `backfill-assets gaps {key} -o plan.json`",
    ReasonKind.OUTAGE: _RANGE,
    ReasonKind.LOGIC_CHANGED: "*downstream only*: launch what is made of it; nothing is read in the database",
    ReasonKind.BAD_UPSTREAM: "*by key range*: `backfill-assets plan {key} --keys A...B`; or " + _RANGE,
    ReasonKind.SCHEMA_CHANGED: "*reset*: `backfill-assets reset {key}`, which reads everything",
}
"""Which kind of backfill is meant for what, as docs/databases.md says it."""

_BY_MODIFIED_TIME = "*by modified time*: `backfill-assets plan {key} --modified-since T`"


def advice_on(
    plan: PlanDocument,
    spec: TableSpec,
    *,
    below: Sequence[str],
    are_named: bool,
    published: Collection[str] = (),
) -> Iterator[str]:
    """Yield what the plan's reason suggests, a sentence each, and where the plan does something else.

    | reason            | the plan                              | is told                       |
    |-------------------|---------------------------------------|-------------------------------|
    | none, or no kind  | any                                   | the kinds                     |
    | `new data`        | begins behind the table's start       | its scope, and that           |
    | `source changed`  | has partitions that are up to date    | its scope, and `only missing` |
    | `logic changed`   | ends before a published partition     | its scope, and how many       |
    | `logic changed`   | does not name what is made of it      | its scope, and these tables   |
    | `schema changed`  | any                                   | its scope                     |

    Args:
        below: Tables that are made of it.
        are_named: Whether the plan names the partitions of those.
        published: Keys of the published partitions of the table.
    """
    reason = str(plan.config.get("reason", ""))
    kind = kind_of(reason)
    if kind is None:
        given = f"`{reason}` begins with no kind of reason" if reason else "No reason is given"
        kinds = ", ".join(f"`{known}`" for known in ReasonKind)
        yield f"{given}: a kind suggests what to launch, and tells later why it was. There are {kinds}."
        if isinstance(spec.source, DatabaseSpec):
            yield from (f"`{known}`, of a database: {_kind_of_backfill(known, spec)}." for known in ReasonKind)
        return
    yield f"`{kind}` suggests to launch {SCOPES[kind]}."
    if isinstance(spec.source, DatabaseSpec):
        yield f"Of a database: {_kind_of_backfill(kind, spec)}."
    yield from _differences(kind, plan, spec, below if not are_named else (), published)


def _differences(
    kind: ReasonKind, plan: PlanDocument, spec: TableSpec, below: Sequence[str], published: Collection[str]
) -> Iterator[str]:
    """Yield in what a plan differs from what a kind of reason suggests."""
    first, last = plan.partitions[0].partition, plan.partitions[-1].partition
    if kind is ReasonKind.NEW_DATA and first.window.start_utc > spec.grid.start_utc:
        yield f"This plan begins at `{first.key}`, and the table at `{spec.start}`."
    same = sum(one.action is Action.IDENTICAL for one in plan.partitions)
    if kind in _MISSING_IS_ENOUGH and plan.config.get("only") != "missing" and same:
        yield f"{same:,} partitions of this plan are up to date: `--only missing` leaves them out."
    behind = sum(spec.grid.is_key(key) and spec.grid.partition(key) > last for key in published)
    if kind is ReasonKind.LOGIC_CHANGED and behind:
        yield f"{behind:,} partitions behind `{last.key}` are published, and stay as other logic has made them."
    if kind in _WHAT_IS_MADE_OF_IT and below:
        named = ", ".join(f"`{key}`" for key in below)
        yield f"Of it are made: {named}. `--downstream` names their partitions; they are launched by themselves."


def _kind_of_backfill(kind: ReasonKind, spec: TableSpec) -> str:
    has_times = isinstance(spec.source, DatabaseSpec) and spec.source.modified_at
    is_told = kind is ReasonKind.SOURCE_CHANGED and has_times
    return (_BY_MODIFIED_TIME if is_told else _OF_A_DATABASE[kind]).format(key=spec.key)
