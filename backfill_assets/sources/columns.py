"""The columns of files, held against a spec's."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from backfill_assets.core.partitions import quoted
from backfill_assets.core.spec import TableSpec

SPARK_FAILURES = (PySparkException, Py4JJavaError)


def ddl(spec: TableSpec, without_zone: frozenset[str] = frozenset()) -> str:
    """Return the spec's columns as a schema in DDL."""
    return ", ".join(f"{quoted(name)} {'timestamp_ntz' if name in without_zone else column.type}" for name, column in spec.columns.items())


def missing_columns(spec: TableSpec, have: set[str]) -> list[str]:
    """Say which columns files lack that may not lack them."""
    return [f"`{name}` is missing" for name, column in spec.columns.items() if name not in have and not column.optional]


def type_problems(spec: TableSpec, schema: StructType, zone: str | None) -> list[str]:
    """Say which columns of files cannot be read as the spec's types without losing anything."""
    have = {f.name: f.dataType.simpleString() for f in schema.fields if f.name in spec.columns}
    problems = [
        f"`{name}` is `{kind}`, not `{spec.columns[name].type}`"
        for name, kind in have.items()
        if not reads_as(kind, spec.columns[name].type)
    ]
    if zone is None:
        problems += [
            f"`{name}` has timestamps without a zone, and `source.timestamps_without_zone` does not say which"
            for name, kind in have.items()
            if kind == "timestamp_ntz" and spec.columns[name].type == "timestamp"
        ]
    return problems


def reads_as(found: str, wanted: str) -> bool:
    """Say whether Spark reads a Parquet column of one type as another without losing anything."""
    if found == wanted or (found, wanted) == ("timestamp_ntz", "timestamp"):
        return True
    wider = {"tinyint": 1, "smallint": 2, "int": 3, "bigint": 4}
    if found in wider and wanted in wider:
        return wider[found] < wider[wanted]
    if (found, wanted) == ("float", "double") or (found in ("tinyint", "smallint", "int") and wanted == "double"):
        return True
    decimals = [re.fullmatch(r"decimal\((\d+),(\d+)\)", kind) for kind in (found, wanted)]
    if decimals[0] and decimals[1]:
        (p, s), (wanted_p, wanted_s) = (tuple(map(int, d.groups())) for d in decimals if d)
        return wanted_s >= s and wanted_p - wanted_s >= p - s
    return False


def first_words(error: Exception) -> str:
    """Return the innermost reason of a Spark failure, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    words = (causes or lines)[-1 if causes else 0]
    return re.sub(r"\s+", " ", words)[:200]
