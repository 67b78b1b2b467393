"""Fields that have no effect in some mode of a table: the table of them, and the one rule that refuses them. Pure.

A field that nothing reads misleads whoever has written it. So a spec that states one is refused when it loads, and
`docs/fields.md` says for each field in which modes that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from backfill_assets.core.calendar.layouts import FLAT, Layout
from backfill_assets.core.spec.checks import Rule
from backfill_assets.core.spec.column_formats import EpochFormat, PatternFormat
from backfill_assets.core.spec.databases import DatabaseSpec
from backfill_assets.core.spec.expectations import Function
from backfill_assets.core.spec.source_spec import SourceSpec
from backfill_assets.core.spec.tables import TablesSpec

Table = Any
"""A `TableSpec`, whose file asks this one."""

Place = tuple[str | int, ...]
"""Where a field stands in the YAML, from the table's own fields down."""


@dataclass(frozen=True, slots=True)
class NoEffect:
    """One field, and one mode of a table in which nothing reads it.

    Args:
        field: Its path, as `docs/fields.md` has it: `source(jdbc).complete_until`, `columns.NAME.format`.
        mode: The mode, and why nothing reads the field in it: ``with `changes`, whose feed brings every row``.
        is_so: Whether a table is in that mode. Takes the table, and the part of its spec that has the field.
        remedy: What to do.
    """

    field: str
    mode: str
    is_so: Callable[[Table, Any], bool]
    remedy: str = "leave it out"

    def __str__(self) -> str:
        return f"has no effect {self.mode}; {self.remedy}"


# -- modes -------------------------------------------------------------------------------------------------------------

_NEVER_READ = "with `changes.backfill: excluded`, which never reads rows from the database"
_NEVER_LAUNCHED = "with `changes.backfill: excluded`, which refuses every launch"
_NO_TIMESTAMP = "without a column of type `timestamp`"
_ONLY_INSTANTS = "where the `format` of every `timestamp` column says its zone"


def _is_excluded(table: Table, _: object) -> bool:
    return table.changes is not None and table.changes.backfill == "excluded"


def _is_followed(table: Table, _: object) -> bool:
    return table.changes is not None


def _is_retired(table: Table, _: object) -> bool:
    return table.source.is_of_version and table.version_of is not None and table.version_of.retired


def _has_no_timestamp(table: Table, _: object) -> bool:
    return all(column.type != "timestamp" for column in table.columns.values())


def _has_only_instants(table: Table) -> bool:
    formats = [column.written for column in table.columns.values() if column.type == "timestamp"]
    return bool(formats) and all(
        isinstance(one, EpochFormat) or (isinstance(one, PatternFormat) and one.has_zone) for one in formats
    )


def _is_copied_by_name(table: Table, _: object) -> bool:
    return isinstance(table.source, TablesSpec) or table.source.is_of_version


def _is_key_or_event_time(table: Table, column: object) -> bool:
    return any(table.columns[name] is column for name in (*table.key_columns, table.event_time))


def _is_required(table: Table, column: object) -> bool:
    return any(table.columns[name] is column for name in table.required_columns)


# -- the table ---------------------------------------------------------------------------------------------------------

NO_EFFECT: Sequence[NoEffect] = (
    # columns
    NoEffect(
        "columns.NAME.nullable",
        "as `true` on a key column or the event time, where NULL is always refused",
        lambda table, column: column.nullable and _is_key_or_event_time(table, column),
        "leave it out, or say `false`",
    ),
    NoEffect(
        "columns.NAME.optional",
        "with `source.kind: delta` or `version`, which need every column",
        _is_copied_by_name,
    ),
    NoEffect(
        "columns.NAME.optional",
        "on a column where NULL is refused: the rows of a file without it fail all the same",
        _is_required,
    ),
    NoEffect(
        "columns.NAME.from",
        "without a source of JSON files",
        lambda table, _: not table.source.has_objects,
    ),
    NoEffect(
        "columns.NAME.format",
        "without JSON or CSV files or a live stream: all other values have types",
        lambda table, _: table.source.texts is None and table.live is None,
    ),
    # rows
    NoEffect(
        "latest_wins_by",
        "without `key_columns`: no two rows have the same key",
        lambda table, _: not table.key_columns,
        "add `key_columns`, or leave it out",
    ),
    NoEffect(
        "latest_wins_by",
        "for a key column, which has the same value in all rows with one key",
        lambda table, _: any(name in table.key_columns for name in table.latest_wins_by),
        "name columns that say which row is newer",
    ),
    NoEffect("empty", _NEVER_LAUNCHED, _is_excluded),
    NoEffect("max_shrink", _NEVER_LAUNCHED, _is_excluded),
    NoEffect("reason", _NEVER_LAUNCHED, _is_excluded),
    NoEffect(
        "expect[].measure",
        "as `null_share` of a column where NULL is refused: it is always 0",
        lambda table, expected: expected.function is Function.NULL_SHARE and expected.column in table.required_columns,
        "take the expectation out",
    ),
    NoEffect(
        "expect[].of",
        "without `within`, which compares with it",
        lambda _, expected: expected.within is None,
        "add `within`, or leave it out",
    ),
    NoEffect(
        "checks.separate",
        "for `keys_are_unique` without `key_columns`: no two rows have the same key",
        lambda table, checks: Rule.KEYS_ARE_UNIQUE in checks.separate and not table.key_columns,
        "add `key_columns`, or take the rule out",
    ),
    # files
    NoEffect("source(files).csv", "without `format: csv`", lambda _, source: source.format != "csv"),
    NoEffect(
        "source(files).csv.escape",
        'with `quote: ""`: a field without quotes has none to escape',
        lambda _, form: not form.quote,
    ),
    NoEffect(
        "source(files).encoding",
        "with `format: parquet`, whose texts are UTF-8",
        lambda _, source: source.format == "parquet",
    ),
    NoEffect("source(files).nanoseconds", "without `format: parquet`", lambda _, source: source.format != "parquet"),
    NoEffect("source(files).nanoseconds", _NO_TIMESTAMP, _has_no_timestamp),
    NoEffect("source(files).timestamps_without_zone", _NO_TIMESTAMP, _has_no_timestamp),
    NoEffect(
        "source(files).timestamps_without_zone",
        _ONLY_INSTANTS,
        lambda table, source: source.format != "parquet" and _has_only_instants(table),
    ),
    NoEffect(
        "source(files).path_time_zone",
        "with `layout: flat`: names say no time",
        lambda _, source: source.layout == FLAT,
    ),
    NoEffect(
        "source(files).gaps",
        "with `layout: flat`: names say no time, so none is missing",
        lambda _, source: source.layout == FLAT,
    ),
    NoEffect(
        "source(files).complete_when",
        "beside `complete_until`, which says what is complete",
        lambda _, source: source.complete_until is not None,
        "give one of the two",
    ),
    NoEffect(
        "source(files).complete_when",
        "as `success_marker` where the names of files say the time: a `_SUCCESS` file beside them says none",
        lambda _, source: source.complete_when == "success_marker" and Layout(source.layout, "UTC").dates_files,
        "use `folder_exists`, or `complete_until` in its place",
    ),
    # databases
    NoEffect(
        "source(jdbc).complete_until",
        "with `changes`: the feed brings every row up to now",
        _is_followed,
        "leave it out, or leave out `changes`",
    ),
    NoEffect("source(jdbc).modified_at", "with `changes`: the feed says which rows have changed", _is_followed),
    NoEffect(
        "source(jdbc).replica_wait_seconds",
        "without `replica`",
        lambda _, source: source.replica is None,
        "name a `replica`, or leave it out",
    ),
    NoEffect("source(jdbc).timestamps_without_zone", _NO_TIMESTAMP, _has_no_timestamp),
    NoEffect("source(jdbc).without_event_time", _NEVER_READ, _is_excluded),
    NoEffect("source(jdbc).parallel_reads", _NEVER_READ, _is_excluded),
    NoEffect("source(jdbc).rows_per_read", _NEVER_READ, _is_excluded),
    NoEffect("source(jdbc).fetch_rows", _NEVER_READ, _is_excluded),
    NoEffect(
        "source(delta).code",
        "with `code_version`, which replaces the text of every module",
        lambda _, source: source.code_version is not None,
    ),
    # change feeds
    *(
        NoEffect(
            f"changes.{name}",
            "beside `source`, which says it already",
            lambda _table, _feed: True,  # without a `source` these fields have become one
        )
        for name in ("connection", "table", "timestamps_without_zone")
    ),
    NoEffect("changes.wait_seconds", _NEVER_LAUNCHED, _is_excluded),
    # streams and once-flows
    NoEffect(
        "live.timestamps_without_zone",
        _ONLY_INSTANTS,
        lambda table, _: _has_only_instants(table),
    ),
    NoEffect(
        "once.name",
        "without `years`: `ranges` bring their own names",
        lambda _, once: not once.years,
    ),
    # launches
    NoEffect("catch_up", _NEVER_LAUNCHED, _is_excluded),
    NoEffect("catch_up", "with `version_of.retired`: nothing is copied again", _is_retired),
    NoEffect("follow", "without other tables as its source", lambda table, _: not table.inputs),
    NoEffect("pace", _NEVER_LAUNCHED, _is_excluded),
    NoEffect(
        "pace.max_files_per_second",
        "with `source.kind: jdbc` or `delta`, which read no files of their own",
        lambda table, _: isinstance(table.source, DatabaseSpec | TablesSpec),
        "leave it out; `max_rows_per_second` bounds any source",
    ),
    NoEffect(
        "chunk.max_source_bytes",
        "with `changes`, or with `source.kind: delta`: neither knows the size of a partition",
        lambda table, _: table.changes is not None or isinstance(table.source, TablesSpec),
        "leave it out; `max_partitions` bounds any chunk",
    ),
)
"""Every field that some mode makes useless. Fields that are not here have an effect in every mode."""

_BY_FIELD: Mapping[str, Sequence[NoEffect]] = {
    field: [row for row in NO_EFFECT if row.field == field] for field in {row.field for row in NO_EFFECT}
}


# -- the rule ----------------------------------------------------------------------------------------------------------


def without_effect(table: Table) -> list[tuple[Place, NoEffect]]:
    """Return the fields that a table's spec states although nothing reads them.

    A field counts if the spec states it, even with its default. `null`, `false` and what is empty state nothing.
    """
    return list(_below(table, table, "", ()))


def refuse_without_effect(table: Table) -> None:
    """Refuse fields that nothing reads.

    Raises:
        ValidationError: One error for each field, at its place.
    """
    if found := without_effect(table):
        raise ValidationError.from_exception_data(
            type(table).__name__,
            [
                InitErrorDetails(
                    type=PydanticCustomError("value_error", "{what}", {"what": str(row)}), loc=place, input=None
                )
                for place, row in found
            ],
        )


def _below(table: Table, part: BaseModel, path: str, at: Place) -> Iterator[tuple[Place, NoEffect]]:
    for name, known in type(part).model_fields.items():
        value = getattr(part, name)
        if name not in part.model_fields_set or _states_nothing(value):
            continue
        written = known.alias or name
        field, place = f"{path}.{written}" if path else written, (*at, written)
        useless = next((row for row in _BY_FIELD.get(field, ()) if row.is_so(table, part)), None)
        if useless:
            yield place, useless
            continue
        for below, where, inner in _parts_of(value, field, place):
            yield from _below(table, inner, below, where)


def _states_nothing(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, Sequence | Mapping) and not value)


def _parts_of(value: Any, field: str, at: Place) -> Iterator[tuple[str, Place, BaseModel]]:
    """Return the parts of a spec that a field holds, each with its path and its place."""
    if isinstance(value, SourceSpec):
        yield f"{field}({value.kind_name()})", at, value
    elif isinstance(value, BaseModel):
        yield field, at, value
    elif isinstance(value, Mapping):
        of_names = cast("Mapping[str, Any]", value)
        yield from ((f"{field}.NAME", (*at, key), one) for key, one in of_names.items() if isinstance(one, BaseModel))
    elif isinstance(value, list):
        in_order = cast("list[Any]", value)
        yield from ((f"{field}[]", (*at, i), one) for i, one in enumerate(in_order) if isinstance(one, BaseModel))
