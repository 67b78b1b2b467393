"""Columns that change: what the source has, what the spec says and what the table has, held against each other. Pure.

The spec is the contract. A change of it is proposed here and made by a person; nothing is ever dropped or renamed by
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from backfill_assets.core.schema.types import common_type, decimal_size, reads_as, reads_by_value
from backfill_assets.core.spec.columns import PRIMITIVE_TYPES, Column, is_column_name
from backfill_assets.core.spec.table import TableSpec


class Action(StrEnum):
    """What follows from a difference."""

    NONE = "none"
    ADD = "add"
    """A line is added to the spec."""
    WIDEN = "widen"
    """A type in the spec is changed to a wider one: no table holds rows of the narrow one yet."""
    APPLY = "apply"
    """The spec is right, and the table follows it with `--apply`."""
    DECIDE = "decide"
    """A person has to say what it means."""
    REFUSED = "refused"
    """It cannot be done in place."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The columns that the source had at one point.

    Args:
        label: Local day of the files; empty where the source has only one state.
        columns: Type by name, in Spark's words.
    """

    label: str
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column that the table has."""

    type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One column in all three places, and what it means.

    Args:
        spec: Its type there; empty where it lacks it. Likewise `source` and `table`.
        optional: Whether older files lack it, so that a new line in the spec says `optional: true`.
    """

    column: str
    spec: str
    source: str
    table: str
    what: str
    action: Action
    new_type: str = ""
    optional: bool = False


# -- the three places --------------------------------------------------------------------------------------------------


def compare_columns(
    spec: TableSpec, source: Sequence[Observed], table: Mapping[str, TableColumn] | None
) -> list[ColumnChange]:
    """Say of each column what the source has, what the spec says, what the table has, and what follows.

    Args:
        source: Oldest first; empty if nothing could be looked at.
        table: Its columns without the partition column; None if there is no table yet.
    """
    ours = {spec.field_of(name) for name in spec.columns}
    strange = list(dict.fromkeys(name for seen in source for name in seen.columns if name not in ours))
    found = [_named(spec, name, source, table, strange) for name in spec.columns]
    found += [_unnamed(spec, name, source, table or {}) for name in strange]
    for name, kept in (table or {}).items():
        if name not in spec.columns and name not in strange:
            found.append(ColumnChange(name, "", "", kept.type, _NOT_DROPPED, action=Action.REFUSED))
    return found


def compare_events(
    spec: TableSpec, events: Mapping[str, str], table: Mapping[str, TableColumn] | None, known: Sequence[ColumnChange]
) -> list[ColumnChange]:
    """Say which fields the newest live events have that no column is read from, or that their column cannot take.

    Args:
        events: Type of each field, as far as it is there.
        known: What the comparison with the history has said.
    """
    found: list[ColumnChange] = []
    for name, column in spec.columns.items():
        kind = events.get(spec.field_of(name))
        what = f"live events have `{kind}` in it, and such events may be quarantined"
        if kind is None and events and name in spec.required_columns:
            kind, what = "missing", "the newest live events do not have it, and such events are quarantined"
        elif kind is None or reads_as(kind, column.type):
            continue
        found.append(ColumnChange(name, column.type, kind, "", what, action=Action.DECIDE))
    read = {spec.field_of(name) for name in spec.columns}
    said = {change.column: change for change in known if change.action is not Action.NONE}
    for name, kind in events.items():
        if name in said and said[name].action is Action.ADD and not reads_as(kind, said[name].new_type):
            what = f"live events have `{kind}` in it, the history `{said[name].new_type}`"
            found.append(ColumnChange(name, "", kind, "", what, action=Action.DECIDE))
        if name in said or name in read:
            continue
        change = _unnamed(spec, name, [Observed("", events)], table or {})
        where = "live events have it, and the history does not" if change.action is Action.ADD else "of live events"
        found.append(replace(change, what=f"{change.what}: {where}", optional=True))
    return found


_NOT_DROPPED = (
    "in the table, not in the spec: a column is never dropped; put it back into the spec (`optional: true` where "
    "the source lacks it), "
    "or make a new version of the table"
)
_NEW_VERSION = "it cannot be done in place, make a new version of the table"


def _named(
    spec: TableSpec,
    name: str,
    source: Sequence[Observed],
    table: Mapping[str, TableColumn] | None,
    strange: Sequence[str],
) -> ColumnChange:
    """Judge a column of the spec."""
    column = spec.columns[name]
    field, kept = spec.field_of(name), (table or {}).get(name)
    kinds = [(seen.label, seen.columns.get(field)) for seen in source]
    newest = kinds[-1][1] if kinds else None
    shown = newest or ("missing" if kinds else "")

    def change(what: str, action: Action, new_type: str = "") -> ColumnChange:
        return ColumnChange(name, column.type, shown, kept.type if kept else "", what, action=action, new_type=new_type)

    if kept and kept.type != column.type:
        if reads_as(kept.type, column.type):
            return change(f"the spec widens {kept.type} -> {column.type}: {_NEW_VERSION}", Action.REFUSED)
        return change(f"kind changes {kept.type} -> {column.type}: refused, {_NEW_VERSION}", Action.REFUSED)
    misfits = [(label, kind) for label, kind in kinds if kind is not None and not reads_as(kind, column.type)]
    if misfits:
        label, kind = misfits[0]
        wide: str | None = column.type
        for _, other in misfits:
            wide = wide and common_type(wide, other)
        is_safe = wide is not None and all(reads_as(other, wide) for other in (column.type, *(k for _, k in misfits)))
        if (table is not None or not is_safe) and all(reads_by_value(other, column.type) for _, other in misfits):
            what = f"{kind}{_since(label)}: a number that is no {column.type} fails its partition, others are read"
            return change(what, Action.NONE)
        if wide is None:
            return change(f"kind changes {column.type} -> {kind}{_since(label)}: refused", Action.REFUSED)
        to = "to decimal " if wide.startswith("decimal") and not column.type.startswith("decimal") else ""
        what = f"widens {to}{column.type} -> {wide} (safe){_since(label)}"
        if table is not None:
            return change(f"{what}; the table has {column.type}: {_NEW_VERSION}", Action.REFUSED)
        return change(what, Action.WIDEN, wide)
    if table is not None and kept is None:
        if name in spec.required_columns:
            return change("not in the table, and NOT NULL, which old rows cannot be: make it nullable", Action.REFUSED)
        return change("new nullable column: `--apply` adds it to the table", Action.APPLY)
    if kept and not kept.nullable and name not in spec.required_columns:
        return change("may be NULL from now on: `--apply` tells the table", Action.APPLY)
    if kinds and newest is None:
        candidates = [other for other in strange if _appears(other, source) == _gone_since(kinds)]
        return _gone(change, column, kinds, candidates, source, way=spec.way_to_lack(name))
    first = next((label for label, kind in kinds if kind is not None), "")
    if kinds and kinds[0][1] is None and not column.optional:
        lack = "lack it, and NULL is refused" if name in spec.required_columns else "need `optional: true`"
        return change(f"in the source since {first}; files before it {lack}", Action.DECIDE)
    return change("", Action.NONE)


def _gone(
    change: Callable[[str, Action], ColumnChange],
    column: Column,
    kinds: Sequence[tuple[str, str | None]],
    candidates: Sequence[str],
    source: Sequence[Observed],
    *,
    way: str,
) -> ColumnChange:
    since = _gone_since(kinds)
    what = f"missing in the source{_since(since)}" if since else "missing in the source"
    if column.optional:
        return change(f"{what}: read as NULL (`optional: true`)", Action.NONE)
    alike = [other for other in candidates if since and reads_as(source[-1].columns.get(other, ""), column.type)]
    if alike:
        return change(f"{what}; looks renamed to `{alike[0]}` (never done by itself)", Action.DECIDE)
    return change(f"{what}{way}", Action.DECIDE)


def _unnamed(spec: TableSpec, name: str, source: Sequence[Observed], table: Mapping[str, TableColumn]) -> ColumnChange:
    """Judge a column of the source that the spec does not name."""
    newest = source[-1].columns.get(name)
    kept = table.get(name)
    since = _appears(name, source)

    def change(what: str, action: Action, new_type: str = "", optional: bool = False) -> ColumnChange:
        return ColumnChange(
            name,
            "",
            newest or "missing",
            kept.type if kept else "",
            what,
            action=action,
            new_type=new_type,
            optional=optional,
        )

    if newest is None and kept:
        return change(_NOT_DROPPED, Action.REFUSED)
    if newest is None:
        return change("was in the source for a while; left out", Action.NONE)
    kind: str | None = "timestamp" if newest == "timestamp_ntz" else newest
    if (
        not is_column_name(name)
        or not name.isprintable()
        or name.casefold() in {n.casefold() for n in [*spec.columns, spec.partition_column]}
    ):
        return change("left out: it cannot be the name of a column here", Action.NONE)
    if kind not in PRIMITIVE_TYPES and decimal_size(kind or "") is None:
        return change(f"left out: `{newest}` is not a plain value; {_how_to_read(spec, name)}", Action.NONE)
    for seen in source:
        if kind is not None and (other := seen.columns.get(name)) is not None:
            kind = common_type("timestamp" if other == "timestamp_ntz" else other, kind)
    if kept:
        kind = kept.type if kind and (reads_as(kind, kept.type) or reads_by_value(kind, kept.type)) else None
    if kind is None:
        return change(f"its kind changes in the source, or is not the table's: refused{_since(since)}", Action.REFUSED)
    gone = [n for n in spec.columns if spec.field_of(n) not in source[-1].columns and spec.columns[n].type == kind]
    renamed = [
        n for n in gone if since and _gone_since([(s.label, s.columns.get(spec.field_of(n))) for s in source]) == since
    ]
    what = f"new nullable column{_since(since)}" + (
        f"; looks renamed from `{renamed[0]}` (never done by itself)" if renamed else ""
    )
    return change(what, Action.ADD, kind, optional=bool(since))


def _how_to_read(spec: TableSpec, name: str) -> str:
    if spec.source.has_objects:
        return f"a column with `from: {name}.field` reads a field of it, one with type `string` its JSON text"
    return "columns are of primitive types"


def _appears(name: str, source: Sequence[Observed]) -> str:
    """Return since when the source has a column; empty if it always had it."""
    first = next(i for i, seen in enumerate(source) if name in seen.columns)
    return source[first].label if first else ""


def _gone_since(kinds: Sequence[tuple[str, str | None]]) -> str:
    """Return since when the source lacks a column; empty if it never had it, or has it."""
    have = [i for i, (_, kind) in enumerate(kinds) if kind is not None]
    return kinds[have[-1] + 1][0] if have and have[-1] + 1 < len(kinds) else ""


def _since(label: str) -> str:
    return f" since {label}" if label else ""
