"""One table: made once and explicitly, and held against its spec."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from backfill_assets.errors import SchemaMismatchError
from backfill_assets.lake.properties import PROPERTIES
from backfill_assets.lake.table import LakeTable
from tests.lake.scans import scan
from tests.support.shop import (
    COLUMNS,
    content,
    frame_of,
    multiset,
    opened,
    orders,
    orders_spec,
    receipt_for,
)

DAY = "2024-01-01"
SPEC = orders_spec()


def test_a_table_is_made_once(spark, tmp_path):
    """It is not there until it is made; made again, it stays as it is."""
    table = LakeTable(spark, SPEC, f"{tmp_path}/a root [with] {{odd}} names/orders")
    assert not table.exists()
    assert table.schema_problems() == []

    table.create()
    table.create()

    assert table.exists()
    made = opened(table.path)
    assert made.version() == 0
    assert made.metadata().partition_columns == ["dt"]
    assert made.schema().to_arrow().names == [*COLUMNS, "dt"]
    assert [field.name for field in made.schema().fields if not field.nullable] == ["order_id", "ordered_at", "dt"]
    assert (
        made.metadata().configuration.items()
        >= {n: v for n, v in PROPERTIES.items() if not n.startswith("delta.min")}.items()
    )
    assert made.metadata().configuration["delta.dataSkippingStatsColumns"] == "`ordered_at`,`order_id`"
    assert (made.protocol().min_reader_version, made.protocol().min_writer_version) == (1, 2)


def test_a_table_below_an_odd_root_can_be_written(spark, tmp_path):
    """Spaces, brackets and non-Latin letters in the root are only letters, for the log's files too."""
    table = LakeTable(spark, SPEC, f"{tmp_path}/wörld [1] {{x}}/orders")
    table.create()
    named = [SPEC.grid.partition(DAY)]
    staged = table.stage(scan(spark, SPEC, {DAY: orders(DAY)}))

    commit = table.overwrite(staged, named, receipt_for(table, named))

    assert (commit.version, commit.rows, commit.written is not None) == (1, {DAY: 3}, True)
    assert commit.size_bytes[DAY] > 0
    assert content(table.path) == multiset(orders(DAY))


@pytest.mark.prove
def test_odd_column_names_survive(spark, tmp_path):
    """Dots, quotes and backticks in a column's name are part of the name, from creation to the commit."""
    spec = orders_spec(
        columns={"a.b": "int", "it's": "string", "back`tick": "timestamp"},
        key_columns=["a.b", "it's"],
        event_time="back`tick",
    )
    table = LakeTable(spark, spec, f"{tmp_path}/odd")
    table.create()
    rows = [{"a.b": 1, "it's": "x", "back`tick": datetime(2024, 1, 1, 5, tzinfo=UTC)}]
    named = [spec.grid.partition(DAY)]

    commit = table.overwrite(table.stage(scan(spark, spec, {DAY: rows})), named, receipt_for(table, named))

    assert commit.rows == {DAY: 1}
    assert content(table.path, spec.columns) == multiset(rows, spec.columns)


def test_another_schema_is_refused_in_words(spark, table):
    """A table with other columns than the spec's is not touched; each difference is named."""
    other = orders_spec(columns={**COLUMNS, "amount": "double", "country": "string"})

    with pytest.raises(
        SchemaMismatchError, match="`country` is missing; `amount` is `decimal\\(18,2\\)`, not `double`"
    ) as caught:
        LakeTable(spark, other, table.path).create()
    fewer = orders_spec(columns={name: kind for name, kind in COLUMNS.items() if name != "customer"})
    assert LakeTable(spark, fewer, table.path).schema_problems() == ["`customer` is not in the spec"]

    assert "Nothing was written." in str(caught.value)
    assert opened(table.path).version() == 0


@pytest.mark.prove
def test_a_column_that_may_be_null_by_the_spec_alone_is_another(spark, tmp_path):
    """Else a row without it would pass every rule but the table's own, and the whole chunk would fail: `schema --apply` relaxes it."""
    strict = LakeTable(spark, orders_spec(columns={**COLUMNS, "customer": "string not null"}), f"{tmp_path}/strict")
    strict.create()
    with pytest.raises(SchemaMismatchError, match="`customer` is never NULL there, and may be by the spec") as refused:
        LakeTable(spark, SPEC, strict.path).create()
    assert "backfill-assets schema" in str(refused.value)
    loose = LakeTable(spark, SPEC, f"{tmp_path}/loose")
    loose.create()
    LakeTable(spark, strict.spec, loose.path).create()  # the other way round every row is audited


@pytest.mark.prove
def test_a_key_may_be_of_any_type(spark, tmp_path):
    """Of booleans and binary values Delta keeps no statistics, and would refuse to make the table."""
    columns = {**COLUMNS, "raw": "binary", "is_paid": "boolean"}
    table = LakeTable(spark, orders_spec(columns=columns, key_columns=["raw", "is_paid", "order_id"]), f"{tmp_path}/t")
    table.create()
    assert opened(table.path).metadata().configuration["delta.dataSkippingStatsColumns"] == "`ordered_at`,`order_id`"
    with pytest.raises(ValueError, match="statistics_columns: `raw` is `binary`, of which Delta keeps no smallest"):
        orders_spec(columns=columns, statistics_columns=["raw"])


def test_a_table_that_is_partitioned_otherwise_is_refused(spark, tmp_path):
    """The same columns without the partitions are another table: an overwrite would rewrite its files row by row."""
    path = f"{tmp_path}/flat"
    frame_of(spark, SPEC, orders(DAY)).write.format("delta").save(path)

    with pytest.raises(SchemaMismatchError, match=r"it is partitioned by \[\], not by `dt`"):
        LakeTable(spark, SPEC, path).create()
