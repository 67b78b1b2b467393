"""A first look at CSV that no spec describes yet: its delimiter, whether it has a header, the types of its fields."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from backfill_assets.core.calendar.windows import Window
from backfill_assets.core.schema.inference import kind_of_texts
from backfill_assets.core.spec.files import CsvForm

_DELIMITERS: Final = (",", ";", "\t", "|")
_LOOKED_AT: Final = 100
"""Records that decide which delimiter it is."""

Row = dict[str, str | None]


class CsvSample(NamedTuple):
    """What the first records of a few files say.

    Args:
        kinds: Type of each column in each file; the same in all that have it.
        rows: Each with the time that its file's path names; a field without anything is None.
    """

    form: CsvForm
    kinds: list[dict[str, str]]
    rows: list[tuple[Window, Row]]

    @classmethod
    def of(cls, files: Sequence[tuple[Window, Sequence[str]]]) -> CsvSample:
        """Look at the first lines of files, one record each; those of another length than the header are left out."""
        first = next((lines for _, lines in files if any(map(str.strip, lines))), [])
        form = _form(first)
        tables = [_Table.of(lines, form) for _, lines in files]
        names = dict.fromkeys(name for table in tables for name in table.names)
        kinds = {name: kind_of_texts(row.get(name) for table in tables for row in table.rows) for name in names}
        rows = [(window, row) for (window, _), table in zip(files, tables, strict=True) for row in table.rows]
        return cls(form, [{name: kinds[name] for name in table.names} for table in tables], rows)


@dataclass(frozen=True, slots=True)
class _Table:
    names: list[str]
    rows: list[Row]

    @classmethod
    def of(cls, lines: Sequence[str], form: CsvForm) -> _Table:
        records = _records(lines, form.delimiter)
        if not records:
            return cls([], [])
        names = records[0] if form.header else [f"column_{i + 1}" for i in range(len(records[0]))]
        fields = [record for record in records[form.header :] if len(record) == len(names)]
        return cls(names, [dict(zip(names, (text or None for text in record), strict=True)) for record in fields])


def _records(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    found: list[list[str]] = []
    for line in lines:
        if line.strip():
            try:
                found.append(next(csv.reader([line], delimiter=delimiter), []))
            except csv.Error:  # a field that is longer than any that a person would look at
                continue
    return found


def _form(lines: Sequence[str]) -> CsvForm:
    """Return the delimiter with which the most records are as long as the first, and whether that names columns."""

    def alike(delimiter: str) -> tuple[int, int]:
        records = _records(lines[:_LOOKED_AT], delimiter)
        length = len(records[0]) if records else 0
        return (sum(len(record) == length for record in records) if length > 1 else 0, length)

    delimiter = max(_DELIMITERS, key=alike)
    (first, *_) = _records(lines, delimiter) or [[""]]
    names = [text for text in first if text]  # of an index, or behind the last comma, there is none
    is_header = bool(names) and len(set(names)) == len(names) and all(kind_of_texts([t]) == "string" for t in names)
    return CsvForm(delimiter=delimiter, header=is_header)
