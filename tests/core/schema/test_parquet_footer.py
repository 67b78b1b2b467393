"""Footers of Parquet files, written by pyarrow and read without it."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.schema.parquet_footer import _kind, read_footer
from backfill_assets.core.schema.types import common_type, plain_type

KINDS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.large_string(),
    "binary": pa.binary(7),
    "uuid": pa.uuid(),
    "date": pa.date64(),
    "time": pa.time32("ms"),
    "timestamp": pa.timestamp("ms", "Asia/Kolkata"),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp(9)": pa.timestamp("ns", "UTC"),
    "timestamp_ntz(9)": pa.timestamp("ns"),
    "decimal(45,2)": pa.decimal256(45, 2),
    "decimal(7,2)": pa.decimal128(7, 2),
    "void": pa.null(),
    "array": pa.list_(pa.struct([pa.field("a", pa.list_(pa.int8()))])),
    "struct": pa.struct([pa.field("x", pa.int8()), pa.field("y", pa.struct([pa.field("z", pa.string())]))]),
    "map": pa.map_(pa.string(), pa.map_(pa.string(), pa.int8())),
}


def footer_of(schema: pa.Schema, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink, **options)
    data = sink.getvalue().to_pybytes()
    return data[-8 - struct.unpack("<I", data[-8:-4])[0] : -8]


WHOLE = footer_of(pa.schema(list(KINDS.items())), store_decimal_as_integer=True)


def test_each_type_has_its_name():
    """Columns come in order, with the type that the file says, those behind nested ones too."""
    found = read_footer(WHOLE)
    assert found is not None
    assert [(column.name, column.kind) for column in found.columns] == [(kind, kind) for kind in KINDS]
    assert (found.rows, found.promised) == (0, 0)


@pytest.mark.parametrize("version", ["1.0", "2.4", "2.6"])
def test_footers_of_older_formats(version):
    """Older versions of the format say less of a type, and it is understood all the same."""
    kinds = ["string", "bigint", "date", "timestamp", "decimal(7,2)", "uint32" if version != "1.0" else "int"]
    found = read_footer(footer_of(pa.schema([(k, KINDS[k]) for k in kinds]), version=version))
    assert found is not None
    assert [column.kind for column in found.columns] == kinds


def test_a_decimal_that_only_newer_readers_know():
    """Precision and scale stand in the newer annotation too, and not every writer repeats them in the older one."""
    assert _kind({1: 7, 10: {5: {1: 2, 2: 18}}}) == "decimal(18,2)"
    assert _kind({1: 7, 10: {5: {2: 9}}}) == "decimal(9,0)"
    assert _kind({1: 7, 6: 5, 7: 4, 8: 12}) == "decimal(12,4)"


def test_names_that_differ_in_capitals_are_two_columns():
    """Names are as they stand in the file."""
    found = read_footer(footer_of(pa.schema([("a", pa.int8()), ("A", pa.int8()), ("ü.b c", pa.int8())])))
    assert found is not None
    assert [column.name for column in found.columns] == ["a", "A", "ü.b c"]


@given(st.one_of(st.binary(max_size=200), st.integers(0, len(WHOLE)).map(lambda end: WHOLE[:end])))
def test_what_is_not_a_footer_has_no_columns(data):
    """Bytes of anything else, and a footer that ends among its columns, are no footer; a longer end is not missed."""
    found = read_footer(data)
    assert found is None or not found.columns or [column.kind for column in found.columns] == list(KINDS)


def test_a_column_without_a_type_is_like_any_other():
    """A column that never had a value has the type of the same column elsewhere; nanoseconds are those of a timestamp."""
    assert common_type("void", "decimal(18,2)") == common_type("decimal(18,2)", "void") == "decimal(18,2)"
    assert common_type("timestamp(9)", "timestamp") == "timestamp"
    assert plain_type("uint32") == "bigint"


def test_columns_of_int96_are_told_unless_spark_wrote_them():
    """They may have nanoseconds, which nothing says; Spark has none, and its note alone may have been copied."""
    plain, int96 = pa.schema({"at": pa.timestamp("us")}), {"use_deprecated_int96_timestamps": True}
    note = plain.with_metadata({"org.apache.spark.version": "3.5.0"})
    of_spark = footer_of(note, **int96).replace(b"parquet-cpp-arrow", b"parquet-mr-arrow-")
    found = [footer_of(plain), footer_of(plain, **int96), footer_of(note, **int96), of_spark]
    assert [footer and footer.int96 for footer in map(read_footer, found)] == [set(), {"at"}, {"at"}, set()]
