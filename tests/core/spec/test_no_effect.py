"""A field that nothing reads in the mode at hand is refused, at its place, with the mode and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from backfill_assets.core.spec.no_effect import NO_EFFECT, without_effect
from backfill_assets.core.spec.table import TableSpec
from tests.core.spec.specs import FILES, PLAIN, spec
from tests.test_fields_page import fields

CSV, JSON = {**FILES, "format": "csv"}, {**FILES, "format": "json"}
FLAT = {**FILES, "layout": "flat", "complete_until": "2025-01-01"}
DATABASE = {"kind": "jdbc", "connection": "SHOP_DATABASE", "table": "public.orders"}
TABLES = {"kind": "delta", "tables": ["bronze/raw"]}
COPY = {"key": "bronze/orders__v2", "source": {"kind": "version", "table": "bronze/orders"}}
KEYED = {"key_columns": ["order_id"]}
FOLLOWED = {**KEYED, "source": DATABASE, "changes": {"capture": "shop"}}
EXCLUDED = {**FOLLOWED, "changes": {"capture": "shop", "backfill": "excluded"}}
DAYS_ALONE = {"columns": {"order_id": "bigint", "created_at": "date", "amount": "decimal(18,2)"}}
EPOCHS = {"columns": {**PLAIN["columns"], "created_at": {"type": "timestamp", "format": "epoch_millis"}}}
LIVE = {"live": {"path": "events", "starts": "2024-03-01", "late": "keep"}}


def column(name: str, **facts: Any) -> dict[str, Any]:
    """Facts of a spec in which one column says something more."""
    return {"columns": {**PLAIN["columns"], name: {"type": "string", **facts}}}


Case = tuple[Mapping[str, Any], str, Any, str]
"""The facts of a mode, the field, its value, and the message."""

NEVER_READ = "has no effect with `changes.backfill: excluded`, which never reads rows from the database; leave it out"
NEVER_LAUNCHED = "has no effect with `changes.backfill: excluded`, which refuses every launch; leave it out"
NO_TIMESTAMP = "has no effect without a column of type `timestamp`; leave it out"
ONLY_INSTANTS = "has no effect where the `format` of every `timestamp` column says its zone; leave it out"
SAID_ALREADY = "has no effect beside `source`, which says it already; leave it out"
NOT_NULL = "has no effect as `true` on a key column or the event time, where NULL is always refused; leave it out, or say `false`"
COPIED = "has no effect with `source.kind: delta` or `version`, which need every column; leave it out"
REQUIRED = (
    "has no effect on a column where NULL is refused: the rows of a file without it fail all the same; leave it out"
)
NO_TEXT = "has no effect without JSON or CSV files or a live stream: all other values have types; leave it out"
NO_SIZES = (
    "has no effect with `changes`, or with `source.kind: delta`: neither knows the size of a partition; leave it out; "
    "`max_partitions` bounds any chunk"
)
NO_FILES = (
    "has no effect with `source.kind: jdbc` or `delta`, which read no files of their own; leave it out; "
    "`max_rows_per_second` bounds any source"
)
NULLS_REFUSED = (
    "has no effect as `null_share` of a column where NULL is refused: it is always 0; take the expectation out"
)
GIVE_ONE = "has no effect beside `complete_until`, which says what is complete; give one of the two"
OF_A_KEY = (
    "has no effect for a key column, which has the same value in all rows with one key; "
    "name columns that say which row is newer"
)

CASES: list[Case] = [
    # the given fault, and its like in every other mode
    (FOLLOWED, "source.complete_until", "2024-05-11", "has no effect with `changes`: the feed brings every row up to now; leave it out, or leave out `changes`"),
    (FOLLOWED, "source.modified_at", "updated_at", "has no effect with `changes`: the feed says which rows have changed; leave it out"),
    (KEYED, "columns.order_id", {"type": "bigint", "nullable": True}, NOT_NULL),
    ({}, "columns.created_at", {"type": "timestamp", "nullable": True}, NOT_NULL),
    ({"source": TABLES, "key": "silver/orders"}, "columns.note", {"type": "string", "optional": True}, COPIED),
    (COPY | {"version_of": {"table": "bronze/orders"}}, "columns.note", {"type": "string", "optional": True}, COPIED),
    (KEYED, "columns.order_id", {"type": "bigint", "optional": True}, REQUIRED),
    ({}, "columns.created_at", {"type": "timestamp", "optional": True}, REQUIRED),
    ({"source": JSON}, "columns.note", {"type": "string", "nullable": False, "optional": True}, REQUIRED),
    ({}, "columns.note", {"type": "string", "from": "text"}, "has no effect without a source of JSON files; leave it out"),
    ({}, "columns.day", {"type": "date", "format": "dd.MM.yyyy"}, NO_TEXT),
    ({"source": TABLES, "key": "silver/orders"}, "columns.day", {"type": "date", "format": "dd.MM.yyyy"}, NO_TEXT),
    ({}, "latest_wins_by", ["created_at"], "has no effect without `key_columns`: no two rows have the same key; add `key_columns`, or leave it out"),
    (KEYED, "latest_wins_by", ["order_id"], OF_A_KEY),
    (EXCLUDED, "empty", "allowed", NEVER_LAUNCHED),
    (EXCLUDED, "max_shrink", 0.1, NEVER_LAUNCHED),
    (EXCLUDED, "reason", "required", NEVER_LAUNCHED),
    (EXCLUDED, "catch_up", {"cron": "0 1 * * *"}, NEVER_LAUNCHED),
    (EXCLUDED, "pace", {"max_rows_per_second": 100}, NEVER_LAUNCHED),
    (EXCLUDED, "changes.wait_seconds", 5, NEVER_LAUNCHED),
    (EXCLUDED, "source.without_event_time", "ignored", NEVER_READ),
    (EXCLUDED, "source.parallel_reads", 4, NEVER_READ),
    (EXCLUDED, "source.rows_per_read", 10, NEVER_READ),
    (EXCLUDED, "source.fetch_rows", 10, NEVER_READ),
    (FOLLOWED, "changes.table", "public.orders", SAID_ALREADY),
    (FOLLOWED, "changes.connection", "SHOP_DATABASE", SAID_ALREADY),
    (FOLLOWED, "changes.timestamps_without_zone", "UTC", SAID_ALREADY),
    ({}, "expect", [{"measure": "count(*)", "at_least": 1, "of": "previous"}], "has no effect without `within`, which compares with it; add `within`, or leave it out"),
    ({}, "expect", [{"measure": "null_share(order_id)", "at_most": 0}], NULLS_REFUSED),
    ({}, "checks.separate", ["schema_matches", "keys_are_unique"], "has no effect for `keys_are_unique` without `key_columns`: no two rows have the same key; add `key_columns`, or take the rule out"),
    ({"source": JSON}, "source.csv", {"delimiter": ";"}, "has no effect without `format: csv`; leave it out"),
    ({"source": {**CSV, "csv": {"quote": ""}}}, "source.csv.escape", "\\", 'has no effect with `quote: ""`: a field without quotes has none to escape; leave it out'),
    ({}, "source.encoding", "latin1", "has no effect with `format: parquet`, whose texts are UTF-8; leave it out"),
    ({"source": CSV}, "source.nanoseconds", "cut", "has no effect without `format: parquet`; leave it out"),
    (DAYS_ALONE, "source.nanoseconds", "cut", NO_TIMESTAMP),
    (DAYS_ALONE, "source.timestamps_without_zone", "UTC", NO_TIMESTAMP),
    (DAYS_ALONE | {"source": DATABASE}, "source.timestamps_without_zone", "UTC", NO_TIMESTAMP),
    (EPOCHS | {"source": JSON}, "source.timestamps_without_zone", "UTC", ONLY_INSTANTS),
    (EPOCHS | LIVE, "live.timestamps_without_zone", "UTC", ONLY_INSTANTS),
    ({"source": FLAT}, "source.path_time_zone", "Asia/Kolkata", "has no effect with `layout: flat`: names say no time; leave it out"),
    ({"source": FLAT}, "source.gaps", "allowed", "has no effect with `layout: flat`: names say no time, so none is missing; leave it out"),
    ({"source": FLAT}, "source.complete_when", "success_marker", GIVE_ONE),
    ({"source": {**FILES, "complete_until": "2025-01-01"}}, "source.complete_when", "folder_exists", GIVE_ONE),
    (
        {"source": {**FILES, "layout": "{year}/orders_{date}.parquet"}}, "source.complete_when", "success_marker",
        "has no effect as `success_marker` where the names of files say the time: a `_SUCCESS` file beside them says none; "
        "use `folder_exists`, or `complete_until` in its place",
    ),
    ({"source": DATABASE}, "source.replica_wait_seconds", 5, "has no effect without `replica`; name a `replica`, or leave it out"),
    ({"source": {"kind": "delta", "tables": ["bronze/visits"], "code_version": "2"}}, "source.code", ["shop.money"], "has no effect with `code_version`, which replaces the text of every module; leave it out"),
    ({}, "once", {"name": "again_{year}", "ranges": {"first": "2024-01-01...2024-01-31"}}, "has no effect without `years`: `ranges` bring their own names; leave it out"),
    (COPY | {"version_of": {"table": "bronze/orders", "retired": True}}, "catch_up", {"cron": "0 1 * * *"}, "has no effect with `version_of.retired`: nothing is copied again; leave it out"),
    ({}, "follow", True, "has no effect without other tables as its source; leave it out"),
    ({"source": DATABASE}, "pace.max_files_per_second", 5, NO_FILES),
    ({"source": TABLES, "key": "silver/orders"}, "pace.max_files_per_second", 5, NO_FILES),
    (FOLLOWED, "chunk.max_source_bytes", 1000, NO_SIZES),
    ({"source": TABLES, "key": "silver/orders"}, "chunk.max_source_bytes", 1000, NO_SIZES),
]  # fmt: skip


def stated(facts: Mapping[str, Any], field: str, value: Any) -> dict[str, Any]:
    """Return facts of a spec that state one field more, given by its path."""
    name, _, below = field.partition(".")
    return {**facts, name: stated(facts.get(name) or {}, below, value) if below else value}


def problems_of(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the place and the message of each refusal."""
    with pytest.raises(ValidationError) as caught:
        TableSpec.model_validate(facts)
    return [
        (".".join(map(str, error["loc"])), error["msg"].removeprefix("Value error, "))
        for error in caught.value.errors()
    ]


@pytest.mark.parametrize(("facts", "field", "value", "message"), CASES, ids=[f"{n}-{case[1]}" for n, case in enumerate(CASES)])  # fmt: skip
def test_useless_field_is_refused_at_its_place(facts: Mapping[str, Any], field: str, value: Any, message: str):
    """The table loads without the field, and with it the one error names its place, the mode and the remedy."""
    base = {**PLAIN, **facts}
    refused = problems_of(stated(base, field, value))
    assert [said for _, said in refused] == [message]
    assert refused[0][0].startswith(field)
    rest = stated(base, field, {k: v for k, v in value.items() if k == "type"}) if "columns" in field else base
    assert without_effect(TableSpec.model_validate(rest)) == []


def test_every_useless_field_has_a_case():
    """Each row of the table is refused by a case above."""
    reached = {said for facts, field, value, _ in CASES for _, said in problems_of(stated({**PLAIN, **facts}, field, value))}  # fmt: skip
    assert {str(row) for row in NO_EFFECT} == reached


def test_all_useless_fields_are_named_at_once():
    """Nobody corrects them one by one: each is named at its own place in the YAML."""
    expect = [{"measure": "count(*)", "within": 0.1}, {"measure": "sum(amount)", "at_least": 1, "of": "published"}]
    source = {**DATABASE, "complete_until": "2025-01-01", "modified_at": "x"}
    found = problems_of({**PLAIN, **FOLLOWED, "source": source, "expect": expect})
    assert [place for place, _ in found] == ["source.complete_until", "source.modified_at", "expect.1.of"]


@pytest.mark.parametrize(
    "facts",
    [
        {"follow": False, "source": {**JSON, "csv": None, "encoding": None}},
        {"latest_wins_by": [], "checks": {"separate": []}},
        {**column("note", optional=False, format=None)},
    ],
)
def test_what_states_nothing_is_not_refused(facts: Mapping[str, Any]):
    """`null`, `false` and an empty list say that a field is left out."""
    assert without_effect(spec(**facts)) == []


ALWAYS = """
key description columns key_columns event_time grain start time_zone partition_column source version_of expect once live
changes chunk checks owners tags statistics_columns
columns.NAME.type columns.NAME.description
source(files).kind source(files).path source(files).format source(files).layout source(files).complete_until
source(files).begin source(files).modified_after source(files).modified_before
source(files).csv.header source(files).csv.delimiter source(files).csv.quote source(files).csv.null_value
source(jdbc).kind source(jdbc).connection source(jdbc).replica source(jdbc).table
source(jdbc).statement_timeout_seconds
source(delta).kind source(delta).tables source(delta).transform source(delta).transform_by source(delta).code_version
source(delta).tables[].table source(delta).tables[].start_offset source(delta).tables[].end_offset
source(version).kind source(version).table
version_of.table version_of.before version_of.renamed version_of.cast version_of.computed version_of.dropped
version_of.new version_of.retired
expect[].by expect[].within expect[].at_least expect[].at_most
once.years once.ranges once.begin
live.path live.starts live.late live.trigger_seconds live.max_files_per_trigger live.max_future_seconds
live.silent_after_seconds live.max_lag_seconds live.closed_after_seconds
changes.capture changes.backfill changes.refresh_seconds changes.silent_after_seconds changes.max_lag_seconds
catch_up.cron catch_up.max_partitions catch_up.newest_first
pace.off_peak pace.max_rows_per_second pace.off_peak.cron pace.off_peak.hours
chunk.max_partitions
checks.severity checks.tolerance checks.show_values checks.tolerance.rows checks.tolerance.share
"""
"""Fields that something reads in every mode that a spec can tell. A transform may come from Python: so
`transform_by` is here."""


def test_every_field_is_thought_about():
    """A new field has an effect in every mode, or the table of useless fields says in which it has none."""
    useless, always = {row.field for row in NO_EFFECT}, ALWAYS.split()
    assert sorted([*useless, *always]) == sorted(fields())
