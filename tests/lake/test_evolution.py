"""A table that follows its spec: one commit, nothing rewritten, old rows NULL, and writers in flight that lose nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from backfill_assets.core.history.reconcile import reconcile
from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.state.receipts import Receipt
from backfill_assets.errors import SchemaMismatchError, TableFactsError
from backfill_assets.lake.evolution import Evolved, columns_of, evolve
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.files.source import FilesSource
from tests.support.live_shop import SCHEMA as LIVE_SCHEMA
from tests.support.live_shop import Shop, event, live_spec
from tests.support.shop import (
    COLUMNS,
    SCHEMA,
    content,
    files_by_partition,
    folder_of,
    launch,
    multiset,
    opened,
    orders,
    orders_spec,
    published_keys,
    refusals,
    rows_in,
    write_parquet,
)

DAY, NEXT = "2024-01-01", "2024-01-02"
SPEC = orders_spec()
WIDER = orders_spec(columns={**COLUMNS, "city": {"type": "string", "optional": True, "description": "Where it's sent."}, "it's`n`": {"type": "int", "optional": True}})  # fmt: skip


def source_of(spark: Any, spec: Any, root: Path) -> FilesSource:
    assert isinstance(spec.source, FilesSpec)
    return FilesSource(spark, spec, spec.source, str(root))


@pytest.fixture
def table(spark, tmp_path) -> LakeTable:
    """Two days, published."""
    for day in (DAY, NEXT):
        write_parquet(folder_of(tmp_path / "source", day), orders(day))
    made = LakeTable(spark, SPEC, f"{tmp_path}/orders")
    made.create()
    launch(made, source_of(spark, SPEC, tmp_path / "source"), SPEC.grid.between(DAY, NEXT), code_version="old")
    return made


def test_new_columns_are_added_in_one_commit(spark, table, tmp_path):
    """No file is touched, NOT NULL, protocol and receipts stay, old rows read NULL for another reader; doing it again does nothing."""
    before, files, published = opened(table.path).version(), files_by_partition(table.path), table.published()
    wider = LakeTable(spark, WIDER, table.path)
    with pytest.raises(
        SchemaMismatchError, match="`backfill-assets schema bronze/orders` shows what differs, and with `--apply`"
    ):
        wider.create()

    assert evolve(wider) == Evolved(("city", "it's`n`"), (), before + 1)

    assert evolve(wider) == Evolved()
    wider.create()
    after = opened(table.path)
    assert after.version() == before + 1
    assert after.history(1)[0]["operation"] == "ADD COLUMNS"
    assert (after.protocol().min_reader_version, after.protocol().min_writer_version) == (1, 2)
    assert after.protocol().writer_features is None
    assert [f.name for f in after.schema().fields if not f.nullable] == ["order_id", "ordered_at", "dt"]
    assert {f.name: f.metadata for f in after.schema().fields}["city"] == {"comment": "Where it's sent."}
    assert files_by_partition(table.path) == files
    assert wider.published() == published
    assert content(table.path) == multiset([*orders(DAY), *orders(NEXT)])
    assert {row["city"] for row in rows_in(table.path)} == {None}

    schema = SCHEMA.append(pa.field("city", pa.string()))
    write_parquet(folder_of(tmp_path / "source", NEXT), orders(NEXT, city="Oslo"), schema=schema)
    source = source_of(spark, WIDER, tmp_path / "source")
    first, second = reconcile(WIDER, WIDER.grid.between(DAY, NEXT), source, wider, code_version="new")
    assert first.passed  # its source lacks the column as well
    assert "checksum" in str(second)
    assert "It was published before the spec was changed: launch it again (`only: MISSING` does)." in str(second)
    assert published_keys(launch(wider, source, WIDER.grid.between(DAY, NEXT), only="missing", code_version="new")) == [
        DAY,
        NEXT,
    ]
    assert {(str(row["dt"]), row["city"]) for row in rows_in(table.path)} == {(DAY, None), (NEXT, "Oslo")}
    assert all(c.passed for c in reconcile(WIDER, WIDER.grid.between(DAY, NEXT), source, wider, code_version="new"))


def test_what_cannot_be_done_in_place_is_refused_whole(spark, tmp_path):
    """Neither a commit nor half of one: the message names the column, and where to read on."""
    made = LakeTable(spark, SPEC, f"{tmp_path}/orders")
    made.create()
    for columns, says in (
        (
            {**COLUMNS, "amount": "decimal(20,2)", "city": "string"},
            "`amount`: the spec widens decimal(18,2) -> decimal(20,2)",
        ),
        ({**COLUMNS, "order_id": "string"}, "`order_id`: kind changes bigint -> string: refused"),
        (
            {name: kind for name, kind in COLUMNS.items() if name != "customer"},
            "`customer`: in the table, not in the spec",
        ),
        ({**COLUMNS, "city": "string not null"}, "`city`: not in the table, and NOT NULL"),
    ):
        with pytest.raises(SchemaMismatchError) as caught:
            evolve(LakeTable(spark, orders_spec(columns=columns), made.path))
        assert says in str(caught.value)
        assert "Nothing was written." in str(caught.value)
        assert "docs/versions.md" in str(caught.value)
    with pytest.raises(TableFactsError, match="its `grain` is `daily`, not `monthly`"):
        evolve(LakeTable(spark, orders_spec(columns={**COLUMNS, "city": "string"}, grain="monthly"), made.path))
    assert opened(made.path).version() == 0


@pytest.mark.prove
def test_null_is_allowed_where_it_was_refused(spark, tmp_path):
    """A column that may be NULL in the spec from now on may be in the table; a table that is not there is not made."""
    strict = LakeTable(spark, orders_spec(columns={**COLUMNS, "customer": "string not null"}), f"{tmp_path}/strict")
    with pytest.raises(SchemaMismatchError, match="there is no table at"):
        evolve(strict)
    strict.create()
    loose = LakeTable(spark, SPEC, strict.path)
    assert evolve(loose) == Evolved((), ("customer",), 1)
    kept = columns_of(loose)
    assert kept is not None
    assert [name for name, column in kept.items() if not column.nullable] == ["order_id", "ordered_at"]


# -- beside a live stream ----------------------------------------------------------------------------------------------

CITY = {"city": {"type": "string", "optional": True}}


def with_city(shop: Shop) -> None:
    """The spec of the shop gets a column."""
    columns = {name: column.model_dump(exclude_unset=True) for name, column in shop.spec.columns.items()}
    shop.spec = live_spec(columns={**columns, **CITY})


@pytest.mark.prove
def test_late_rows_fold_after_the_change(spark, tmp_path):
    """`<table>_late` follows in the same step, and late rows with and without the column fold; the quarantine needs no change."""
    shop = Shop(spark, tmp_path)
    shop.land(event(1, "2024-01-03T10:00:00"), event(2, "2024-01-05T10:00:00"), "broken")
    shop.stream()
    with_city(shop)
    assert evolve(shop.delta).added == ("city",)
    assert "city" in {f.name for f in opened(f"{shop.path}_late").schema().fields}
    assert evolve(shop.delta) == Evolved()

    shop.land(
        {**event(5, "2024-01-05T12:00:00"), "city": "Rome"},
        {**event(6, "2024-01-03T12:00:00"), "city": "Rome"},
        "broken",
    )
    shop.stream()
    shop.export("2024-01-03")
    assert published_keys(shop.launch("2024-01-03", "2024-01-03")) == ["2024-01-03"]

    assert {row["order_id"]: row["city"] for row in shop.rows()} == {1: None, 2: None, 5: "Rome", 6: "Rome"}
    assert len(shop.rows("_quarantine")) == 2
    assert shop.delta.late_table.counts() == {"2024-01-03": 2}


@pytest.mark.prove
def test_nothing_is_lost_to_rows_of_before_the_change(spark, tmp_path):
    """Late and live rows of before the column lose every tie with the source's, which have it: by folding, sealing and carrying."""
    shop, ids = Shop(spark, tmp_path), range(1, 9)
    shop.land(*(event(n, "2024-01-03T10:00:00") for n in ids), *(event(10 + n, "2024-01-04T10:00:00") for n in ids))
    shop.stream()
    with_city(shop)
    evolve(shop.delta)
    schema = LIVE_SCHEMA.append(pa.field("city", pa.string()))
    for first, day in ((0, "2024-01-03"), (10, "2024-01-04")):
        at = datetime.fromisoformat(f"{day}T10:00:00Z")
        of_day = {"amount": Decimal("1.00"), "ordered_at": at, "updated_at": at, "city": "Rome"}
        write_parquet(
            folder_of(tmp_path / "landing/orders", day), [{"order_id": first + n, **of_day} for n in ids], schema=schema
        )
    shop.move("2024-01-05T00:00:00+00:00")

    sealed = shop.delta.version()
    for carried in (0, 8):
        outcomes = shop.launch("2024-01-03", "2024-01-04")
        assert published_keys(outcomes) == ["2024-01-03", "2024-01-04"], refusals(outcomes)
        assert {row["order_id"]: row["city"] for row in shop.rows()} == {
            first + n: "Rome" for first in (0, 10) for n in ids
        }
        if not carried:
            shop.delta.restore(
                shop.spec.grid.between("2024-01-04", "2024-01-04"), version=sealed, receipt=taken_back(shop, sealed)
            )
            assert shop.table.carry_live_rows() == 8


def taken_back(shop: Shop, version: int) -> Receipt:
    """The receipt of a commit that puts back what the stream had written."""
    newest = shop.delta.published()["2024-01-04"]
    parts = {"2024-01-04": newest.partition}
    return replace(
        newest.receipt,
        receipt_id="back",
        kind="put_back",
        staged_from_version=newest.version,
        partitions=parts,
        source={"kind": "version", "version": version},
    )
