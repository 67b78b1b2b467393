"""Columns that change: which types widen, what differs between source, spec and table, and what a few rows tell of a source."""

from __future__ import annotations

import ast
from datetime import date, datetime
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from pydantic import ValidationError

from backfill_assets.core.schema.compare import Action, Observed, TableColumn, compare_columns
from backfill_assets.core.schema.inference import (
    OBJECT,
    event_time_of,
    fits,
    key_of,
    kind_of_values,
    lacks_zone,
    latest_by_of,
    layout_of,
)
from backfill_assets.core.schema.types import common_type, reads_as
from backfill_assets.core.spec.columns import PRIMITIVE_TYPES
from backfill_assets.core.spec.table import TableSpec
from tests.support.docstring_tables import table_of

COLUMNS = {"order_id": "bigint", "amount": "decimal(18,2)", "note": "string", "ordered_at": "timestamp"}
SOURCE = {"kind": "files", "path": "orders", "format": "parquet"}


def spec_of(columns: dict[str, Any] | None = None, **source: Any) -> TableSpec:
    return TableSpec.model_validate(
        {
            "key": "bronze/orders",
            "columns": columns or COLUMNS,
            "key_columns": ["order_id"],
            "event_time": "ordered_at",
            "grain": "daily",
            "start": "2024-01-01",
            "source": {**SOURCE, **source},
        }
    )


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


# -- types -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", table_of(reads_as), ids=lambda row: f"{row['found']} as {row['wanted']}")
def test_what_reads_as_what(row):
    """Only what loses nothing is read as another type."""
    assert reads_as(row["found"], row["wanted"]) is (row[""] == "yes")


@pytest.mark.parametrize("row", table_of(common_type), ids=lambda row: f"{row['one']} and {row['other']}")
def test_the_type_that_takes_both(row):
    """The narrowest type that loses nothing, whichever comes first; none where the kinds differ."""
    assert (
        common_type(row["one"], row["other"])
        == common_type(row["other"], row["one"])
        == (None if row["both"] == "none" else row["both"])
    )


def test_whatever_two_types_share_reads_both():
    """A common type of any two types reads each of them, or is the double of float and a whole number."""
    kinds = [*PRIMITIVE_TYPES, "decimal(5,2)", "decimal(18,2)", "decimal(38,10)"]
    for one, other in product(kinds, kinds):
        both = common_type(one, other)
        assert both is None or both == "double" or (reads_as(one, both) and reads_as(other, both)), (one, other, both)


# -- three places ------------------------------------------------------------------------------------------------------


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
    """A spec without a table follows a source that became wider; with one, it is refused in place and says why."""
    spec = spec_of({**COLUMNS, "items": "int"})
    source = [{**COLUMNS, "items": "int"}, {**COLUMNS, "items": kind}]
    assert found(spec, source) == {"items": (Action.WIDEN, says)}
    action, what = found(spec, source, table_with(items="int"))["items"]
    assert action is Action.REFUSED
    assert what == f"{says}; the table has int: it cannot be done in place, make a new version of the table"


@pytest.mark.parametrize(
    ("columns", "source", "table", "says"),
    [
        (COLUMNS, [{**COLUMNS, "order_id": "string"}], None, "order_id: kind changes bigint -> string since 2024-01-01: refused"),
        (COLUMNS, [{**COLUMNS, "order_id": "double"}], None, "order_id: kind changes bigint -> double since 2024-01-01: refused"),
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


# -- paths of JSON -----------------------------------------------------------------------------------------------------


def test_a_path_is_for_json_alone():
    """`from` needs a source of JSON files, names fields, and not both an object and what is in it."""
    nested = {**COLUMNS, "city": {"type": "string", "from": "address.city"}}
    spec = spec_of(nested, format="json")
    assert spec.field_of("city") == "address.city"
    assert spec.field_of("note") == "note"
    assert TableSpec.model_validate(spec.model_dump()) == spec == TableSpec.model_validate_json(spec.model_dump_json())
    for columns, source, words in (
        (nested, {}, "`city` says `from`, which only a source of JSON files can follow"),
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


# -- a few rows --------------------------------------------------------------------------------------------------------


def read(cell: str) -> list[Any]:
    """Values of a table in a docstring, numbers with a point as Decimal, as lines are read."""
    values = ast.literal_eval(f"[{cell}]")
    return [
        Decimal(part.strip()) if isinstance(value, float) else value
        for value, part in zip(values, cell.split(","), strict=True)
    ]


@pytest.mark.parametrize("row", table_of(kind_of_values), ids=lambda row: row["values"])
def test_the_type_of_values(row):
    """The narrowest type that takes all of them."""
    assert kind_of_values(read(row["values"])) == row["type"]


def test_an_object_is_no_type():
    """Objects and arrays are seen, beside NULL too."""
    assert kind_of_values([None, {"a": 1}]) == kind_of_values([[1]]) == OBJECT


@pytest.mark.parametrize("row", table_of(fits), ids=lambda row: f"{row['value']} as {row['type']}")
def test_what_fits_a_type(row):
    """As the reader of JSON lines would have it."""
    assert fits(read(row["value"])[0], row["type"]) is (row[""] == "yes")


@pytest.mark.parametrize("row", table_of(layout_of), ids=lambda row: row["folders"])
def test_a_layout_is_found(row):
    """The template of a dated folder, as a spec names it."""
    layout, days = layout_of([row["folders"]]) or ("", [])
    assert layout == row["layout"]
    assert days == [date(2024, 2, 9 if "/9" in row["folders"] else 29)]


def test_the_layout_of_most_days_wins():
    """A stray folder does not decide; folders without a day decide nothing."""
    assert layout_of(["2024/01/01", "2024/01/02", "backup-2024-01-01", "docs"]) == (
        "year/month/day",
        [date(2024, 1, 1), date(2024, 1, 2)],
    )
    assert layout_of(["", "a/b/c", "2024/13/01", "2024/01"]) is None


def test_the_event_time_lies_in_its_folder():
    """The timestamp whose values lie in the day of their folder, and not one that was written later; an instant before a date."""
    rows = [
        (date(2024, 1, d), {"made": f"2024-01-0{d} 10:00:00", "day": date(2024, 1, d), "changed": datetime(2024, 1, 9)})
        for d in (1, 2)
    ]
    kinds = {"changed": "timestamp", "day": "date", "made": "timestamp"}
    guess = event_time_of(kinds, rows)
    assert guess is not None
    assert (guess.value, guess.why) == ("made", "100% of 2 sampled values lie inside the day of their folder")
    assert event_time_of({"changed": "timestamp"}, rows) is None
    assert event_time_of({"made": "string"}, rows) is None


def test_a_key_is_unique_and_looks_like_one():
    """`order_id` before `customer_id` for orders; a number that is no id is no key; a repetition is let pass where the latest wins."""
    rows = [{"customer_id": i, "order_id": i, "amount": i} for i in range(100)]
    kinds = {"customer_id": "bigint", "order_id": "bigint", "amount": "bigint"}
    key = key_of(kinds, rows, "orders", None)
    assert key is not None
    assert (key.value, key.why) == ("order_id", "unique in 100 sampled rows")
    assert key_of({"amount": "bigint"}, rows, "orders", None) is None
    twice = [*rows[1:], rows[1]]
    assert key_of({"order_id": "bigint"}, twice, "orders", None) is None
    latest = latest_by_of({"order_id": "bigint", "updated_at": "timestamp"})
    assert latest is not None
    assert (latest.value, key_of({"order_id": "bigint"}, twice, "orders", latest)) != ("updated_at", None)
    assert latest_by_of({"updated_at": "string"}) is None


def test_instants_without_a_zone_are_noticed():
    """A time of day without a zone; a plain date has none to lack."""
    assert lacks_zone(["2024-01-01T00:00:00Z", "2024-01-01 00:00:00"])
    assert not lacks_zone(["2024-01-01T00:00:00+01:00", "2024-01-01", None])
