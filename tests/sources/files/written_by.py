"""Parquet as tools write it: for every row of the table in `docs/sources.md`, and every tool that it names, a file."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tests.sources.files.tools import Place, Writes, duckdb_, each, pandas, polars, pyarrow, spark

INSTANTS = [datetime(2024, 3, 1, 12, 0, 0, 123456, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]
LOCAL = [instant.replace(tzinfo=None) for instant in INSTANTS]
SECONDS = [instant.replace(microsecond=0) for instant in INSTANTS]
DAYS = [date(2024, 2, 29), date(1960, 1, 1)]
MONEY = [Decimal("12.25"), Decimal("-0.01")]
WORDS = ["one", "zwei"]
NUMBERS = [1, -2]
TIMES = [time(12), time(23, 59, 59)]
SPANS = [timedelta(seconds=90), timedelta(days=1)]
IDS = [uuid.UUID(int=1), uuid.UUID(int=2**127)]


def _with_others(at: Place) -> None:
    """Types that no column has, in columns that nobody asks for."""
    odd = {
        "at": pa.array([1, 2], pa.timestamp("ns")),
        "half": pa.array(np.array([1, 2], np.float16)),
        "time": pa.array(TIMES, pa.time64("us")),
        "nothing": pa.nulls(2),
        "list": [[1], []],
        "struct": [{"a": {"b": 1}}] * 2,
        "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        "a.b": [1, 2],
        "two words": [1, 2],
        "LIST": [1, 2],
    }
    pyarrow(NUMBERS, more=odd)(at)


def _empty_beside(at: Place) -> None:
    pyarrow(NUMBERS)(at)
    whole = pq.read_table(at.file)
    pq.write_table(whole.slice(0, 0), at.folder / "nothing.parquet")
    with pq.ParquetWriter(at.file, whole.schema) as writer:
        for part in (whole.slice(0, 0), whole, whole.slice(0, 0)):
            writer.write_table(part)


def _other_order(at: Place) -> None:
    pq.write_table(pa.table({at.column: NUMBERS, "day": [at.day] * 2, "id": [1, 2]}), at.file)


def _named(*names: Callable[[str], str]) -> Writes:
    def write(at: Place) -> None:
        columns = {"ID": [1, 2], "Day": [at.day] * 2, **{name(at.column): NUMBERS for name in names}}
        pq.write_table(pa.table(columns), at.file)

    return write


def _packed(how: str) -> Writes:
    return pyarrow(NUMBERS, compression=how)


_NANOS, _MICROS, _MILLIS = (
    pa.array(INSTANTS, pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, "UTC"), safe=False)
    for unit in ("ns", "us", "ms")
)

CASES: dict[str, dict[str, Writes]] = {
    "timestamps in nanoseconds, with a zone": {
        "pandas before 3": pandas(pd.Series(INSTANTS, dtype="datetime64[ns, UTC]")),
        "polars": polars(INSTANTS, pl.Datetime("ns", "UTC")),
        "pyarrow": pyarrow(_NANOS),
    },
    "timestamps in nanoseconds, without a zone": {
        "pandas before 3": pandas(pd.Series(LOCAL, dtype="datetime64[ns]")),
        "polars": polars(LOCAL, pl.Datetime("ns")),
        "DuckDB": duckdb_(*each(LOCAL, "TIMESTAMP_NS")),
    },
    "timestamps in microseconds, with a zone": {
        "pandas 3": pandas(pd.Series(INSTANTS, dtype="datetime64[us, UTC]")),
        "polars": polars(INSTANTS, pl.Datetime("us", "UTC")),
        "DuckDB": duckdb_(*each(INSTANTS, "TIMESTAMPTZ")),
        "Spark": spark(*each(INSTANTS, "TIMESTAMP")),
    },
    "timestamps in microseconds, without a zone": {
        "pandas 3": pandas(pd.Series(LOCAL, dtype="datetime64[us]")),
        "polars": polars(LOCAL),
        "DuckDB": duckdb_(*each(LOCAL, "TIMESTAMP")),
        "Spark": spark(*each(LOCAL, "TIMESTAMP_NTZ")),
    },
    "timestamps in milliseconds or seconds": {
        "pyarrow": pyarrow(_MILLIS),
        "polars": polars(INSTANTS, pl.Datetime("ms", "UTC")),
        "DuckDB": duckdb_(*each(SECONDS, "TIMESTAMP_S")),
    },
    "timestamps as INT96": {
        "Spark 3": spark(*each(INSTANTS, "TIMESTAMP"), **{"spark.sql.parquet.outputTimestampType": "INT96"}),
        "pyarrow": pyarrow(_NANOS, use_deprecated_int96_timestamps=True),
    },
    "a dictionary of timestamps": {"pyarrow": pyarrow(_MICROS.dictionary_encode())},
    "days": {
        "pandas": pandas(DAYS),
        "polars": polars(DAYS),
        "DuckDB": duckdb_(*each(DAYS, "DATE")),
        "Spark": spark(*each(DAYS, "DATE")),
    },
    "days in milliseconds (`date64`)": {"pyarrow": pyarrow(DAYS, pa.date64())},
    "decimals stored as integers": {
        "Spark": spark(*each(MONEY, "DECIMAL(7,2)")),
        "DuckDB": duckdb_(*each(MONEY, "DECIMAL(18,2)")),
        "pyarrow": pyarrow(MONEY, pa.decimal128(15, 1 + 1), store_decimal_as_integer=True),
    },
    "decimals stored as bytes": {
        "pyarrow": pyarrow(MONEY, pa.decimal128(18, 2)),
        "pandas": pandas(MONEY),
        "polars": polars(MONEY, pl.Decimal(18, 2)),
    },
    "decimals of more than 38 digits": {"pyarrow": pyarrow(MONEY, pa.decimal256(45, 2))},
    "`HUGEINT`, which is stored as `double`": {"DuckDB": duckdb_(*each(NUMBERS, "HUGEINT"))},
    "text, of any of Arrow's kinds": {
        "pyarrow": pyarrow(WORDS, pa.string_view()),
        "polars": polars(WORDS),
        "pandas": pandas(WORDS),
    },
    "categories and enumerations": {
        "pandas": pandas(pd.Categorical(WORDS)),
        "polars": polars(WORDS, pl.Categorical),
        "DuckDB": duckdb_(*each(WORDS, "ENUM('one', 'zwei')")),
    },
    "JSON": {"DuckDB": duckdb_(*each(['{"a": 1}', "[]"], "JSON"))},
    "bytes, of any of Arrow's kinds and of a fixed length": {
        "pyarrow": pyarrow([b"abcd", b"\0\xff  "], pa.binary(4)),
        "polars": polars([b"a", b""]),
        "DuckDB": duckdb_(*each(WORDS, "BLOB")),
    },
    "bytes that may be text": {"DuckDB": duckdb_(*each(WORDS, "BLOB"))},
    "a column that never had a value, and so no type": {
        "pandas": pandas([None, None]),
        "polars": polars([None, None]),
        "pyarrow": pyarrow(pa.nulls(2)),
    },
    "the same, of amounts": {"pandas": pandas([None, None])},
    "the same, of instants": {"pandas": pandas([None, None])},
    **{
        f"unsigned integers of {bits} bits": {
            "polars": polars([1, largest], getattr(pl, f"UInt{bits}")),
            "pyarrow": pyarrow([1, largest], getattr(pa, f"uint{bits}")()),
        }
        for bits, largest in ((8, 2**8 - 1), (16, 2**16 - 1), (32, 2**32 - 1), (64, 2**64 - 1))
    },
    "unsigned integers of 64 bits, for a smaller column": {"polars": polars([1, 2], pl.UInt64)},
    "integers, for a larger column": {"polars": polars(NUMBERS, pl.Int32), "Spark": spark("1S", "-2S")},
    "integers, for a smaller column": {"pandas": pandas(NUMBERS), "DuckDB": duckdb_(*each(NUMBERS, "INTEGER"))},
    "integers, for amounts": {"pandas": pandas(NUMBERS)},
    "whole numbers as floating point, because some are missing": {
        "pandas": pandas([1, None]),
        "pyarrow": pyarrow([-2.0, None], pa.float32()),
    },
    "whole numbers, for floating point": {"pandas": pandas(NUMBERS), "polars": polars([1, 2**53], pl.UInt64)},
    "decimals, for a smaller column": {"DuckDB": duckdb_(*each(MONEY, "DECIMAL(30,4)"))},
    "truth": {"pandas": pandas([True, False]), "DuckDB": duckdb_("true", "false")},
    "numbers for truth": {"pandas": pandas([1, 0])},
    "floating point of 32 bits, for a larger column": {"pyarrow": pyarrow([1.5, -0.1], pa.float32())},
    "floating point of 16 bits": {"pyarrow": pyarrow(pa.array(np.array([1, 2], np.float16)))},
    "times of day": {
        "pandas": pandas(TIMES),
        "polars": polars(TIMES),
        "DuckDB": duckdb_(*each(TIMES, "TIME")),
    },
    "times of day, for a number": {"pyarrow": pyarrow(TIMES, pa.time64("us"))},
    "spans of time of Arrow": {"pyarrow": pyarrow(SPANS, pa.duration("us")), "polars": polars(SPANS)},
    "intervals": {"DuckDB": duckdb_("INTERVAL 1 DAY", "INTERVAL 1 MONTH")},
    "UUIDs": {"DuckDB": duckdb_(*each(IDS, "UUID")), "pyarrow": pyarrow([i.bytes for i in IDS], pa.uuid())},
    "UUIDs, for text": {"DuckDB": duckdb_(*each(IDS, "UUID"))},
    "lists": {"polars": polars([[1], []]), "Spark": spark("ARRAY(1)", "ARRAY(2)")},
    "structures": {"DuckDB": duckdb_("{'a': 1}", "{'a': 2}"), "polars": polars([{"a": 1}, {"a": 2}])},
    "maps": {"DuckDB": duckdb_("MAP {'a': 1}", "MAP {'b': 2}")},
    "columns of any type and name beside those of the spec": {"pyarrow": _with_others},
    "an index": {"pandas": pandas(NUMBERS, change=lambda frame: frame.iloc[::-1])},
    "columns in another order": {"pyarrow": _other_order},
    "names in capitals": {"pyarrow": _named(str.upper)},
    "two names that differ in capitals alone": {"pyarrow": _named(str.upper, str.title)},
    "files and row groups without rows": {"pyarrow": _empty_beside},
    "packed with snappy": {"pyarrow": _packed("snappy"), "pandas": pandas(NUMBERS)},
    "packed with gzip": {"pyarrow": _packed("gzip")},
    "packed with lz4": {"pyarrow": _packed("lz4"), "polars": polars(NUMBERS, compression="lz4")},
    "packed with zstd, or not at all": {"polars": polars(NUMBERS), "pyarrow": _packed("none")},
    "packed with brotli": {"pyarrow": _packed("brotli")},
    "data pages of version 2": {
        "pyarrow": pyarrow(
            NUMBERS, data_page_version="2.0", use_dictionary=False, column_encoding="DELTA_BINARY_PACKED"
        )
    },
    "values in split bytes (`BYTE_STREAM_SPLIT`)": {
        "pyarrow": pyarrow(NUMBERS, use_dictionary=False, use_byte_stream_split=["v_bigint"])
    },
}
"""What a file has in one column, in the words of the page, and how each tool writes it."""
