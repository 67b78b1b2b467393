"""A first look at CSV that no spec describes yet: its delimiter, whether it has a header, and its records."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any, Final

from backfill_assets.core.schema.inference import kind_of_values, value_of_text
from backfill_assets.core.spec.files import CsvForm

_DELIMITERS: Final = (",", ";", "\t", "|")
_LOOKED_AT: Final = 100
"""Records that decide which delimiter it is."""


def csv_form(lines: Sequence[str]) -> CsvForm:
    """Return the delimiter with which most records are as long as the first, and whether the first names columns."""

    def alike(delimiter: str) -> tuple[int, int]:
        records = _records(lines[:_LOOKED_AT], delimiter)
        length = len(records[0]) if records else 0
        return (sum(len(record) == length for record in records) if length > 1 else 0, length)

    delimiter = max(_DELIMITERS, key=alike)
    (first, *_) = _records(lines, delimiter) or [[""]]
    names = [text for text in first if text]  # an index has no name, and nothing stands behind a last comma
    are_names = all(kind_of_values([value_of_text(text)]) == "string" for text in names)
    return CsvForm(delimiter=delimiter, header=bool(names) and len(set(names)) == len(names) and are_names)


def csv_rows(lines: Sequence[str], form: CsvForm) -> list[dict[str, Any]]:
    """Return the values of records, one a line; without those of another length than the first."""
    records = _records(lines, form.delimiter)
    if not records:
        return []
    names = records[0] if form.header else [f"column_{i + 1}" for i in range(len(records[0]))]
    fields = [record for record in records[form.header :] if len(record) == len(names)]
    return [dict(zip(names, map(value_of_text, record), strict=True)) for record in fields]


def _records(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    found: list[list[str]] = []
    for line in lines:
        if line.strip():
            try:
                found.append(next(csv.reader([line], delimiter=delimiter), []))
            except csv.Error:  # a field that is longer than any that a person would look at
                continue
    return found
