"""The footers of Parquet files: each column's name and type, its rows, and bytes that are no footer."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.sources.files.footers import Footer, read_footer

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


def file_of(schema: pa.Schema, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink, **options)
    return sink.getvalue().to_pybytes()


def read(data: bytes) -> Footer:
    found = read_footer(pa.BufferReader(data))
    assert found is not None
    return found


WHOLE = file_of(pa.schema(list(KINDS.items())), store_decimal_as_integer=True)


def test_each_type_has_its_name():
    """Columns come in order, with the type that the file says, those behind nested ones too."""
    found = read(WHOLE)
    assert [(column.name, column.kind) for column in found.columns] == [(kind, kind) for kind in KINDS]
    assert (found.rows, found.promised) == (0, 0)


@pytest.mark.parametrize("version", ["1.0", "2.4", "2.6"])
def test_footers_of_older_formats(version):
    """Older versions of the format say less of a type, and it is understood all the same."""
    kinds = ["string", "bigint", "date", "timestamp", "decimal(7,2)", "uint32" if version != "1.0" else "int"]
    found = read(file_of(pa.schema([(kind, KINDS[kind]) for kind in kinds]), version=version))
    assert [column.kind for column in found.columns] == kinds


def test_names_that_differ_in_capitals_are_two_columns():
    """Names are as they stand in the file, also beside a column with others inside of the same beginning."""
    inside = pa.struct([pa.field("b", pa.int8())])
    found = read(file_of(pa.schema([("a", inside), ("A", pa.int8()), ("a.b", pa.int8()), ("ü.b c", inside)])))
    kinds = [("a", "struct"), ("A", "tinyint"), ("a.b", "tinyint"), ("ü.b c", "struct")]
    assert [(column.name, column.kind) for column in found.columns] == kinds


@given(st.one_of(st.binary(max_size=200), st.integers(0, len(WHOLE) - 1).map(lambda end: WHOLE[:end])))
def test_what_is_not_a_footer_has_no_columns(data):
    """Bytes of anything else, alone or at a file's end, and a file without its end are no footer."""
    end = data + len(data).to_bytes(4, "little") + b"PAR1"
    assert read_footer(pa.BufferReader(data)) is None
    assert (found := read_footer(pa.BufferReader(b"PAR1" + end))) is None or not found.columns


def test_an_encrypted_footer_is_none():
    """Nobody gives its key here; the read says what Spark says."""
    assert read_footer(pa.BufferReader(WHOLE[:-4] + b"PARE")) is None


def test_columns_of_int96_are_told_unless_spark_wrote_them():
    """They may have nanoseconds, which nothing says; Spark has none, and its note alone may have been copied."""
    plain, int96 = pa.schema({"at": pa.timestamp("us")}), {"use_deprecated_int96_timestamps": True}
    note = plain.with_metadata({"org.apache.spark.sql.parquet.row.metadata": json.dumps({"fields": []})})
    of_spark = file_of(note, **int96).replace(b"parquet-cpp-arrow", b"parquet-mr-arrow-")
    found = [file_of(plain), file_of(plain, **int96), file_of(note, **int96), of_spark]
    assert [footer.int96 for footer in map(read, found)] == [set(), {"at"}, {"at"}, set()]
