"""Launches over Parquet files whose numbers have another type than their column, on whatever session there is.

    python -m tests.sources.files.numbers_by_value FOLDER

prints why days were refused as JSON; `SPARK_REMOTE` chooses a Connect session.
"""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from backfill_assets.lake.table import LakeTable
from backfill_assets.runs.resources import Lakehouse
from tests.sources.files.landing import days, files_spec, source_of
from tests.support.shop import folder_of, launch, refusals

FIRST = date(2024, 1, 1)
FLAT_GOOD, FLAT_BAD = "flat", "flat_bad"
"""Tables whose files may hold any partition."""


@dataclass(frozen=True)
class Case:
    """A day with one file.

    Args:
        kind: Type of the file's column.
        wanted: Type of the table's column.
        said: In the refusal; None if `values` are read.
    """

    kind: pa.DataType
    wanted: str
    values: tuple[Any, ...]
    said: str | None = None

    @property
    def column(self) -> str:
        return "v_" + re.sub(r"\W+", "_", self.wanted).strip("_")

    def __str__(self) -> str:
        return f"{self.kind} {self.values} as {self.wanted}"


D, F, L, U = pa.float64(), pa.float32(), pa.int64(), pa.uint64()
CASES = [
    Case(D, "bigint", (1.0, -2.0, 2.0**53, -(2.0**53), -0.0, None)),
    Case(D, "bigint", (1.0, 2.0**53 + 2), "`v_bigint` is no exact bigint: 9.007199254740994E15"),
    Case(D, "bigint", (2.0**63,), "`v_bigint` is no exact bigint: 9.22337203685477"),
    Case(D, "bigint", (1.0, 1.5), "`v_bigint` is no exact bigint: 1.5"),
    Case(D, "bigint", (math.nan,), "`v_bigint` is no exact bigint: NaN"),
    Case(D, "bigint", (math.inf,), "`v_bigint` is no exact bigint: Infinity"),
    Case(D, "bigint", (-math.inf,), "`v_bigint` is no exact bigint: -Infinity"),
    Case(D, "int", (2.0**31 - 1, -(2.0**31))),
    Case(D, "int", (2.0**31,), "`v_int` is no exact int: 2.147483648E9"),
    Case(D, "smallint", (-32768.0,)),
    Case(F, "bigint", (2.0**24, -3.0, None)),
    Case(F, "bigint", (2.0**24 + 2,), "`v_bigint` is no exact bigint: 1.6777218E7"),
    Case(L, "double", (2**53, -(2**53), 0, None)),
    Case(L, "double", (2**53 + 1,), "`v_double` is no exact double: 9007199254740993"),
    Case(L, "double", (-(2**63),), "`v_double` is no exact double: -9223372036854775808"),
    Case(L, "float", (2**24, None)),
    Case(pa.int32(), "float", (2**24 + 1,), "`v_float` is no exact float: 16777217"),
    Case(U, "bigint", (0, 2**63 - 1, None)),
    Case(U, "bigint", (2**63,), "`v_bigint` is no bigint: 9223372036854775808"),
    Case(U, "double", (2**53,)),
    Case(U, "double", (2**64 - 1,), "`v_double` is no exact double: 18446744073709551615"),
    Case(U, "decimal(38,10)", (2**64 - 1,)),
    Case(pa.uint8(), "tinyint", (127,)),
    Case(pa.uint8(), "tinyint", (128,), "`v_tinyint` is no tinyint: 128"),
    Case(pa.uint8(), "double", (255,)),
    Case(pa.uint16(), "decimal(18,2)", (65535,)),
    Case(L, "smallint", (-32768, None)),
    Case(L, "smallint", (32768,), "`v_smallint` is no smallint: 32768"),
    Case(L, "decimal(18,2)", (10**15, None)),
    Case(L, "decimal(18,2)", (10**16,), "`v_decimal_18_2` is no decimal(18,2): 10000000000000000"),
    Case(pa.decimal128(30, 4), "decimal(18,2)", (Decimal("1.5000"), Decimal("-0.0100"))),
    Case(pa.decimal128(30, 4), "decimal(18,2)", (Decimal("1.2340"),), "`v_decimal_18_2` is no decimal(18,2): 1.2340"),
    Case(pa.decimal128(6, 1), "int", (Decimal("7.0"),)),
    Case(pa.decimal128(6, 1), "int", (Decimal("7.5"),), "`v_int` is no int: 7.5"),
    Case(pa.null(), "bigint", (None,)),
]


def day_of(case: Case) -> str:
    return str(FIRST + timedelta(days=CASES.index(case)))


def _write(file: Path, day: str, first_id: int, columns: dict[str, pa.Array]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = len(next(iter(columns.values())))
    ids = pa.array(range(first_id, first_id + rows), pa.int64())
    pq.write_table(pa.table({"id": ids, "day": [date.fromisoformat(day)] * rows, **columns}), file)


def outcomes(spark: SparkSession, folder: Path) -> dict[str, dict[str, str]]:
    """Launch all cases, and twice the files of two months of pandas; return the refusals of each by day."""
    for case in CASES:
        values = pa.array(case.values, case.kind)
        _write(folder_of(folder / "cases", day_of(case)) / "a.parquet", day_of(case), 0, {case.column: values})
    for name, last in ((FLAT_GOOD, None), (FLAT_BAD, 0.5)):
        for n, day in enumerate(("2024-01-01", "2024-01-02")):
            columns = {"v_bigint": pa.array([3, 4], L), "v_double": pa.array([3, 4], L)}
            _write(folder / name / f"{day}-whole.parquet", day, 10 * n, columns)
            columns = {"v_bigint": pa.array([5.0, None], D), "v_double": pa.array([5.5, None], D)}
            _write(folder / name / f"{day}-nulls.parquet", day, 10 * n + 5, columns)
        if last:
            _write(folder / name / "bad.parquet", "2024-01-02", 99, {"v_bigint": pa.array([last], D)})
    return {
        "cases": _launched(spark, folder, "cases", days_at_all=len(CASES)),
        **{name: _launched(spark, folder, name, days_at_all=2, layout="flat") for name in (FLAT_GOOD, FLAT_BAD)},
    }


def _launched(spark: SparkSession, folder: Path, name: str, *, days_at_all: int, **source: str) -> dict[str, str]:
    kinds = {case.column: {"type": case.wanted, "optional": True} for case in CASES}
    until = {"complete_until": str(FIRST + timedelta(days=days_at_all))} if source else {}
    spec = files_spec(
        columns={"id": "bigint not null", "day": "date not null", **kinds},
        key_columns=["id", "day"],
        event_time="day",
        source={**source, **until},
    )
    table = LakeTable(spark, spec, str(folder / "tables" / name))
    named = days(spec, str(FIRST), str(FIRST + timedelta(days=days_at_all - 1)))
    return refusals(launch(table, source_of(spark, spec, folder / name), named))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(outcomes(Lakehouse(root=sys.argv[1]).spark, Path(sys.argv[1]))) + "\n")
