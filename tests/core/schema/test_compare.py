"""Columns that change: what differs between source, spec and table, and what is proposed or refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from backfill_assets.core.schema.compare import Action, Observed, TableColumn, compare_columns, compare_events
from backfill_assets.core.schema.inference import OBJECT
from backfill_assets.core.spec.table import TableSpec
from tests.core.spec import specs

COLUMNS = {"order_id": "bigint", "amount": "decimal(18,2)", "note": "string", "ordered_at": "timestamp"}


def spec_of(columns: dict[str, Any] | None = None, **source: Any) -> TableSpec:
    facts = {"columns": columns or COLUMNS, "key_columns": ["order_id"], "event_time": "ordered_at"}
    return specs.spec(**facts, source={**specs.FILES, **source})


def table_with(**changes: Any) -> dict[str, TableColumn]:
    """What a table of `spec_of()` has; None takes a column away."""
    kinds = {**COLUMNS, **changes}
    return {name: TableColumn(kind, name not in ("order_id", "ordered_at")) for name, kind in kinds.items() if kind}


def found(
    spec: TableSpec, source: list[dict[str, str]] | None, table: dict[str, TableColumn] | None = None
) -> dict[str, tuple[Action, str]]:
    """What is to be done, by column; sources are of consecutive days from 2024-01-01 on."""
    seen = [Observed(f"2024-01-0{i + 1}", columns) for i, columns in enumerate(source or [])]
    return {
        c.column: (c.action, c.what)
        for c in compare_columns(spec, seen, table)
        if c.action is not Action.NONE or c.what
    }


def test_nothing_to_do():
    """Source, spec and table that agree give nothing to do; an optional column may come and go."""
    spec = spec_of({**COLUMNS, "note": {"type": "string", "optional": True}})
    without = {name: kind for name, kind in COLUMNS.items() if name != "note"}
    assert found(spec, [COLUMNS, COLUMNS], table_with()) == {}
    assert found(spec, [COLUMNS, without], table_with()) == {
        "note": (Action.NONE, "missing in the source since 2024-01-02: read as NULL (`optional: true`)")
    }
    assert found(spec, [without, COLUMNS], table_with()) == {}


def test_a_new_column_is_proposed():
    """A column that the spec does not name becomes a new nullable one; optional where older files lack it."""
    (change,) = [
        c
        for c in compare_columns(spec_of(), [Observed("2024-01-01", {**COLUMNS, "city": "string"})], None)
        if c.column == "city"
    ]
    assert (change.action, change.what, change.new_type, change.optional) == (
        Action.ADD,
        "new nullable column",
        "string",
        False,
    )
    later = [Observed("2024-01-01", COLUMNS), Observed("2024-01-02", {**COLUMNS, "seen": "timestamp_ntz"})]
    (change,) = [c for c in compare_columns(spec_of(), later, table_with()) if c.column == "seen"]
    assert (change.what, change.new_type, change.optional) == (
        "new nullable column since 2024-01-02",
        "timestamp",
        True,
    )


BY_VALUE = "{} since 2024-01-02: a number that is no {} fails its partition, others are read"


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("bigint", "widens int -> bigint (safe) since 2024-01-02"),
        ("decimal(12,2)", "widens to decimal int -> decimal(12,2) (safe) since 2024-01-02"),
        ("decimal(6,3)", "widens to decimal int -> decimal(13,3) (safe) since 2024-01-02"),
        ("double", "widens int -> double (safe) since 2024-01-02"),
    ],
)
def test_a_wider_source_widens_the_spec_before_there_is_a_table(kind, says):
    """A spec without a table follows a source that became wider; with one, each number is read that fits."""
    spec = spec_of({**COLUMNS, "items": "int"})
    source = [{**COLUMNS, "items": "int"}, {**COLUMNS, "items": kind}]
    assert found(spec, source) == {"items": (Action.WIDEN, says)}
    assert found(spec, source, table_with(items="int")) == {"items": (Action.NONE, BY_VALUE.format(kind, "int"))}


def test_no_type_is_proposed_that_has_not_all_numbers():
    """`double` has not every `bigint`, so the spec keeps its type, and each number is read that fits."""
    assert found(spec_of(), [COLUMNS, {**COLUMNS, "order_id": "double"}]) == {
        "order_id": (Action.NONE, BY_VALUE.format("double", "bigint"))
    }


@pytest.mark.parametrize(
    ("columns", "source", "table", "says"),
    [
        (COLUMNS, [{**COLUMNS, "order_id": "string"}], None, "order_id: kind changes bigint -> string since 2024-01-01: refused"),
        (COLUMNS, None, table_with(amount="string"), "amount: kind changes string -> decimal(18,2): refused"),
        (COLUMNS, None, table_with(amount="decimal(10,2)"), "amount: the spec widens decimal(10,2) -> decimal(18,2): it cannot be done in place"),
        (COLUMNS, None, table_with(old="int"), "old: in the table, not in the spec: a column is never dropped"),
        ({**COLUMNS, "n": "int not null"}, None, table_with(), "n: not in the table, and NOT NULL, which old rows cannot be"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_in_place(columns, source, table, says):
    """A kind never changes, nothing is dropped, and NOT NULL cannot be asked of rows that are there."""
    name, _, what = says.partition(": ")
    action, said = found(spec_of(columns), source, table)[name]
    assert action is Action.REFUSED
    assert said.startswith(what)


def test_what_the_table_follows_the_spec_in():
    """A nullable column that the table lacks, and NULL where it refuses it, are for `--apply`."""
    spec = spec_of({**COLUMNS, "city": "string"})
    assert found(spec, None, table_with()) == {
        "city": (Action.APPLY, "new nullable column: `--apply` adds it to the table")
    }
    strict = {**table_with(), "note": TableColumn("string", nullable=False)}
    assert found(spec_of(), None, strict) == {
        "note": (Action.APPLY, "may be NULL from now on: `--apply` tells the table")
    }


def test_a_rename_is_seen_and_left_to_a_person():
    """One column that goes on the day another of its type comes looks renamed, on both lines; another type does not."""
    renamed = {**{name: kind for name, kind in COLUMNS.items() if name != "note"}, "remark": "string"}
    assert found(spec_of(), [COLUMNS, renamed], table_with()) == {
        "note": (
            Action.DECIDE,
            "missing in the source since 2024-01-02; looks renamed to `remark` (never done by itself)",
        ),
        "remark": (
            Action.ADD,
            "new nullable column since 2024-01-02; looks renamed from `note` (never done by itself)",
        ),
    }
    other = {**renamed, "remark": "int"}
    assert found(spec_of(), [COLUMNS, other])["note"] == (
        Action.DECIDE,
        "missing in the source since 2024-01-02; `optional: true` would read it as NULL",
    )


def test_other_columns_of_a_source():
    """What came later, what is no plain value, what was there for a while, and what has no name for a column."""
    spec = spec_of(format="json")
    without = {name: kind for name, kind in COLUMNS.items() if name != "note"}
    assert found(spec, [without, COLUMNS])["note"] == (
        Action.DECIDE,
        "in the source since 2024-01-02; files before it need `optional: true`",
    )
    assert found(spec, [without])["note"] == (
        Action.DECIDE,
        "missing in the source; `optional: true` would read it as NULL",
    )
    unkeyed = {name: kind for name, kind in COLUMNS.items() if name != "order_id"}
    assert found(spec, [unkeyed])["order_id"] == (Action.DECIDE, "missing in the source")
    assert found(spec, [unkeyed, COLUMNS])["order_id"] == (
        Action.DECIDE,
        "in the source since 2024-01-02; files before it lack it, and NULL is refused",
    )
    odd = found(
        spec, [{**COLUMNS, "brief": "int"}, {**COLUMNS, "address": OBJECT, "a b": "int", "DT": "date", "n": "void"}]
    )
    assert {action for action, _ in odd.values()} == {Action.NONE}
    assert "`from: address.field`" in odd["address"][1]
    assert odd["a b"][1] == odd["DT"][1] == "left out: it cannot be the name of a column here"
    assert odd["brief"][1] == "was in the source for a while; left out"
    kept = found(spec, [{**COLUMNS, "brief": "int"}, COLUMNS], table_with(brief="int"))
    assert kept["brief"][0] is Action.REFUSED


def test_a_new_column_whose_kind_changes_is_refused():
    """A column that is new and had two kinds already has no type that could be proposed."""
    action, what = found(spec_of(), [{**COLUMNS, "x": "int"}, {**COLUMNS, "x": "string"}])["x"]
    assert (action, what) == (Action.REFUSED, "its kind changes in the source, or is not the table's: refused")
    assert found(spec_of(), [{**COLUMNS, "x": "int"}], table_with(x="bigint"))["x"][0] is Action.ADD


def test_a_path_is_for_json_alone():
    """`from` needs a source of JSON files, names fields, and not both an object and what is in it."""
    nested = {**COLUMNS, "city": {"type": "string", "from": "address.city"}}
    spec = spec_of(nested, format="json")
    assert spec.field_of("city") == "address.city"
    assert spec.field_of("note") == "note"
    assert (
        TableSpec.model_validate(spec.model_dump(exclude_unset=True))
        == spec
        == TableSpec.model_validate_json(spec.model_dump_json(exclude_unset=True))
    )
    for columns, source, words in (
        (nested, {}, "columns.city.from\n  has no effect without a source of JSON files"),
        (
            {**nested, "address": "string"},
            {"format": "json"},
            "`city` is read from inside `address`, which `address` takes as a whole",
        ),
        (
            {**COLUMNS, "city": {"type": "string", "from": "address..city"}},
            {"format": "json"},
            "a path is the name of a field",
        ),
        ({**COLUMNS, "city": {"type": "string", "path": "city"}}, {"format": "json"}, "path"),
    ):
        with pytest.raises(ValidationError, match=words):
            spec_of(columns, **source)


def test_fields_of_live_events():
    """One that no column is read from is proposed, unless the history has it too; a value that its column cannot take is named."""
    spec = spec_of()
    events = {**COLUMNS, "coupon": "string", "channel": "bigint", "who": "object", "amount": "string"}
    known = compare_columns(spec, [Observed("2024-01-01", {**COLUMNS, "channel": "bigint"})], None)
    changes = {change.column: change for change in compare_events(spec, events, None, known)}
    assert {name: change.action for name, change in changes.items()} == {
        "amount": Action.DECIDE,
        "coupon": Action.ADD,
        "who": Action.NONE,
    }
    assert (changes["coupon"].new_type, changes["coupon"].optional) == ("string", True)
    assert "such events may be quarantined" in changes["amount"].what
    assert compare_events(spec, COLUMNS, None, known) == []
    assert compare_events(spec, {}, None, known) == []


def test_events_that_history_contradicts():
    """A new field of another kind than the history's, a required one that no event has, a name that no YAML can have: each is told."""
    spec = spec_of({**COLUMNS, "amount": "decimal(18,2) not null"})
    known = compare_columns(spec, [Observed("", {**COLUMNS, "coupon": "bigint"})], None)
    events = {"order_id": "bigint", "ordered_at": "timestamp", "coupon": "string", "x\u0092": "string"}
    found = {change.column: change for change in compare_events(spec, events, None, known)}
    assert {name: change.action for name, change in found.items()} == {
        "amount": Action.DECIDE,
        "coupon": Action.DECIDE,
        "x\u0092": Action.NONE,
    }
