"""Sources that change from a day on: what is published, what is refused with file and column, and what is proposed."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from backfill_assets.core.history.outcomes import Outcome
from backfill_assets.core.schema.compare import Action, compare_columns
from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.files import json_lines
from backfill_assets.sources.files.source import FilesSource
from tests.support.shop import (
    COLUMNS,
    SCHEMA,
    Row,
    folder_of,
    launch,
    orders,
    orders_spec,
    published_keys,
    refusals,
    rows_in,
    write_json,
    write_parquet,
)

PLAIN, NEW, LONG, DECIMAL, GONE, RENAMED, KIND, WHOLE = [f"2024-01-0{day}" for day in range(1, 9)]
SPEC_COLUMNS = {**COLUMNS, "items": "int", "paid": "decimal(12,2)", "city": {"type": "string", "optional": True}}
FIELDS = {"items": pa.int32(), "paid": pa.decimal128(12, 2), "city": pa.string()}


def day_of(day: str) -> tuple[list[Row], dict[str, pa.DataType]]:
    """The rows of a day, and the types of its columns."""
    rows = [{**row, "items": 1, "paid": Decimal("2.50"), "city": "Oslo"} for row in orders(day, 2)]
    types = {**{field.name: field.type for field in SCHEMA}, **FIELDS}
    changes: dict[str, tuple[str, Any, pa.DataType]] = {
        NEW: ("extra", "x", pa.string()),
        LONG: ("items", 3_000_000_000, pa.int64()),
        DECIMAL: ("items", Decimal("1.5"), pa.decimal128(6, 1)),
        KIND: ("order_id", "A-1", pa.string()),
        WHOLE: ("paid", 3, pa.int32()),
    }
    if day in changes:
        name, value, kind = changes[day]
        rows = [{**row, name: value} for row in rows]
        types[name] = kind
    if day in (GONE, RENAMED):
        rows = [
            {**{n: v for n, v in row.items() if n != "customer"}, **({"client": "c"} if day == RENAMED else {})}
            for row in rows
        ]
        types.pop("customer")
        types |= {"client": pa.string()} if day == RENAMED else {}
    if day != PLAIN:  # optional: later files lack it
        rows = [{n: v for n, v in row.items() if n != "city"} for row in rows]
        types.pop("city")
    return rows, types


@dataclass
class Drifted:
    root: Path
    spec: TableSpec
    source: FilesSource
    table: LakeTable
    outcomes: list[Outcome]
    remarks: list[str]


@pytest.fixture(scope="module", params=["parquet", pytest.param("json", marks=pytest.mark.prove)])
def drifted(request, spark: SparkSession, tmp_path_factory) -> Drifted:
    """A day for each way in which a source changes, launched together."""
    root = tmp_path_factory.mktemp(request.param)
    spec = orders_spec(columns=SPEC_COLUMNS, source={"kind": "files", "path": "orders", "format": request.param})
    for day in (PLAIN, NEW, LONG, DECIMAL, GONE, RENAMED, KIND, WHOLE):
        rows, types = day_of(day)
        if request.param == "json":
            write_json(folder_of(root, day), rows)
        else:
            write_parquet(folder_of(root, day), rows, schema=pa.schema(types))
    assert isinstance(spec.source, FilesSpec)
    source = FilesSource(spark, spec, spec.source, str(root))
    table = LakeTable(spark, spec, f"{root}-table")
    table.create()
    remarks = source.check_schema(spec.grid.between(PLAIN, NEW))
    return Drifted(root, spec, source, table, launch(table, source, spec.grid.between(PLAIN, WHOLE)), remarks)


def test_a_new_column_is_left_out_with_a_remark(drifted):
    """The day is published without it, and the remark names it and the command that proposes to take it."""
    assert drifted.remarks == [
        "`bronze/orders`: the files also have ['extra'], which the spec does not name; left out. "
        "`backfill-assets schema bronze/orders` proposes the lines that would take them."
    ]
    assert published_keys(drifted.outcomes) == [PLAIN, NEW, WHOLE]


def test_what_does_not_fit_fails_its_own_day(drifted):
    """Wider numbers, a column that is gone or renamed, another kind: each is refused with its file and its column."""
    said = refusals(drifted.outcomes)
    assert sorted(said) == [LONG, DECIMAL, GONE, RENAMED, KIND]
    is_json = drifted.spec.source.format == "json"
    for day, words in {
        LONG: f"`items` is no int{' (`decimal(38,0)` would hold it)' if is_json else ''}: 3000000000",
        DECIMAL: f"`items` is no int{' (a `decimal` with more digits behind the point would hold it)' if is_json else ''}: 1.5",
        GONE: "has no column `customer`; `optional: true` would read it as NULL",
        RENAMED: "has no column `customer`; `optional: true` would read it as NULL",
        KIND: "`order_id` is no bigint: A-1" if is_json else "`order_id` is `string`, not `bigint`",
    }.items():
        assert words in said[day], said[day]
        assert f"{day.replace('-', '/')}/orders." in said[day], said[day]


def test_what_fits_is_read_without_a_loss(drifted):
    """An optional column that is gone is NULL, and whole numbers are read as the spec's decimal."""
    found = {(str(row["dt"]), row["city"], row["paid"]) for row in rows_in(drifted.table.path)}
    assert found == {(PLAIN, "Oslo", Decimal("2.50")), (NEW, None, Decimal("2.50")), (WHOLE, None, Decimal("3.00"))}


def test_what_changed_is_found_and_dated(drifted):
    """A look at the same files names each change, and the day since when."""
    changes = {c.column: c for c in compare_columns(drifted.spec, drifted.source.observed_columns(), None)}
    assert changes["order_id"].action is Action.REFUSED
    assert changes["order_id"].what == f"kind changes bigint -> string since {KIND}: refused"
    assert changes["items"].action is Action.WIDEN
    assert f"since {LONG}" in changes["items"].what
    assert (changes["items"].new_type[:8], changes["extra"].what) == (
        "decimal(",
        "was in the source for a while; left out",
    )
    assert changes["city"].what == f"missing in the source since {NEW}: read as NULL (`optional: true`)"
    assert (changes["amount"].action, changes["paid"].action, changes["ordered_at"].what) == (
        Action.NONE,
        Action.NONE,
        "",
    )


# -- nested JSON -------------------------------------------------------------------------------------------------------

NESTED = {
    **COLUMNS,
    "city": {"type": "string", "from": "address.city"},
    "zip": {"type": "int", "from": "address.place.zip", "optional": True},
    "lines": "string",
}
LINE = (
    '{"lines": [{"amount": 9.75, "sku": "a"}], "address": {"city": "Oslo", "place": {"zip": "0150"}}, "order_id": 1, "customer": "c", '
    '"amount": 12345678901234.56, "ordered_at": "2024-01-01T01:00:00Z"}'
)


def test_fields_inside_objects(spark, tmp_path):
    """A path reads a field inside an object, history and stream alike; a day whose objects lack it is refused, an optional one is NULL."""
    spec = orders_spec(columns=NESTED, source={"kind": "files", "path": "orders", "format": "json"})
    write_json(folder_of(tmp_path / "in", "2024-01-01"), [LINE])
    lacking = LINE.replace('"city": "Oslo", ', "").replace("2024-01-01", "2024-01-02")
    write_json(folder_of(tmp_path / "in", "2024-01-02"), [lacking])
    write_json(
        folder_of(tmp_path / "in", "2024-01-03"),
        [LINE.replace(', "place": {"zip": "0150"}', "").replace("2024-01-01", "2024-01-03")],
    )
    source = FilesSource(spark, spec, spec.source, str(tmp_path / "in"))
    table = LakeTable(spark, spec, f"{tmp_path}/orders")
    table.create()

    assert source.check_schema(spec.grid.between("2024-01-01", "2024-01-03")) == []
    outcomes = launch(table, source, spec.grid.between("2024-01-01", "2024-01-03"))

    assert published_keys(outcomes) == ["2024-01-01", "2024-01-03"]
    assert "2024/01/02/orders.json` has no column `city`" in refusals(outcomes)["2024-01-02"]
    first, third = sorted(rows_in(table.path), key=lambda row: row["ordered_at"])
    assert (first["city"], first["zip"], first["amount"]) == ("Oslo", 150, Decimal("12345678901234.56"))
    assert first["lines"] == '[{"amount": 9.75, "sku": "a"}]'  # an object or array in a `string` is its JSON text
    assert (third["city"], third["zip"]) == ("Oslo", None)
    (streamed,) = json_lines.typed_lines(spec, spark.createDataFrame([(LINE,)], "_ba_text string"), None).collect()
    assert (streamed["city"], streamed["zip"], streamed["amount"]) == ("Oslo", 150, Decimal("12345678901234.56"))
    assert streamed["lines"] == first["lines"]
    assert streamed["_ba_problem"] is None
