"""CSV: every line that is not blank is a record, and a row in the account, whether it can be read or not.

A record ends with its line. A quoted field that runs over the line's end is a record that cannot be read, never two
that can.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.spec.columns import is_column_name
from backfill_assets.core.spec.fields import in_words
from backfill_assets.core.spec.files import CsvForm, FilesSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import quoted
from backfill_assets.core.words import shortened
from backfill_assets.sources.files import text_values
from backfill_assets.sources.files.columns import missing_columns
from backfill_assets.sources.files.file_format import Count, FileFormat
from backfill_assets.sources.files.listing import SourceFile, file_id_of_row, paths_of
from backfill_assets.sources.files.text_values import (
    decoded,
    hint_of_header,
    if_utf_16,
    is_row,
    not_of,
    numbered_lines,
    packed,
    preview,
)
from backfill_assets.spark.expressions import collected

_NOTHING = "\n"
"""What Spark's parser is told to take for NULL, so that it tells a field without anything from an empty text.

No field can have it: it ends a record.
"""

_NEVER = "\r"
"""What the parser is given for a quote, or for what escapes an escape, where there is none: else it takes a NUL for it.

No field can have it: it ends a record too.
"""

_LONGEST = 65_536
"""Characters of a header; a first line that has more is of a file that is no CSV."""

_GOES_ON = " (does the record go on in the next line? Export such data as Parquet or JSON lines)"


@dataclass(frozen=True, slots=True)
class _Head:
    """What was seen of one file: its first line, how many lines it has, and how many of those are headers.

    Args:
        line: Of one that is longer than any header, the beginning.
        length: Characters of the whole first line.
        packed: How the file is packed, if its name does not say so.
    """

    line: str
    lines: int
    headers: int
    length: int
    packed: str | None = None


@dataclass(frozen=True, slots=True)
class CsvFormat(FileFormat):
    """CSV files, plain or packed, with or without a line of column names."""

    spark: SparkSession
    spec: TableSpec
    source: FilesSpec
    _heads: dict[SourceFile, _Head] = field(default_factory=dict[SourceFile, _Head], init=False)
    _known: set[str] = field(default_factory=set[str], init=False)

    def look_at(self, files: Sequence[SourceFile]) -> None:
        """Read files through once: count their lines, and note the first of each."""
        new = [file for file in files if file.size_bytes and file not in self._heads]
        while new:
            lines = self.spark.read.text(paths_of(new)).where(is_row("value"))
            line = decoded(F.col("value"), self.source.encoding).alias("value")
            lines = lines.select(file_id_of_row().alias("file"), line, F.monotonically_increasing_id().alias("at"))
            each = lines.groupBy("file").agg(
                F.substring(F.min_by("value", "at"), 1, _LONGEST + 1).alias("line"),
                F.length(F.min_by("value", "at")).alias("length"),
                packed(F.min_by("value", "at"), self.source.encoding).alias("packed"),
                F.count(F.lit(1)).alias("lines"),
                F.count_if(F.col("value").isin(sorted(self._known)) if self._known else F.lit(False)).alias("headers"),
            )
            seen = {
                row["file"]: _Head(
                    row["line"], int(row["lines"]), int(row["headers"]), int(row["length"]), row["packed"]
                )
                for row in collected(each)
            }
            settled = {file: seen.get(file.file_id, _Head("", 0, 0, 0)) for file in new}
            if self.form.header:  # a header that was not known could not be counted
                self._heads.update(
                    {
                        file: head
                        for file, head in settled.items()
                        if not self._names(head.line) or head.line in self._known
                    }
                )
                self._known.update(head.line for head in settled.values() if self._names(head.line))
            else:
                self._heads.update(settled)
            new = [file for file in new if file not in self._heads]

    @property
    def form(self) -> CsvForm:
        """How records are written."""
        return self.source.csv_form

    def misfits(self, file: SourceFile) -> tuple[str, ...]:
        """Return what is wrong with a file's header."""
        head = self._heads.get(file)
        if head is not None and head.packed:
            return (f"it is {head.packed}",)
        if head is None or not self.form.header:
            return ()
        if not head.lines:
            return ("it has no line, and so no header",) if file.size_bytes else ()
        names = self._names(head.line)
        if not names:
            return (f"its first line has {head.length:,} characters; it is no header",)
        twice = sorted({name for name in names if names.count(name) > 1 and name in self.spec.columns})
        problems = missing_columns(self.spec, set(names))
        problems += (
            [f"its header is {preview_of(head.line)}{hint_of_header(head.line, self.source.encoding)}"]
            if problems
            else []
        )
        problems += _unusable_names(names) if problems else []
        problems += [f"its header names {in_words(twice)} twice"] if twice else []
        problems += (
            [f"its header comes {head.headers} times, so that it may be several files in one"]
            if head.headers > 1
            else []
        )
        return tuple(problems)

    def rows(self, files: Sequence[SourceFile]) -> DataFrame:
        """Return the typed rows of files, each with where it is kept and why it cannot be read."""
        self.look_at(files)
        alike: dict[str, list[SourceFile]] = {}
        for file in files:
            alike.setdefault(self._heads[file].line if self.form.header else "", []).append(file)
        frames = [
            self._typed(
                self.spark.read.text(paths_of(group)).select(
                    decoded(F.col("value"), self.source.encoding).alias("_ba_text"),
                    file_id_of_row().alias("_ba_file_id"),
                ),
                line,
            )
            for line, group in alike.items()
        ]
        joined = frames[0]
        for frame in frames[1:]:
            joined = joined.unionByName(frame)
        return joined

    def count(self, files: Sequence[SourceFile]) -> dict[int, Count]:
        """Count the lines of each file that are not blank, without its header."""
        self.look_at(files)
        heads = {file.file_id: self._heads[file] for file in files}
        return {
            file_id: Count(head.lines - int(self.form.header and head.lines > 0)) for file_id, head in heads.items()
        }

    def numbered(self, files: Sequence[SourceFile]) -> DataFrame:
        """Return the typed rows of files with `_ba_file` and `_ba_line`."""
        alike: dict[str, list[SourceFile]] = {}
        for file in files:
            alike.setdefault(self._heads[file].line if self.form.header else "", []).append(file)
        frames = [
            self._typed(numbered_lines(self.spark, group, self.source.encoding), line) for line, group in alike.items()
        ]
        joined = frames[0]
        for frame in frames[1:]:
            joined = joined.unionByName(frame)
        return joined

    def read_through(self, files: Sequence[SourceFile]) -> None:
        """Read files to their end."""
        self.spark.read.text(paths_of(files)).select(F.max(F.xxhash64("value"))).collect()

    def columns_of(self, files: Sequence[SourceFile]) -> list[str]:
        """Return the names in the headers of files; those of the spec where there are none."""
        self.look_at(files)
        if not self.form.header:
            return list(self.spec.columns)
        return sorted({name for file in files for name in self._names(self._heads[file].line)})

    def schema_problems(self, files: Sequence[SourceFile]) -> list[str]:
        """Return what is wrong with the headers of files that have one."""
        self.look_at(files)
        with_lines = [file for file in files if (head := self._heads.get(file)) is None or head.lines]
        return [problem for file in with_lines for problem in self.misfits(file)]

    def lacking(self, names: Sequence[str], files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """Return nothing: a header that lacks a column is a misfit already."""
        del names, files
        return {}

    # -- how -------------------------------------------------------------------------------------------------------

    def _names(self, header: str) -> list[str]:
        """Return the columns that a header names; none if it cannot be one."""
        if len(header) > _LONGEST:
            return []
        form, quotes = self.form, csv.QUOTE_MINIMAL if self.form.quote else csv.QUOTE_NONE
        escape = None if not form.quote or form.escape == form.quote else form.escape
        records = csv.reader(
            [header], delimiter=form.delimiter, quotechar=form.quote or None, escapechar=escape, quoting=quotes
        )
        try:
            return next(records, [])
        except csv.Error:
            return []

    def _typed(self, lines: DataFrame, header: str) -> DataFrame:
        """Parse the lines in `_ba_text` that are not blank; the frame's other columns are kept.

        Args:
            header: Their first line; it is left out. Empty: they have none.
        """
        names = self._names(header) if header else list(self.spec.columns)
        if header:
            lines = lines.where(F.col("_ba_text") != header)
        fields = [f"c{i}" for i in range(len(names))]
        options = {
            "mode": "PERMISSIVE",
            "columnNameOfCorruptRecord": "_ba_corrupt",
            "sep": self.form.delimiter,
            "quote": self.form.quote or _NEVER,
            "escape": self.form.escape,
            **({"charToEscapeQuoteEscaping": _NEVER} if self.form.escape == self.form.quote else {}),
            "nullValue": _NOTHING,
            "emptyValue": "",
        }
        schema = ", ".join([*(f"{name} string" for name in fields), "_ba_corrupt string"])
        parsed = lines.where(is_row("_ba_text")).select(
            "*", F.from_csv("_ba_text", F.lit(schema), options).alias("_ba_fields")
        )
        text = F.col("_ba_text")
        unclosed = F.concat(F.lit("a quote is not closed on its line: "), preview(text), self._if_it_goes_on(text))
        other_length = F.concat(F.lit(f"not {len(names)} fields: "), preview(text), if_utf_16(text))
        broken = F.coalesce(
            F.when(~text.rlike(self._well_formed()), unclosed),
            F.when(F.col("_ba_fields._ba_corrupt").isNotNull(), other_length),
            not_of(self.source.encoding, text),
        )
        others = [F.col(quoted(name)) for name in lines.columns if name != "_ba_text"]
        at = {name: i for i, name in reversed(list(enumerate(names)))}
        values = [
            (
                self._value(F.col(f"_ba_fields.c{at[name]}"), column.type) if name in at else F.lit(None).cast("string")
            ).alias(name)
            for name, column in self.spec.columns.items()
        ]
        raw = parsed.select(*others, *values, broken.alias("_ba_broken"))
        return text_values.typed(self.spec, raw, self.source.timestamps_without_zone)

    def _value(self, text: Column, kind: str) -> Column:
        """Return a field as text, or NULL if that is what it stands for."""
        if self.form.null_value:
            return F.nullif(F.coalesce(text, F.lit("")), F.lit(self.form.null_value))
        return text if kind == "string" else F.nullif(text, F.lit(""))

    def _if_it_goes_on(self, text: Column) -> Column:
        """Return what to do about a record that ends on another line than its own: it has an odd number of quotes."""
        if not self.form.quote:
            return F.lit("")
        quotes = F.regexp_replace(text, f"[^{re.escape(self.form.quote)}]", "")
        return F.when(F.length(quotes) % 2 == 1, F.lit(_GOES_ON)).otherwise(F.lit(""))

    def _well_formed(self) -> str:
        """Return a pattern for a line whose quotes are closed.

        Its groups do not give back what they took, so that long lines need no deep stack.
        """
        if not self.form.quote:
            return "^"
        quote, delimiter, escape = (re.escape(c) for c in (self.form.quote, self.form.delimiter, self.form.escape))
        inside = f"[^{quote}]++|{quote}{quote}" if quote == escape else f"[^{quote}{escape}]++|{escape}."
        one = rf"(?:{quote}(?:{inside})*+{quote}(?={delimiter}|\z)|(?!{quote})[^{delimiter}]*+)"
        return rf"(?s)^{one}(?:{delimiter}{one})*+\z"


def _unusable_names(names: Sequence[str]) -> list[str]:
    """Say which names of a header no column can have."""
    unusable = [name for name in names if name and not is_column_name(name)]
    said = f"{in_words(unusable)} cannot be the name of a column here: rename it in the export"
    return [said] if unusable else []


def preview_of(header: str) -> str:
    """Return the beginning of a header, for a message."""
    return f"`{shortened(header, 200)}`"
