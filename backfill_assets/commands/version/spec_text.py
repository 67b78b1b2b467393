"""The text of a `defs.yaml` as that of the next version: a few values change, the rest stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from textwrap import indent
from typing import TYPE_CHECKING, Any

import yaml
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from backfill_assets.commands.yaml_edit import SpecFile, insert_behind, put, remove
from backfill_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from backfill_assets.core.spec.no_effect import Place

_MAPPINGS = """\
  # A column that is not named here is copied under its name and with its type.
  # renamed: {new_name: old_name}
  # cast: [column]               of another type than before, each value exactly
  # computed: {column: "SQL of the columns before"}
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
    try:
        file = SpecFile(text.rstrip("\n") + "\n", key)
        attributes = file.attributes
        if copies is None and not with_feed and "source" not in attributes:
            raise _by_nothing(key)
        for left_out in ("once", "version_of", *(["changes"] if copies or not with_feed else [])):
            remove(attributes, left_out)
        for place in useless:
            if place[0] == "columns":
                remove(attributes["columns"][place[1]], str(place[-1]))
        if starts is None:
            remove(attributes, "live")
        elif "live" in attributes:
            put(attributes["live"], "starts", starts)
        if copies is not None:
            remove(attributes, "source")
            source = CommentedMap(kind="version", table=copies)
            source.fa.set_flow_style()
            insert_behind(attributes, "key", "source", source)
        elif (source := attributes.get("source")) is not None:
            if "tables" in source:
                _rename(source, "tables", following)
            if str(source.get("transform", "")).startswith("."):
                put(source, "transform", module + source["transform"])
        _name(attributes, key, following[key])
        return file.written(file.document)
    except (ValueError, LookupError, TypeError, YAMLError, yaml.YAMLError) as error:
        raise ConfigurationError(
            f"`{key}` is not written in its YAML in a way that this command can change.",
            state="No file was written.",
            remedy="Copy the file by hand, give the table its new key, and add `version_of`.",
        ) from error


def _name(attributes: CommentedMap, key: str, following: str) -> None:
    """Give a table the key of its next version, and say which table that is a version of."""
    from backfill_assets.core.spec.versions import key_of, name_of, number_of

    name, margin = name_of(key), " " * attributes.lc.key("key")[1]
    is_next = key == key_of(name, number_of(following) - 1)
    said = CommentedMap(table=name) if is_next else CommentedMap(table=name, before=key)
    put(attributes, "key", following)
    insert_behind(attributes, "key", "version_of", said, comment=indent(_MAPPINGS, margin))


def _rename(node: Any, at: Any, following: Mapping[str, str]) -> None:
    """Give the tables in a field the keys of their next versions."""
    value = node[at]
    if isinstance(value, CommentedMap | CommentedSeq):
        for each in range(len(value)) if isinstance(value, CommentedSeq) else list(value):
            _rename(value, each, following)
    elif value in following:
        put(node, at, following[value])


def _by_nothing(key: str) -> ConfigurationError:
    return ConfigurationError(
        f"`{key}` has no `source` beside its change feed: without both, nothing would fill the next version.",
        state="No file was written.",
        remedy="Add `--from version`, to copy and follow it; or leave `--no-stream` out.",
    )
