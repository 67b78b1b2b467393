"""Parquet with every kind of bad day in one launch: each is named, and spoils no other."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from backfill_assets.core.history.outcomes import Outcome, Published
from backfill_assets.lake.table import LakeTable
from tests.sources.files.landing import days, files_spec, source_of
from tests.support.shop import (
    COLUMNS,
    SCHEMA,
    Row,
    content,
    folder_of,
    launch,
    multiset,
    orders,
    published_keys,
    refusals,
    rows_in,
    write_parquet,
)

DICE = random.Random(4)
"""Bytes that happen to be a valid page are found by nobody: always the same ones."""


def corrupt(path: Path, at: float) -> None:
    """Overwrite bytes in the middle of a file; its length and footer stay."""
    data = bytearray(path.read_bytes())
    start = int(len(data) * at)
    data[start : start + 2000] = DICE.randbytes(2000)
    path.write_bytes(data)


MANY = [{**row, "customer": DICE.randbytes(30).hex()} for row in orders("2024-01-04", 5000)]
MANY = [{**row, "ordered_at": datetime(2024, 1, 4, tzinfo=UTC) + timedelta(seconds=i)} for i, row in enumerate(MANY)]
WIDER = {**COLUMNS, "quantity": "smallint", "note": {"type": "string", "optional": True}}
WIDE_SCHEMA = SCHEMA.append(pa.field("quantity", pa.int16()))
GOOD_PARQUET = ["2024-01-01", "2024-01-16", "2024-01-17"]


def write_days(root: Path) -> None:
    """Seventeen days, most of them bad, each in its own way."""

    def folder(day: int) -> Path:
        return folder_of(root, f"2024-01-{day:02}")

    def write(
        day: int,
        rows: list[Row] | None = None,
        name: str = "orders.parquet",
        schema: pa.Schema = WIDE_SCHEMA,
        **options: Any,
    ) -> Path:
        rows = orders(f"2024-01-{day:02}") if rows is None else rows
        return write_parquet(folder(day), [{"quantity": 1, **row} for row in rows], name, schema, **options)

    def typed(name: str, kind: pa.DataType) -> pa.Schema:
        return WIDE_SCHEMA.set(WIDE_SCHEMA.get_field_index(name), pa.field(name, kind))

    write(1)
    write(2, [*orders("2024-01-02"), *orders("2024-01-01", 1)])
    whole = write(3).read_bytes()
    (folder(3) / "orders.parquet").write_bytes(whole[: len(whole) - 20])
    corrupt(write(4, MANY, row_group_size=1000, compression="zstd"), at=0.6)
    folder(5).mkdir(parents=True)
    (folder(5) / "orders.parquet").write_text("this is no Parquet file, but somebody named it so")
    write(6)
    (folder(6) / "more.parquet").write_bytes(b"")
    write(8)
    write(
        8,
        orders("2024-01-08", 1, order_id=1),
        "without.parquet",
        WIDE_SCHEMA.remove(WIDE_SCHEMA.get_field_index("customer")),
    )
    write(
        9, [{**row, "amount": str(row["amount"])} for row in orders("2024-01-09")], schema=typed("amount", pa.string())
    )
    write(
        10,
        [{**row, "ordered_at": row["ordered_at"].replace(tzinfo=None)} for row in orders("2024-01-10")],
        schema=typed("ordered_at", pa.timestamp("us")),
    )
    write(11, [*orders("2024-01-11"), orders("2024-01-11")[0]])
    write(12, [*orders("2024-01-12"), *orders("2024-01-12", 2, ordered_at=None, order_id=5)])
    write(13, [{**row, "quantity": 70_000} for row in orders("2024-01-13")], schema=typed("quantity", pa.int32()))
    write(14, [*orders("2024-01-14"), *orders("2024-01-14", 1, order_id=None)])
    folder(15).mkdir(parents=True)
    write(
        16,
        [{**row, "note": "from the file", "extra": 1.5} for row in orders("2024-01-16")],
        schema=WIDE_SCHEMA.append(pa.field("note", pa.string())).append(pa.field("extra", pa.float64())),
    )
    write(17)


@pytest.fixture(scope="module")
def parquet_days(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, LakeTable, list[Outcome], list[str]]:
    """One launch over seventeen days, most of them bad, each in its own way."""
    root = tmp_path_factory.mktemp("parquet days")
    write_days(root)
    spec = files_spec(columns=WIDER, source={"path": str(root)})
    table = LakeTable(spark, spec, f"{tmp_path_factory.mktemp('tables')}/orders")
    table.create()
    frame = spark.createDataFrame(
        [
            (1, "old", Decimal(1), datetime(2024, 1, d, tzinfo=UTC), 1, None, datetime(2024, 1, d).date())
            for d in range(1, 16)
        ],
        table.schema(),
    )
    frame.write.format("delta").mode("append").save(table.path)
    said: list[str] = []
    outcomes = launch(table, source_of(spark, spec, root), days(spec, "2024-01-01", "2024-01-17"), log=said.append)
    return root, table, outcomes, said


def test_good_days_are_published_beside_bad_ones(parquet_days):
    """One launch publishes every day that is sound, in one commit; every other day keeps what it had."""
    _, table, outcomes, _ = parquet_days

    assert published_keys(outcomes) == GOOD_PARQUET
    (publish,) = [outcome for outcome in outcomes if isinstance(outcome, Published)]
    assert publish.commit.version == 2
    kept = [
        {"order_id": 1, "customer": "old", "amount": Decimal(1), "ordered_at": datetime(2024, 1, d, tzinfo=UTC)}
        for d in range(2, 16)
    ]
    assert content(table.path) == multiset([*kept, *(row for day in GOOD_PARQUET for row in orders(day))])


@pytest.mark.parametrize(
    ("day", "words"),
    [
        (2, ["rows_inside_partition: 1 row of 4 has an event time outside 2024-01-02", "(belongs to 2024-01-01)", "{root}/2024/01/02"]),
        (3, ["files_are_readable", "{root}/2024/01/03/orders.parquet` cannot be read at its footer"]),
        (4, ["files_are_readable", "{root}/2024/01/04/orders.parquet` cannot be read after row", " of 5,000 ("]),
        (5, ["files_are_readable", "{root}/2024/01/05/orders.parquet` cannot be read at its footer", "not a Parquet file"]),
        (6, ["files_are_readable", "{root}/2024/01/06/more.parquet` has 0 bytes"]),
        (7, ["source_is_present: there is no folder `{root}/2024/01/07`", "`gaps: allowed`"]),
        (8, ["schema_matches", "{root}/2024/01/08/without.parquet` has no column `customer`; `optional: true`"]),
        (9, ["schema_matches", "{root}/2024/01/09/orders.parquet`: `amount` is `string`, not `decimal(18,2)`"]),
        (10, ["schema_matches", "{root}/2024/01/10/orders.parquet`: `ordered_at` has timestamps without a zone", "`source.timestamps_without_zone`"]),
        (11, ["keys_are_unique: 1 row repeats a key (`order_id`)", "order_id={key}"]),
        (12, ["required_columns_are_filled: `ordered_at` is NULL in 2 rows", "order_id=5 at None"]),
        (13, ["values_fit_their_types", "{root}/2024/01/13/orders.parquet: `quantity` is no smallint: 70000"]),
        (14, ["required_columns_are_filled: `order_id` is NULL in 1 row", "order_id=NULL at 2024-01-14 00:00:00Z"]),
        (15, ["partition_is_not_emptied: the source has no rows, and the table has 1", "`empty: allowed`"]),
    ],
    ids=["wrong day", "truncated", "corrupt page", "garbage", "zero bytes", "no folder", "column lacking", "type", "no zone", "duplicate", "no event time", "narrower", "no key", "empty folder"],
)  # fmt: skip
def test_a_bad_parquet_day_is_named(parquet_days, day, words):
    """What is wrong with a day is said with its file or folder, the place in it and the rows."""
    root, _, outcomes, _ = parquet_days

    said = refusals(outcomes)[f"2024-01-{day:02}"]

    for part in words:
        assert part.format(root=root, key=orders("2024-01-11")[0]["order_id"]) in said, said


def test_nothing_else_is_said_of_a_bad_day(parquet_days):
    """Each bad day fails by one rule: what is wrong with it does not show up as something else as well."""
    _, _, outcomes, _ = parquet_days

    found = {o.verdict.partition.key: [f.rule for f in o.verdict.findings] for o in outcomes if hasattr(o, "verdict")}
    assert {key: rules for key, rules in found.items() if len(set(rules)) != 1} == {}


def test_an_optional_column_is_null_and_an_extra_one_left_out(parquet_days):
    """A column that files may lack is NULL where they do; one that the spec does not name is remarked on by check_schema."""
    _, table, _, _ = parquet_days

    notes = {str(row["dt"]): row["note"] for row in rows_in(table.path) if str(row["dt"]) in GOOD_PARQUET}
    assert notes == {"2024-01-01": None, "2024-01-16": "from the file", "2024-01-17": None}
