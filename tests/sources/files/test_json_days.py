"""JSON with every kind of bad day in one launch: each is named, and spoils no other."""

from __future__ import annotations

import gzip
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from backfill_assets.core.history.outcomes import Outcome
from backfill_assets.errors import SchemaMismatchError
from backfill_assets.lake.table import LakeTable
from tests.sources.files.landing import days, files_spec, source_of
from tests.support.shop import (
    COLUMNS,
    Row,
    content,
    folder_of,
    json_line,
    launch,
    multiset,
    orders,
    published_keys,
    refusals,
    rows_in,
    write_json,
)

JSON_COLUMNS = {**COLUMNS, "rate": "decimal(38,10)", "day": "date", "flag": "boolean"}


def full(on: int, count: int = 3, **same: Any) -> list[Row]:
    return [
        {
            **row,
            "rate": Decimal("1234567890123456789012345678.0123456789"),
            "day": "2024-01-01",
            "flag": True,
            **same,
        }
        for row in orders(f"2024-01-{on:02}", count)
    ]


def write_days(root: Path) -> None:
    """Nine days, most of them bad, each in its own way."""

    def write(day: int, *lines: Row | str, name: str = "orders.json") -> None:
        write_json(folder_of(root, f"2024-01-{day:02}"), [*full(day), *lines], name)

    def line(on: int, **values: Any) -> str:
        return json_line({**full(on, 1, order_id=99)[0], **values})

    write(1, "", "   ", "\t", full(1, 1, order_id=8)[0])
    write(2, line(2)[:-10])
    write(5, f"[{line(5)}, {line(5, order_id=98)}]")
    write(6, line(6) + line(6, order_id=98))
    write(9, "null", '"text"', "5", "[]")
    write(
        10,
        *(json_line({n: v for n, v in row.items() if n != "customer"}) for row in full(10, 2, order_id=5)),
        name="orders.json",
    )
    write_json(
        folder_of(root, "2024-01-10"),
        [{n: v for n, v in row.items() if n != "customer"} for row in full(10, 2, order_id=6)],
        "without.json",
    )
    folder_of(root, "2024-01-14").mkdir()
    packed = gzip.compress(
        "".join(json_line({**row, "customer": os.urandom(20).hex()}) + "\n" for row in full(14, 400)).encode()
    )
    (folder_of(root, "2024-01-14") / "orders.json.gz").write_bytes(packed[: len(packed) // 2])
    write(
        15,
        json_line(
            {
                **full(15, 1, order_id=7)[0],
                "amount": Decimal("1.500"),
                "customer": '"}{"',
                "unknown": [{"a": 1}, {"b": 2}],
            }
        ),
    )
    (folder_of(root, "2024-01-16")).mkdir()
    (folder_of(root, "2024-01-16") / "orders.json.gz").write_bytes(
        gzip.compress("".join(json_line(row) + "\n" for row in full(16)).encode())
    )


@pytest.fixture(scope="module")
def json_days(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LakeTable, list[Outcome]]:
    """One launch over days of JSON, most of them bad, each in its own way."""
    root = tmp_path_factory.mktemp("json days")
    write_days(root)
    spec = files_spec(columns=JSON_COLUMNS, source={"format": "json", "path": str(root)})
    table = LakeTable(spark, spec, f"{tmp_path_factory.mktemp('tables')}/orders")
    table.create()
    named = [day for day in days(spec, "2024-01-01", "2024-01-16") if folder_of(root, day.key).exists()]
    return root, table, launch(table, source_of(spark, spec, root), named)


def test_good_json_days_are_published_beside_bad_ones(json_days):
    """Blank lines are no rows, braces in a text are text, zeros behind a decimal are no digits, and packed files are read."""
    _, table, outcomes = json_days

    assert published_keys(outcomes) == ["2024-01-01", "2024-01-15", "2024-01-16"]
    odd = {**orders("2024-01-15", 1, order_id=7)[0], "amount": Decimal("1.50"), "customer": '"}{"'}
    expected = [
        *orders("2024-01-01"),
        *orders("2024-01-01", 1, order_id=8),
        *orders("2024-01-15"),
        odd,
        *orders("2024-01-16"),
    ]
    assert content(table.path) == multiset(expected)
    assert {row["rate"] for row in rows_in(table.path)} == {Decimal("1234567890123456789012345678.0123456789")}


@pytest.mark.parametrize(
    ("day", "words"),
    [
        (2, ["1 line cannot be read", "orders.json line 4: not one JSON object: {"]),
        (5, ["1 line cannot be read", "orders.json line 4: not one JSON object: [{", "`jq -c` writes one on each line)"]),
        (6, ["1 line cannot be read", "orders.json line 4: not one JSON object: {"]),
        (9, ["orders.json line 4: not one JSON object: null", "orders.json line 5: not one JSON object: \"text\""]),
        (10, ["schema_matches", "{root}/2024/01/10/without.json` has no column `customer`; `optional: true`"]),
        (14, ["files_are_readable", "{root}/2024/01/14/orders.json.gz` cannot be read to its end ("]),
    ],
    ids=["cut off", "array", "two objects", "no objects", "column lacking", "packed and cut off"],
)  # fmt: skip
def test_a_bad_json_day_is_named(json_days, day, words):
    """What is wrong with a line is said with its path, its number and the value."""
    root, _, outcomes = json_days

    said = refusals(outcomes)[f"2024-01-{day:02}"]

    for part in words:
        assert part.replace("{root}", str(root)) in said, said
    if day not in (10, 14):
        assert f"file:{root}/2024/01/{day:02}/orders.json line 4" in said


def test_a_source_without_lines_says_what_makes_lines_of_it(spark, tmp_path):
    """Where no file has an object on a line, columns are not what is wrong: the first line is named, and what to do."""
    folder_of(tmp_path, "2024-01-01").mkdir(parents=True)
    (folder_of(tmp_path, "2024-01-01") / "orders.json").write_text('[{"order_id": 1},\n {"order_id": 2}]\n')
    spec = files_spec(source={"format": "json"})
    with pytest.raises(
        SchemaMismatchError, match="its first line is not one JSON object: .*`jq -c` writes one on each"
    ):
        source_of(spark, spec, tmp_path).check_schema(days(spec, "2024-01-01"))
