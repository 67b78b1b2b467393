"""One table: made once and explicitly, rows held and resolved, examples named, receipts kept."""

from __future__ import annotations

import shutil
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.history.audit import AuditRule, Evidence, Finding, Verdict
from backfill_assets.core.history.ports import Held, Staged
from backfill_assets.core.state.receipts import PartitionReceipt, Receipt
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import SchemaMismatchError, UnsafeWriteError
from backfill_assets.lake.table import PROPERTIES, DeltaTable
from tests.support.shop import COLUMNS, content, files_by_partition, frame_of, multiset, opened, orders, orders_spec, receipt_for, rows_in

Row = dict[str, Any]
DAY, NEXT = "2024-01-01", "2024-01-02"
SPEC = orders_spec()


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> DeltaTable:
    made = DeltaTable(spark, SPEC, f"{tmp_path}/orders")
    made.create()
    return made


def staged(spark: SparkSession, spec: TableSpec, rows: dict[str, list[Row]] | list[Row], *, scattered: bool = False) -> Staged[Any]:
    """Rows as a source stages them; by the file they come from, or without files."""
    if isinstance(rows, list):
        return Staged(frame_of(spark, spec, rows, partitioned=False), {}, {})
    frames = [
        frame_of(spark, spec, part, partitioned=False).withColumn("_ba_home", F.lit(i).cast("bigint"))
        for i, part in enumerate(rows.values())
    ]
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.unionByName(other)
    return Staged(frame, {}, {}, dict(enumerate(rows)), scattered)


def cached(spark: SparkSession) -> int:
    """How many frames Spark keeps."""
    return spark._jsc.getPersistentRDDs().size()  # type: ignore[attr-defined]


# -- made explicitly ---------------------------------------------------------------------------------------------------


def test_a_table_is_made_once(spark, tmp_path):
    """It is not there until it is made; made again, it stays as it is."""
    table = DeltaTable(spark, SPEC, f"{tmp_path}/a root [with] {{odd}} names/orders")
    assert not table.exists()
    assert table.schema_problems() == ["the table does not exist"]

    table.create()
    table.create()

    assert table.exists()
    made = opened(table.path)
    assert made.version() == 0
    assert made.metadata().partition_columns == ["dt"]
    assert made.schema().to_arrow().names == [*COLUMNS, "dt"]
    assert [field.name for field in made.schema().fields if not field.nullable] == ["order_id", "ordered_at", "dt"]
    assert made.metadata().configuration.items() >= {n: v for n, v in PROPERTIES.items() if not n.startswith("delta.min")}.items()
    assert made.metadata().configuration["delta.dataSkippingStatsColumns"] == "`ordered_at`,`order_id`"
    assert (made.protocol().min_reader_version, made.protocol().min_writer_version) == (1, 2)


def test_a_table_below_an_odd_root_can_be_written(spark, tmp_path):
    """Spaces, brackets and non-Latin letters in the root are only letters, for the log's files too."""
    table = DeltaTable(spark, SPEC, f"{tmp_path}/wörld [1] {{x}}/orders")
    table.create()
    named = [SPEC.grid.partition(DAY)]
    held = table.hold(staged(spark, SPEC, {DAY: orders(DAY)}))

    commit = table.overwrite(held, named, receipt_for(table, named))

    assert (commit.version, commit.rows, commit.written is not None) == (1, {DAY: 3}, True)
    assert commit.size_bytes[DAY] > 0
    assert content(table.path) == multiset(orders(DAY))


def test_odd_column_names_survive(spark, tmp_path):
    """Dots, quotes and backticks in a column's name are part of the name, from creation to the commit."""
    spec = orders_spec(
        columns={"a.b": "int", "it's": "string", "back`tick": "timestamp"}, key_columns=["a.b", "it's"], event_time="back`tick"
    )
    table = DeltaTable(spark, spec, f"{tmp_path}/odd")
    table.create()
    rows = [{"a.b": 1, "it's": "x", "back`tick": datetime(2024, 1, 1, 5, tzinfo=UTC)}]
    named = [spec.grid.partition(DAY)]

    commit = table.overwrite(table.hold(staged(spark, spec, {DAY: rows})), named, receipt_for(table, named))

    assert commit.rows == {DAY: 1}
    assert content(table.path, spec.columns) == multiset(rows, spec.columns)


def test_another_schema_is_refused_in_words(spark, table):
    """A table with other columns than the spec's is not touched; each difference is named."""
    other = orders_spec(columns={**COLUMNS, "amount": "double", "country": "string"})

    with pytest.raises(SchemaMismatchError, match="`country` is missing; `amount` is `decimal\\(18,2\\)`, not `double`") as caught:
        DeltaTable(spark, other, table.path).create()
    fewer = orders_spec(columns={name: kind for name, kind in COLUMNS.items() if name != "customer"})
    assert DeltaTable(spark, fewer, table.path).schema_problems() == ["`customer` is not in the spec"]

    assert "Nothing was written." in str(caught.value)
    assert opened(table.path).version() == 0


def test_a_table_that_is_partitioned_otherwise_is_refused(spark, tmp_path):
    """The same columns without the partitions are another table: an overwrite would rewrite its files row by row."""
    path = f"{tmp_path}/flat"
    frame_of(spark, SPEC, orders(DAY)).write.format("delta").save(path)

    with pytest.raises(SchemaMismatchError, match=r"it is partitioned by \[\], not by `dt`"):
        DeltaTable(spark, SPEC, path).create()


# -- rows are held -----------------------------------------------------------------------------------------------------


def test_of_rows_with_the_same_key_the_latest_wins(spark, tmp_path):
    """The largest value wins, NULL loses, and rows that were replaced are counted by partition; other days are not looked at."""
    spec = orders_spec(latest_wins_by=["amount"])
    one, two, three = orders(DAY, 3)
    rows = {
        DAY: [
            {**one, "amount": Decimal(1)}, {**one, "amount": Decimal(3), "customer": "wins"}, {**one, "amount": None}, {**one, "amount": Decimal(2)},
            {**two, "amount": None, "customer": "only one"}, three,
        ],
        NEXT: [{**one, "ordered_at": one["ordered_at"] + timedelta(days=1)}],
    }  # fmt: skip

    held = DeltaTable(spark, spec, str(tmp_path)).hold(staged(spark, spec, rows))

    assert held.superseded_rows == {DAY: 3}
    assert {key: tally.rows for key, tally in held.tallies.items()} == {DAY: 3, NEXT: 1}
    assert held.tallies[DAY].duplicate_keys == 0
    kept = {(row["order_id"], str(row["dt"])): row["customer"] for row in held.rows.collect()}
    assert kept == {
        (one["order_id"], DAY): "wins", (two["order_id"], DAY): "only one", (three["order_id"], DAY): three["customer"],
        (one["order_id"], NEXT): one["customer"],
    }  # fmt: skip
    held.release()


def test_a_tie_is_always_resolved_alike(spark, tmp_path):
    """Of two rows that are equally late the same one wins, whatever their order and however they are spread."""
    spec = orders_spec(latest_wins_by=["amount"])
    table = DeltaTable(spark, spec, str(tmp_path))
    tied = [{**row, "customer": name} for row in orders(DAY, 4, amount=Decimal(1)) for name in ("b", "a", "c", "")]

    forward, backward = table.hold(staged(spark, spec, {DAY: tied})), table.hold(staged(spark, spec, {DAY: tied[::-1]}, scattered=True))

    assert forward.tallies == backward.tallies
    assert forward.superseded_rows == backward.superseded_rows == {DAY: 12}
    forward.release()
    backward.release()


def test_a_stray_row_wins_over_nobody(spark, tmp_path):
    """A newer row under the wrong day fails that day, and does not replace the older one where it belongs."""
    spec = orders_spec(latest_wins_by=["amount"])
    rows = {DAY: [*orders(DAY, 2), orders(DAY, 1)[0]], NEXT: [*orders(NEXT, 1), orders(DAY, 1, amount=Decimal(99))[0]]}

    held = DeltaTable(spark, spec, str(tmp_path)).hold(staged(spark, spec, rows))

    assert held.tallies[NEXT].stray_rows == 1
    assert (held.tallies[DAY].rows, held.superseded_rows) == (2, {DAY: 1})
    held.release()


def test_null_keys_and_repeated_keys_are_counted(spark, tmp_path):
    """Without a rule which one wins, rows that repeat a key are counted and kept; NULL keys are counted too."""
    one, two = orders(DAY, 2)
    held = DeltaTable(spark, SPEC, str(tmp_path)).hold(
        staged(
            spark,
            SPEC,
            {
                DAY: [
                    one,
                    two,
                    one,
                    {**two, "order_id": None},
                    {**two, "order_id": None, "ordered_at": None},
                    {**two, "order_id": None, "ordered_at": None},
                ]
            },
        )
    )

    tally = held.tallies[DAY]
    assert (tally.rows, tally.duplicate_keys, tally.null_keys) == (6, 1, 3)
    assert tally.nulls == {"order_id": 3, "ordered_at": 2}
    held.release()


def test_held_rows_are_let_go(spark, tmp_path):
    """After `release` Spark keeps nothing of a chunk, resolved or not, nor after a read that failed."""
    spec = orders_spec(latest_wins_by=["amount"])
    table = DeltaTable(spark, spec, str(tmp_path))
    before = cached(spark)

    for rows in (orders(DAY), [*orders(DAY), *orders(DAY)]):
        held = table.hold(staged(spark, spec, {DAY: rows}))
        assert cached(spark) == before + 1
        held.release()
    broken = staged(spark, spec, {DAY: orders(DAY)})
    broken = Staged(broken.rows.withColumn("customer", F.raise_error(F.lit("cannot be read"))), {}, {}, broken.homes)
    with pytest.raises(Exception, match="cannot be read"):
        table.hold(broken)

    deadline = time.monotonic() + 10
    while cached(spark) > before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert cached(spark) == before


def test_a_day_of_many_source_files_becomes_at_most_two_files(spark, table):
    """However many files a day comes in, the table has at most two for it."""
    rows = {DAY: orders(DAY, 40), NEXT: orders(NEXT, 40)}
    frame = staged(spark, SPEC, rows).rows.repartition(10)
    held = table.hold(Staged(frame, {}, {}, dict(enumerate(rows)), scattered=True))
    named = [SPEC.grid.partition(key) for key in rows]

    table.overwrite(held, named, receipt_for(table, named))

    assert {day: len(files) <= 2 for day, files in files_by_partition(table.path).items()} == {DAY: True, NEXT: True}
    assert content(table.path) == multiset([*rows[DAY], *rows[NEXT]])
    held.release()


def test_rows_of_a_refused_day_stay_out(spark, table):
    """Of a held chunk only the given partitions are written: neither a refused day's rows nor its strays in them."""
    rows = {DAY: orders(DAY), NEXT: [*orders(NEXT), *orders(DAY, 1, order_id=7, customer="stray")]}
    held = table.hold(staged(spark, SPEC, rows))
    named = [SPEC.grid.partition(DAY)]

    commit = table.overwrite(held, named, receipt_for(table, named))

    assert content(table.path) == multiset(rows[DAY])
    assert commit.rows == {DAY: 3}
    assert table.differences(held, named, version=commit.version) == {}
    held.release()


def test_a_frame_with_strays_is_refused_in_our_words(spark, table):
    """Should the audit be passed by, the write itself refuses rows outside the partitions, and says so."""
    held = table.hold(staged(spark, SPEC, orders(DAY) + orders(NEXT)))
    loose = Held(held.rows, {DAY: held.tallies[DAY]}, {}, None, held.release)
    named = [SPEC.grid.partition(DAY)]

    with pytest.raises(UnsafeWriteError, match="a row lies outside the partitions that were to be replaced"):
        table.overwrite(loose, named, receipt_for(table, named))

    assert opened(table.path).version() == 0
    held.release()


# -- rows are named ----------------------------------------------------------------------------------------------------


def verdict(key: str, *rules: AuditRule) -> Verdict:
    return Verdict(SPEC.grid.partition(key), tuple(Finding(rule, 1, "wrong") for rule in rules))


def test_rows_that_break_a_rule_are_named(spark, tmp_path, monkeypatch):
    """By key and instant, with the day they belong to; the instant is UTC whatever the zone of the machine."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    one, two = orders(NEXT, 2)
    stray = orders(DAY, 1)[0]
    rows = {NEXT: [one, two, two, stray, {**one, "order_id": None, "customer": "nobody"}], DAY: orders(DAY)}
    table = DeltaTable(spark, SPEC, str(tmp_path))
    held = table.hold(staged(spark, SPEC, rows))

    found = table.examples(
        held, [verdict(NEXT, AuditRule.ROWS_INSIDE_PARTITION, AuditRule.REQUIRED_COLUMNS_ARE_FILLED, AuditRule.KEYS_ARE_UNIQUE)]
    )

    assert found == {
        NEXT: {
            AuditRule.ROWS_INSIDE_PARTITION: [f"order_id={stray['order_id']} at 2024-01-01 00:00:00Z (belongs to {DAY})"],
            AuditRule.REQUIRED_COLUMNS_ARE_FILLED: ["order_id=None at 2024-01-02 00:00:00Z"],
            AuditRule.KEYS_ARE_UNIQUE: [f"order_id={two['order_id']} at 2024-01-02 01:00:00Z"] * 2,
        }
    }
    held.release()
    monkeypatch.undo()
    time.tzset()


def test_a_failed_day_without_files_has_no_examples(spark, tmp_path):
    """A day that fails because nothing is there names no rows, and disturbs no other."""
    table = DeltaTable(spark, SPEC, str(tmp_path))
    held = table.hold(staged(spark, SPEC, {DAY: orders(DAY)}))

    assert table.examples(held, [verdict(NEXT, AuditRule.SOURCE_IS_PRESENT)]) == {}
    held.release()


def test_differences_name_the_rows_that_only_one_side_has(spark, table):
    """Counts and rows of both sides, of the differing partition alone; a row that is there twice counts."""
    rows = {DAY: orders(DAY, 3), NEXT: orders(NEXT, 2)}
    named = [SPEC.grid.partition(key) for key in rows]
    wrote = table.hold(staged(spark, SPEC, {DAY: [*rows[DAY][:2], rows[DAY][0]], NEXT: rows[NEXT]}))
    version = table.overwrite(wrote, named, receipt_for(table, named)).version
    held = table.hold(staged(spark, SPEC, rows))

    found = table.differences(held, named, version=version)

    assert list(found) == [DAY]
    assert (found[DAY].only_in_source, found[DAY].only_in_table) == (1, 1)
    in_source = f"order_id={rows[DAY][2]['order_id']}, customer=customer 2, amount=2.25, ordered_at=2024-01-01 02:00:00Z"
    in_table = f"order_id={rows[DAY][0]['order_id']}, customer=customer 0, amount=0.25, ordered_at=2024-01-01 00:00:00Z"
    assert found[DAY].examples == (f"only in the source: {in_source}", f"only in the table: {in_table}")
    wrote.release()
    held.release()


# -- receipts ----------------------------------------------------------------------------------------------------------


def publish(table: DeltaTable, receipt_id: str, *keys: str) -> Receipt:
    """An overwrite with no rows: receipts are what matters here."""
    named = [table.spec.grid.partition(key) for key in keys]
    held = Held(frame_of(table.spark, table.spec, []), {}, {}, None, lambda: None)
    partitions = {p.key: PartitionReceipt(1, "00ff", 1, 1_704_067_200_000_000 + 1, f"of {p.key}", 2) for p in named}
    receipt = receipt_for(table, named, receipt_id, partitions=partitions, reason="ein Grund: ü", source={"kind": "files", "files": 3})
    table.overwrite(held, named, receipt)
    return receipt


def test_a_table_that_is_made_again_does_not_believe_old_receipts(table):
    """The copy of a table that was deleted outlives it; nothing in it counts as published in the new one."""
    publish(table, "first", DAY)
    publish(table, "second", DAY, NEXT)
    table.receipts.fill()
    shutil.rmtree(table.path)
    table.create()
    assert table.published() == {}
    third = publish(table, "third", NEXT)
    assert table.receipts.fill() == 1
    assert table.receipts.all() == {1: third}


def test_receipts_are_copied_caught_up_and_made_again(spark, table):
    """The copy lags, is caught up, can be deleted and is filled again; `published` does not depend on it; delta-rs reads it."""
    first = publish(table, "first", DAY, NEXT)
    assert table.receipts.fill() == 1
    assert table.receipts.fill() == 0
    second = publish(table, "second", NEXT)

    published = table.published()  # the copy lags here
    assert {key: (p.version, p.receipt.receipt_id) for key, p in published.items()} == {DAY: (1, "first"), NEXT: (2, "second")}
    assert table.receipts.all() == {1: first, 2: second} == table.receipts.in_log()
    assert table.receipts.fill() == 1
    assert table.receipts.all() == {1: first, 2: second}

    copied = [
        (row["version"], row["partition"], row["receipt_id"], row["superseded_rows"], row["reason"]) for row in rows_in(table.receipts.path)
    ]
    assert sorted(copied) == [
        (1, DAY, "first", 2, "ein Grund: ü"),
        (1, NEXT, "first", 2, "ein Grund: ü"),
        (2, NEXT, "second", 2, "ein Grund: ü"),
    ]
    assert {row["last_event_time"] for row in rows_in(table.receipts.path)} == {datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)}
    assert opened(table.receipts.path).protocol().min_reader_version == 1

    shutil.rmtree(table.receipts.path)
    assert table.published() == published
    assert table.receipts.fill() == 2
    assert sorted({row["receipt_id"] for row in rows_in(table.receipts.path)}) == ["first", "second"]
    assert table.published() == published


def test_what_was_written_between_two_versions_is_known(spark, table):
    """Only the versions strictly between, and of those only the ones that wrote a named partition; emptying is writing."""
    publish(table, "nothing to remove", DAY)
    frame_of(spark, SPEC, orders(DAY, 1)).write.format("delta").mode("append").save(table.path)
    spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('somebody' = 'else')")
    publish(table, "empties", DAY)
    day, following = [SPEC.grid.partition(DAY)], [SPEC.grid.partition(NEXT)]

    assert table.touched_between(0, 5, day) == [2, 4]
    assert table.touched_between(2, 4, day) == []
    assert table.touched_between(0, 5, following) == []
    assert table.rows_now(day) == {}


def test_evidence_is_not_needed_to_hold(spark, tmp_path):
    """Rows of a source without files are counted where their event time lies."""
    held = DeltaTable(spark, SPEC, str(tmp_path)).hold(
        Staged(frame_of(spark, SPEC, orders(DAY) + orders(NEXT), partitioned=False), {}, {DAY: Evidence(3)})
    )

    assert {key: (tally.rows, tally.stray_rows) for key, tally in held.tallies.items()} == {DAY: (3, 0), NEXT: (3, 0)}
    held.release()
