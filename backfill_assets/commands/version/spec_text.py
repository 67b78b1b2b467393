"""The text of a `defs.yaml` as that of the next version: a few values are others, every other character stays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import date
from textwrap import indent
from typing import TYPE_CHECKING, Any

import yaml

from backfill_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from backfill_assets.core.spec.no_effect import Place

_SAID = """\
version_of: # what is not said here stands for itself, under its name and with its type
  table: {name}{before}
  # renamed: {{new_name: old_name}}
  # cast: [column]               of another type than before, each value exactly
  # computed: {{column: "SQL of the columns before"}}
  # dropped: [column]            there no more
  # new: [column]                nothing before says anything of it
"""


def next_spec(
    text: str,
    key: str,
    following: Mapping[str, str],
    *,
    starts: date | None,
    copies: str | None,
    module: str,
    with_feed: bool = True,
    useless: Sequence[Place] = (),
) -> str:
    """Return the text of the next version of a table.

    Args:
        text: Of the file that holds the table, perhaps among others.
        key: Of the table.
        following: Keys of next versions by those of the present ones: the table's own, and those that it is made of.
        starts: First day of its stream; None to leave the stream out.
        copies: The version that its history is copied from, and that is followed; None to leave the source as it is.
        module: Dotted name of the file's folder, below which transforms that start with a dot lie.
        with_feed: Whether its change feed, if it has one, stays.
        useless: Fields of columns that nothing would read in the next version.

    Raises:
        ConfigurationError: The file cannot be edited so, or nothing would be left that fills the next version.
    """
    from backfill_assets.core.spec.versions import key_of, name_of, number_of

    document = _document(text := text.rstrip("\n") + "\n", key)
    attributes = _child(document, "attributes")
    if copies is None and not with_feed and _child(attributes, "source") is None:
        raise _by_nothing(key)
    alone = sum(1 for _ in yaml.compose_all(text, Loader=yaml.SafeLoader)) == 1
    begin, end = (0, len(text)) if alone else (document.start_mark.index, document.end_mark.index)
    edits: list[tuple[int, int, str]] = []

    def replace(node: Any, value: str) -> None:
        edits.append((node.start_mark.index, node.end_mark.index, value))

    own = _child(attributes, "key")
    replace(own, following[key])
    name = name_of(key)
    before = "" if key == key_of(name, number_of(following[key]) - 1) else f"\n  before: {key}"
    line = text.index("\n", own.end_mark.index) + 1
    margin = " " * attributes.value[0][0].start_mark.column
    edits.append((line, line, indent(_SAID.format(name=name, before=before), margin)))
    for left_out in ("once", "version_of", *(["changes"] if copies or not with_feed else [])):
        _cut(text, attributes, left_out, edits)
    for one in dict.fromkeys(place[1] for place in useless if place[0] == "columns"):
        column = _child(_child(attributes, "columns"), str(one))
        _cut_fields(text, column, {place[-1] for place in useless if place[:2] == ("columns", one)}, edits)
    if starts is None:
        _cut(text, attributes, "live", edits)
    elif (live := _child(attributes, "live")) is not None:
        replace(_child(live, "starts"), starts.isoformat())
    if copies is not None:
        _cut(text, attributes, "source", edits)
        edits.append((line, line, f"{margin}source: {{kind: version, table: {copies}}}\n"))
    else:
        for node, value in _named_otherwise(_child(attributes, "source"), following, module):
            replace(node, value)
    after = _edited(text, begin, end, edits)
    if not _says(after, following[key], name):
        raise _by_hand(key)
    return after


def _edited(text: str, begin: int, end: int, edits: Sequence[tuple[int, int, str]]) -> str:
    """Return a piece of a text, with what edits inside it put in the place of what was there."""
    for start, stop, value in sorted(edits, key=lambda edit: (edit[0], edit[1]), reverse=True):
        if begin <= start and stop <= end:
            text = text[:start] + value + text[stop:]
            end += len(value) - (stop - start)
    return text[begin:end].lstrip("\n").rstrip() + "\n"


def _named_otherwise(source: Any, following: Mapping[str, str], module: str) -> Iterator[tuple[Any, str]]:
    """Return the texts of a source that name something as it is called from elsewhere, or in the next version."""
    for scalar in _scalars(_child(source, "tables")):
        if scalar.value in following:
            yield scalar, following[scalar.value]
    transform = _child(source, "transform")
    if transform is not None and transform.value.startswith("."):
        yield transform, module + transform.value


def _says(text: str, key: str, name: str) -> bool:
    """Say whether a file can be read, and is of a version of a table."""
    try:
        said = yaml.safe_load(text)["attributes"]
        return bool(said["key"] == key and said["version_of"]["table"] == name)
    except (yaml.YAMLError, KeyError, TypeError):
        return False


def _document(text: str, key: str) -> Any:
    for document in yaml.compose_all(text, Loader=yaml.SafeLoader):
        found = _child(_child(document, "attributes"), "key")
        if found is not None and found.value == key and not _child(document, "attributes").flow_style:
            return document
    raise _by_hand(key)


def _by_hand(key: str) -> ConfigurationError:
    return ConfigurationError(
        f"`{key}` is not written in its YAML in a way that this command can change.",
        state="No file was written.",
        remedy="Copy the file by hand, give the table its new key, and add `version_of`.",
    )


def _by_nothing(key: str) -> ConfigurationError:
    return ConfigurationError(
        f"`{key}` has no `source` beside its change feed: without both, nothing would fill the next version.",
        state="No file was written.",
        remedy="Add `--from version`, to copy and follow it; or leave `--no-stream` out.",
    )


def _child(node: Any, name: str) -> Any:
    """Return the value of a field; None where there is none."""
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for field, value in node.value if field.value == name), None)


def _scalars(node: Any) -> list[Any]:
    """Return the texts below a node, in order."""
    if isinstance(node, yaml.ScalarNode):
        return [node]
    if isinstance(node, yaml.SequenceNode):
        return [found for one in node.value for found in _scalars(one)]
    if isinstance(node, yaml.MappingNode):
        return [found for _, value in node.value for found in _scalars(value)]
    return []


def _cut_fields(text: str, column: Any, names: Set[str | int], edits: list[tuple[int, int, str]]) -> None:
    """Take fields of a column out, however it is written; its type stays."""
    if not column.flow_style:
        for name in names:
            _cut(text, column, str(name), edits)
        return
    kept = [
        text[field.start_mark.index : value.end_mark.index] for field, value in column.value if field.value not in names
    ]
    edits.append((column.start_mark.index, column.end_mark.index, "{" + ", ".join(kept) + "}"))


def _cut(text: str, attributes: Any, name: str, edits: list[tuple[int, int, str]]) -> None:
    """Take a field with all below it out, and the comment behind it on its line."""
    for field, value in attributes.value:
        if field.value != name:
            continue
        start = text.rindex("\n", 0, field.start_mark.index) + 1
        end = value.end_mark.index
        is_block = (
            isinstance(value, yaml.CollectionNode) and not value.flow_style
        )  # it ends where the next field begins
        stop = text.rindex("\n", 0, end) + 1 if is_block else text.find("\n", end) + 1 or len(text)
        edits.append((start, stop, ""))
