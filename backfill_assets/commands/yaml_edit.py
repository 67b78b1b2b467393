"""A `defs.yaml` with other columns: lines are put in and types are changed, every other character stays as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from backfill_assets.core.schema.compare import Action, ColumnChange
from backfill_assets.errors import ConfigurationError


def edited(text: str, key: str, changes: Sequence[ColumnChange]) -> str:
    """Return a `defs.yaml` with new columns and wider types in it; every other character stays as it is.

    Raises:
        ConfigurationError: The columns do not stand there so that a line can be put in.
    """
    columns = _columns_node(text, key)
    if columns is None:
        raise _by_hand(key, [c for c in changes if c.action in (Action.ADD, Action.WIDEN)])
    spots = {name.value: (name, value) for name, value in columns.value}
    edits: list[tuple[int, int, str]] = []
    for change in (c for c in changes if c.action is Action.WIDEN):
        node = spots.get(change.column, (None, None))[1]
        if isinstance(node, yaml.MappingNode):
            node = next((value for name, value in node.value if name.value == "type"), None)
        if node is None:  # it is merged in from elsewhere in the file
            raise _by_hand(key, [change])
        old = text[node.start_mark.index : node.end_mark.index]
        new = _widened(old, change)
        if new == old:
            raise _by_hand(key, [change])
        is_plain = not new.startswith(("'", '"'))
        edits.append((node.start_mark.index, node.end_mark.index, f'"{new}"' if is_plain and "(" in new else new))
    added = [c for c in changes if c.action is Action.ADD]
    if added and columns.flow_style:
        at = columns.end_mark.index - 1
        edits.append((at, at, "".join(f", {_name(c.column)}: {written(c)}" for c in added)))
    elif added:
        name, value = columns.value[-1]
        while isinstance(value, yaml.MappingNode) and not value.flow_style:
            value = value.value[-1][1]  # of a block the parser says that it ends where the next thing begins
        at = _end_of_line(text, value.end_mark.index if value.end_mark.column else value.end_mark.index - 1)
        indent = " " * name.start_mark.column
        line_end = "\r\n" if "\r\n" in text else "\n"
        edits.append((at, at, "".join(f"{line_end}{indent}{_name(c.column)}: {written(c)}" for c in added)))
    after = text
    for start, end, new in sorted(edits, reverse=True):
        after = after[:start] + new + after[end:]
    try:
        is_meant = list(yaml.safe_load_all(after)) == _meant(text, key, changes)
        after.encode()
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise _by_hand(key, [c for c in changes if c.action in (Action.ADD, Action.WIDEN)]) from error
    if not is_meant:
        raise _by_hand(key, [c for c in changes if c.action in (Action.ADD, Action.WIDEN)])
    return after


def _meant(text: str, key: str, changes: Sequence[ColumnChange]) -> list[Any]:
    """Return what the documents of a file are to say once its columns are changed."""
    documents = list(yaml.safe_load_all(text))
    said = [document["attributes"] for document in documents if isinstance(document, dict) and "attributes" in document]
    columns = next(attributes["columns"] for attributes in said if attributes.get("key") == key)
    for change in changes:
        if change.action is Action.ADD:
            columns[change.column] = yaml.safe_load(written(change))
        elif change.action is Action.WIDEN:
            column = columns[change.column]
            old = column["type"] if isinstance(column, dict) else column
            new = _widened(old, change)
            columns[change.column] = {**column, "type": new} if isinstance(column, dict) else new
    return documents


def _widened(written: str, change: ColumnChange) -> str:
    """Return a type as it is written, with a wider one in it: in place of a whole word, `int` is part of `integer`."""
    narrow = rf"(?<!\w){re.escape(change.spec)}(?!\w)"
    return re.sub(narrow, change.new_type, written, count=1, flags=re.IGNORECASE)


def _columns_node(text: str, key: str) -> yaml.MappingNode | None:
    """Return where the columns of a table stand in a file that may hold several; None if they do not."""
    for document in yaml.compose_all(text, Loader=yaml.SafeLoader):
        attributes = dict(_pairs(document)).get("attributes")
        found = dict(_pairs(attributes))
        named, columns = found.get("key"), found.get("columns")
        if named is not None and named.value == key and isinstance(columns, yaml.MappingNode) and columns.value:
            return columns
    return None


def _pairs(node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, yaml.MappingNode):
        yield from ((name.value, value) for name, value in node.value)


def _end_of_line(text: str, index: int) -> int:
    end = text.find("\n", index)
    return len(text) if end < 0 else end - (text[end - 1] == "\r")


def _name(name: str) -> str:
    return (
        name
        if re.fullmatch(r"[A-Za-z_]\w*", name) and yaml.safe_load(name) == name
        else json.dumps(name, ensure_ascii=False)
    )


def written(change: ColumnChange) -> str:
    """Return a column as it stands in YAML."""
    kind = f'"{change.new_type}"' if "(" in change.new_type else change.new_type
    return f"{{type: {kind}, optional: true}}" if change.optional else kind


def to_be_written(change: ColumnChange) -> str:
    """Return the line of a column, for whoever writes it by hand."""
    line = f"{change.column}: {written(change)}"
    return f"{line}  # the type; whatever else is said of it stays" if change.action is Action.WIDEN else line


def _by_hand(key: str, changes: Sequence[ColumnChange]) -> ConfigurationError:
    named = ", ".join(f"`{to_be_written(change)}`" for change in changes)
    return ConfigurationError(
        f"`{key}`: its columns are not written in its YAML in a way that this command can change.",
        state="Nothing was changed.",
        remedy=f"Write by hand: {named}.",
    )
