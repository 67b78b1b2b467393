"""Values that are read as text first and converted after, so that one that does not fit its type is seen and named."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from backfill_assets.core.spec.columns import Column as SpecColumn
from backfill_assets.core.spec.encodings import NOTHING, as_decoded, upper_half
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import quoted
from backfill_assets.sources.files.declared_formats import DeclaredFormat
from backfill_assets.sources.files.exact_values import SPACE, ExactValues
from backfill_assets.sources.files.listing import SourceFile, paths_of

_PREVIEW = 80
"""Characters of a line or value that a message shows."""

_PACKED = {
    b"\x1f\x8b": "packed with gzip, but its name does not end in `.gz`: rename it",
    b"PK\x03\x04": "packed with zip, which Spark does not unpack: unpack it, or pack it with gzip",
}
"""What the first bytes of a file say of it."""

NO_UTF_8 = " (does the source need `encoding: windows-1252`?)"
AS_UTF_8 = " (is the file UTF-16? `iconv -f UTF-16 -t UTF-8` writes it in UTF-8)"
_OF_UTF_16 = r"[^\x00]\x00[^\x00]\x00"

_NOT_ISO = r"^(?![0-9]{4,}-).*[0-9]"
_NOT_WHOLE = r"^[+-]?(?=[0-9.]{2,39}\z)[0-9]*+\.[0-9]++\z"
_AT_MIDNIGHT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]00:00"
_MARK = r"[., '\u2019_\u00a0\u202f]"
_WITH_MARKS = rf"^[+-]?(?:[0-9]{{1,3}}(?:{_MARK}[0-9]{{3}})++(?:[.,][0-9]++)?|[0-9]++,[0-9]++)\z"
"""Days, and numbers, as people write them where no `format` says so."""

_SAID, _PLAIN = "_ba_said_", "_ba_plain_"
"""In front of a column's name: its text, and that text in the form that is read without a format."""


def typed(spec: TableSpec, raw: DataFrame, zone: str | None) -> DataFrame:
    """Convert text to the spec's types; `_ba_problem` says what could not be.

    Args:
        raw: The spec's columns as text, and `_ba_broken`, which says why a row is none; columns of other names are
            kept.
        zone: Zone of timestamps that have none; without it they cannot be read.
    """
    exact = ExactValues(zone)
    others = [quoted(name) for name in raw.columns if name not in spec.columns]
    said = {name: _SAID + name for name in spec.columns}
    formats = {name: DeclaredFormat(c.type, c.written) for name, c in spec.columns.items() if c.written}
    plain = {name: _PLAIN + name if name in formats else said[name] for name in spec.columns}
    # one projection for each step: Spark would put the text of a column into each place that refers to it
    texts = raw.select(*others, *(F.col(quoted(name)).alias(text) for name, text in said.items()))
    if formats:
        plain_texts = (f.rewritten(F.col(quoted(said[name]))).alias(plain[name]) for name, f in formats.items())
        texts = texts.select("*", *plain_texts)
    values = (exact.value(F.col(quoted(plain[name])), c.type).alias(name) for name, c in spec.columns.items())
    valued = texts.select(*others, *map(quoted, said.values()), *values)
    problem = F.coalesce(
        F.col("_ba_broken"),
        *(
            F.when(
                text.isNotNull() & F.col(quoted(name)).isNull(),
                F.concat(F.lit(f"`{name}` is no "), _wanted(text, column, exact), F.lit(": "), preview(text)),
            )
            for name, column in spec.columns.items()
            for text in [F.col(quoted(said[name]))]
        ),
    )
    kept = [name for name in others if name != quoted("_ba_broken")]
    return valued.select(*kept, *map(quoted, spec.columns), problem.alias("_ba_problem"))


def decoded(line: Column, encoding: str | None) -> Column:
    """Return a line of a file as text; one with a byte that its encoding does not have is not valid UTF-8.

    Args:
        encoding: None: the line is UTF-8 already.
    """
    if encoding is None:
        return line
    byte_by_byte = F.decode(line.cast("binary"), "ISO-8859-1")
    letters = upper_half(encoding)
    there = {chr(128 + i): letter for i, letter in enumerate(letters) if letter != NOTHING}
    lacking = "".join(chr(128 + i) for i, letter in enumerate(letters) if letter == NOTHING)
    text = F.translate(byte_by_byte, "".join(there), "".join(there.values()))
    if not lacking:
        return text
    return F.when(byte_by_byte.rlike(f"[{lacking}]"), F.concat(text, F.unhex(F.lit("FF")).cast("string"))).otherwise(
        text
    )


def not_of(encoding: str | None, text: Column) -> Column:
    """Say that a decoded line has bytes that are not of its encoding, or is a packed file's; NULL if it is text."""
    name, hint = ("UTF-8", NO_UTF_8) if encoding is None else (encoding, "")
    what = F.concat(F.lit(f"not {name}: "), preview(text), if_utf_16(text, hint))
    return F.coalesce(packed(text, encoding), F.when(~F.is_valid_utf8(text), what))


def packed(text: Column, encoding: str | None) -> Column:
    """Say how a file is packed that begins with a decoded line, since Spark goes by its name; NULL if it is not."""
    begins = {magic: magic if encoding is None else as_decoded(magic, encoding).encode() for magic in _PACKED}
    said = [
        F.when(F.hex(F.substring(text.cast("binary"), 1, len(seen))) == seen.hex().upper(), F.lit(_PACKED[magic]))
        for magic, seen in begins.items()
    ]
    return F.coalesce(*said)


def packed_as(line: str) -> str | None:
    """Say how a file is packed that begins with a line as it was collected; None if it is not."""
    return next((said for magic, said in _PACKED.items() if line.startswith(magic.decode(errors="replace"))), None)


def if_utf_16(text: Column, otherwise: str = "") -> Column:
    """Return what to do about a line that cannot be read, if it looks like UTF-16: by its mark, or every other byte."""
    mark = F.hex(F.substring(text.cast("binary"), 1, 2)).isin("FFFE", "FEFF")
    return F.when(mark | text.rlike(_OF_UTF_16), F.lit(AS_UTF_8)).otherwise(F.lit(otherwise))


def hint_of_header(header: str, encoding: str | None) -> str:
    """Return what to do about a header that cannot be read: it looks like UTF-16, or has bytes that are no UTF-8."""
    if re.search(_OF_UTF_16, header):
        return AS_UTF_8
    return f", which is not UTF-8{NO_UTF_8}" if encoding is None and NOTHING in header else ""


def numbered_lines(spark: SparkSession, files: Sequence[SourceFile], encoding: str | None) -> DataFrame:
    """Return every line of files as `_ba_text`, with `_ba_file`, as Spark names it, and `_ba_line`, from 1."""
    lines = spark.read.text(paths_of(files)).select(
        F.col("_metadata.file_path").alias("_ba_file"),
        F.col("_metadata.file_block_start").alias("_ba_block"),
        F.monotonically_increasing_id().alias("_ba_at"),
        decoded(F.col("value"), encoding).alias("_ba_text"),
    )
    in_order = Window.partitionBy("_ba_file").orderBy("_ba_block", "_ba_at")
    return lines.select("_ba_file", F.row_number().over(in_order).alias("_ba_line"), "_ba_text")


def is_row(line: str) -> Column:
    """Say whether a line is more than white space."""
    return F.col(line).rlike(r"\S")


def preview(text: Column) -> Column:
    """Return the beginning of a text, for a message."""
    return F.when(F.length(text) > _PREVIEW, F.concat(F.substring(text, 1, _PREVIEW), F.lit(" …"))).otherwise(text)


def _wanted(text: Column, column: SpecColumn, exact: ExactValues) -> Column:
    """Return the type that a field was to have, and what in the spec would let it be read."""
    if column.format is not None:
        return F.lit(f"{column.type} (`format: {column.format}`)")
    hints = _hints(F.btrim(text, F.lit(SPACE)), column.type, exact)
    return F.coalesce(*(F.when(fits, F.lit(column.type + hint)) for hint, fits in hints.items()), F.lit(column.type))


def _hints(text: Column, kind: str, exact: ExactValues) -> dict[str, Column]:
    """Return what would let a text be read that is no value of a type, each with the texts that it is for."""
    by_format = " (the column's `format` can say how it is written)"
    if kind == "date":
        return {by_format: text.rlike(_NOT_ISO) | text.rlike(_AT_MIDNIGHT)}
    if kind == "timestamp":
        zone = " with a zone (`timestamps_without_zone` would give it one)"
        return {zone: exact.lacks_zone(text), by_format: text.rlike(_NOT_ISO)}
    if kind in ("double", "float"):
        return {by_format: text.rlike(_WITH_MARKS)}
    if not kind.endswith("int") and not kind.startswith("decimal"):
        return {}
    scale = int(kind.rstrip(")").partition(",")[2] or 0)
    fits = rf"^[+-]?(?=\.?[0-9])[0-9]{{0,{38 - scale}}}+(?:\.[0-9]{{0,{scale}}}0*+)?\z"
    return {
        f" (`decimal(38,{scale})` would hold it)": text.rlike(fits),
        " (a `decimal` with more digits behind the point would hold it)": text.rlike(_NOT_WHOLE),
        by_format: text.rlike(_WITH_MARKS),
    }
