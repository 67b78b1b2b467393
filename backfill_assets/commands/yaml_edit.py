"""Edits of a `defs.yaml`: its comments, its order and its quotes stay.

`ruamel.yaml` keeps the lines of comment between two entries with the first one; who adds or removes one moves them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import CommentMark, YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, ScalarString
from ruamel.yaml.tokens import CommentToken

from backfill_assets.core.schema.compare import Action, ColumnChange
from backfill_assets.errors import ConfigurationError

_INDENTS = [(mapping, mapping + dash, dash) for mapping in (2, 4) for dash in (2, 0)]
"""By how many columns files indent mappings, sequences, and the dashes of sequences."""


class SpecFile:
    """A `defs.yaml` that can be edited, and the table in it that has a key.

    Raises:
        ValueError: The file has no such table, or has something that would not be written as it is read.
    """

    def __init__(self, text: str, key: str) -> None:
        self._ends_lines = "\r\n" if "\r\n" in text else "\n"
        text = text.replace("\r\n", "\n")
        self._is_open, self._starts = not text.endswith("\n"), text.lstrip().startswith("---")
        same = (each for each in _INDENTS if self._use(text, each) == text)
        written = self._use(text, next(same, _INDENTS[0]))
        self.document = next((one for one in self._documents if child(child(one, "attributes"), "key") == key), None)
        self.attributes: Any = child(self.document, "attributes")
        is_same = "".join(written.split()) == "".join(text.split()) and _said(written) == _said(text)
        if not is_same or not self.attributes:
            raise ValueError(key)

    def _use(self, text: str, indents: tuple[int, int, int]) -> str:
        """Read a text, and return it as it would be written."""
        self._yaml = YAML()
        self._yaml.preserve_quotes, self._yaml.width, self._yaml.explicit_start = True, 1_000_000, self._starts
        self._yaml.indent(*indents)
        self._documents: list[Any] = list(self._yaml.load_all(text))
        return self._dumped(self._documents)

    def _dumped(self, documents: Sequence[Any]) -> str:
        out = StringIO()
        self._yaml.dump_all(documents, out)
        return out.getvalue().removesuffix("\n") if self._is_open else out.getvalue()

    def written(self, *documents: Any) -> str:
        """Return the text of some of the documents; of all if none is given."""
        return self._dumped(documents or self._documents).replace("\n", self._ends_lines)


def _said(text: str) -> list[Any]:
    """Return what a text says to Dagster, which reads an older YAML than ruamel."""
    return list(yaml.safe_load_all(text))


def child(node: Any, name: str) -> Any:
    """Return the value of a field; None if there is none."""
    return node.get(name) if isinstance(node, CommentedMap) else None


def put(node: Any, name: Any, value: Any) -> None:
    """Give a field, or an element of a sequence, another value in the quotes that it has."""
    before = node[name]
    node[name] = type(before)(value) if isinstance(before, ScalarString) else value


def insert_behind(mapping: CommentedMap, before: str, name: str, value: Any, comment: str = "") -> None:
    """Insert a field behind another one.

    Args:
        comment: Whole lines, which follow the field.
    """
    lines = _cut_lines(mapping, before)
    mapping.insert(list(mapping).index(before) + 1, name, value)
    _put_lines(mapping, name, comment + lines)


def remove(mapping: CommentedMap, name: str) -> None:
    """Remove a field, if there is one, with the comment on its line.

    Raises:
        ValueError: It is the first one, and lines of comment follow it.
    """
    if name not in mapping:
        return
    lines, at = _cut_lines(mapping, name), list(mapping).index(name)
    if lines.strip() and not at:
        raise ValueError(name)
    before = list(mapping)[at - 1]
    del mapping[name]
    mapping.ca.items.pop(name, None)
    if at:
        _put_lines(mapping, before, lines)


def _token(node: Any, name: Any) -> tuple[list[Any], int]:
    """Return where the comment of the last line of an entry is."""
    value = node[name]
    while isinstance(value, CommentedMap | CommentedSeq) and value and not value.fa.flow_style():
        node, name = value, list(value)[-1] if isinstance(value, CommentedMap) else len(value) - 1
        value = node[name]
    return node.ca.items.setdefault(name, [None] * 4), 0 if isinstance(node, CommentedSeq) else 2


def _cut_lines(node: Any, name: str) -> str:
    """Return the lines of comment that follow an entry, without them there."""
    tokens, at = _token(node, name)
    if tokens[at] is None:
        return ""
    own, _, lines = tokens[at].value.partition("\n")
    tokens[at].value = f"{own}\n"
    return lines


def _put_lines(node: Any, name: str, lines: str) -> None:
    if lines:
        tokens, at = _token(node, name)
        tokens[at] = tokens[at] or CommentToken("\n", CommentMark(0))
        tokens[at].value += lines


def edited(text: str, key: str, changes: Sequence[ColumnChange]) -> str:
    """Return a `defs.yaml` with new columns and wider types in it.

    Raises:
        ConfigurationError: The columns are not written in a way that can be edited.
    """
    wanted = [change for change in changes if change.action in (Action.ADD, Action.WIDEN)]
    try:
        file = SpecFile(text, key)
        columns = file.attributes["columns"]
        for change in wanted:
            if change.action is Action.WIDEN:
                _widen(columns, change)
            else:
                insert_behind(columns, list(columns)[-1], _text(change.column), _column(change))
        return file.written()
    except (ValueError, LookupError, TypeError, YAMLError, yaml.YAMLError) as error:
        raise ConfigurationError(
            f"`{key}`: its columns are not written in its YAML in a way that this command can change.",
            state="Nothing was changed.",
            remedy=f"Write by hand: {', '.join(f'`{to_be_written(change)}`' for change in wanted)}.",
        ) from error


def _widen(columns: CommentedMap, change: ColumnChange) -> None:
    """Write a wider type in place of a whole word: `int` is part of `integer`."""
    column = columns[change.column]
    mapping, field = (column, "type") if isinstance(column, CommentedMap) else (columns, change.column)
    narrow = rf"(?<!\w){re.escape(change.spec)}(?!\w)"
    new = re.sub(narrow, change.new_type, mapping[field], count=1, flags=re.IGNORECASE)
    if new == mapping[field] or (mapping is column and column.anchor.value):  # others may share it
        raise ValueError(change.column)
    put(mapping, field, new if isinstance(mapping[field], ScalarString) else _text(new))


def _column(change: ColumnChange) -> Any:
    if not change.optional:
        return _text(change.new_type)
    column = CommentedMap(type=_text(change.new_type), optional=True)
    column.fa.set_flow_style()
    return column


def _text(text: str) -> str:
    """Return a text in quotes if it could be read as something else."""
    if not text.isprintable():
        raise ValueError(text)
    is_plain = re.fullmatch(r"[A-Za-z_][\w ]*", text) and yaml.safe_load(text) == text
    return text if is_plain else DoubleQuotedScalarString(text)


def to_be_written(change: ColumnChange) -> str:
    """Return the line of a column, for whoever writes it by hand."""
    kind = f'"{change.new_type}"' if "(" in change.new_type else change.new_type
    if change.action is Action.WIDEN:
        return f"{change.column}: {kind}  # the type; whatever else is said of it stays"
    return f"{change.column}: {{type: {kind}, optional: true}}" if change.optional else f"{change.column}: {kind}"
