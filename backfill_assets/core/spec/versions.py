"""Versions of a table: what makes one a new version of another, and how its rows follow from those before it.

The first version is the table as it always was, `bronze/orders`; later ones are `bronze/orders__v2` and so on, each a
table of its own. What both have is said once, here, and is used to copy rows and to compare them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from backfill_assets.core.spec.fields import Strict, in_words, unknown
from backfill_assets.core.spec.source_spec import TableFacts

_NUMBERED = re.compile(r"(?P<name>.+)__v(?P<number>[1-9][0-9]*)")


class VersionOf(Strict):
    """What a table is a new version of. Every column that both have stands for itself unless something is said."""

    table: str = Field(description="Key of the first version, and the name that readers use: `bronze/orders`.")
    before: str | None = Field(
        default=None, description="Key of the version that it is compared with. Without it the one numbered before it."
    )
    renamed: dict[str, str] = Field(default_factory=dict[str, str], description="New names of columns: `new: old`.")
    cast: list[str] = Field(
        default_factory=list[str],
        description="Columns of another type than before. A value that the new type cannot hold exactly is refused.",
    )
    computed: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="Columns whose value is a Spark SQL expression of the columns before: `net: amount - tax`.",
    )
    dropped: list[str] = Field(default_factory=list[str], description="Columns that there are no more.")
    new: list[str] = Field(
        default_factory=list[str], description="Columns that nothing before says anything of; they are not compared."
    )
    retired: bool = Field(
        default=False,
        description="The version before is given up and read no more: its spec may be gone. What was copied from it "
        "stays as it is, and is not launched again.",
    )

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        said = [*self.renamed, *self.computed, *self.new]
        if twice := sorted({name for name in said if said.count(name) > 1}):
            raise ValueError(f"{in_words(twice)} is said to be two things; a column is renamed, computed or new")
        if both := sorted({*self.cast} & {*self.computed, *self.new}):
            raise ValueError(f"cast: {in_words(both)} is computed or new already; write the cast in its expression")
        return self


def number_of(key: str) -> int:
    """Return the number of a version by its key: `bronze/orders` is 1, `bronze/orders__v2` is 2."""
    found = _NUMBERED.fullmatch(key)
    return int(found["number"]) if found else 1


def name_of(key: str) -> str:
    """Return the name that all versions of a table have: the key of the first."""
    found = _NUMBERED.fullmatch(key)
    return found["name"] if found else key


def is_name(text: str) -> bool:
    """Say whether a text names a table, whatever its version, and not one version of it."""
    return _NUMBERED.fullmatch(text) is None


def key_of(name: str, number: int) -> str:
    """Return the key of a version."""
    return name if number == 1 else f"{name}__v{number}"


def key_before(key: str, version: VersionOf) -> str:
    """Return the key of the version that another follows."""
    return version.before or key_of(version.table, number_of(key) - 1)


@dataclass(frozen=True, slots=True)
class FromBefore:
    """Where a column of a new version comes from.

    Args:
        text: A column of the version before; for `computed` an expression of Spark SQL.
    """

    how: Literal["same", "cast", "computed"]
    text: str


def columns_from(new: TableFacts, version: VersionOf) -> dict[str, FromBefore]:
    """Return where each column of a new version comes from; those that are new are left out."""
    found: dict[str, FromBefore] = {}
    for name in new.columns:
        if name in version.new:
            continue
        if name in version.computed:
            found[name] = FromBefore("computed", version.computed[name])
        else:
            found[name] = FromBefore("cast" if name in version.cast else "same", version.renamed.get(name, name))
    return found


def version_problems(new: TableFacts, version: VersionOf, old: TableFacts) -> list[str]:
    """Say in which points what a table is said to follow contradicts the columns of both."""
    named = {
        "renamed": list(version.renamed),
        "cast": version.cast,
        "computed": list(version.computed),
        "new": version.new,
    }
    problems = [
        f"{field}: {unknown(name, list(new.columns), 'column')}"
        for field, names in named.items()
        for name in names
        if name not in new.columns
    ]
    problems += [
        f"dropped: {unknown(name, list(old.columns), f'column of `{old.key}`')}"
        for name in version.dropped
        if name not in old.columns
    ]
    origin = columns_from(new, version)
    for name, source in origin.items():
        if source.how != "computed":
            problems += _problems_of_column(name, source, new, old)
    used = {source.text for source in origin.values() if source.how != "computed"}
    lacking = [name for name in old.columns if name not in used and name not in version.dropped]
    if lacking:
        problems.append(
            f"{in_words(lacking)} of `{old.key}` comes into no column; name it in `dropped`, or where it goes in "
            "`renamed`"
        )
    if both := sorted(used & set(version.dropped)):
        problems.append(f"dropped: {in_words(both)} comes into a column all the same")
    if new.event_time in version.new:
        problems.append(f"new: `{new.event_time}` says when it happened; without it nothing can be compared")
    return problems


def _problems_of_column(name: str, source: FromBefore, new: TableFacts, old: TableFacts) -> list[str]:
    if source.text not in old.columns:
        where = "renamed" if source.text != name else "columns"
        return [
            f"{where}: `{old.key}` has no column `{source.text}`; say where `{name}` comes from in `renamed` or "
            "`computed`, or that it is `new`"
        ]
    was, now = old.columns[source.text].type, new.columns[name].type
    if was != now and source.how == "same":
        return [f"cast: `{name}` is `{now}`, and was `{was}`: name it here if each value is to be carried over"]
    return []


def copy_problems(new: TableFacts, version: VersionOf, old: TableFacts) -> list[str]:
    """Say why a version cannot be copied from an earlier one, in which rows are found by when they happened.

    | here            | before               |         |
    |-----------------|----------------------|---------|
    | `at`            | `at`                 |         |
    | `seen`, renamed | `at`                 |         |
    | `at`, cast      | `at`, by days of UTC |         |
    | `at`, cast      | `at`, by other days  | refused |
    | `at`, computed  | `at`                 | refused |
    | `paid_at`       | `at`                 | refused |
    """
    origin = columns_from(new, version).get(new.event_time)
    right = [FromBefore("same", old.event_time)]
    right += [FromBefore("cast", old.event_time)] if old.time_zone == "UTC" else []
    if origin in right:
        return []
    return [
        f"source: rows are copied from the partitions of `{old.key}`, in which they lie by its `{old.event_time}`; by "
        f"`{new.event_time}` they lie in others, and would be lost. Name another `source`"
    ]


def key_problems(key: str, version: VersionOf | None, *, is_needed: bool) -> list[str]:
    """Say whether a key is one that a version may have.

    Args:
        is_needed: Whether the table's source rests on what `version_of` says.
    """
    if version is None:
        needed = ["version_of: `kind: version` needs it; it says how the rows before become those of now"] * is_needed
        named = f"key: `{key}` is what a version of `{name_of(key)}` is called; say `version_of`, or call it otherwise"
        return needed or [named] * (not is_name(key))
    problems: list[str] = []
    if name_of(key) == key or name_of(key) != version.table or number_of(key) < 2:
        problems.append(
            f"version_of: a new version of `{version.table}` is called `{key_of(version.table, 2)}` or higher"
        )
    elif name_of(before := key_before(key, version)) != version.table or number_of(before) >= number_of(key):
        problems.append(f"version_of.before: `{before}` is no earlier version of `{version.table}`")
    if name_of(version.table) != version.table:
        problems.append(
            f"version_of.table: `{version.table}` is a version itself; name the first, `{name_of(version.table)}`"
        )
    return problems


def versions_mixed(inputs: Mapping[str, frozenset[str]]) -> list[tuple[str, str]]:
    """Return the versions of one table of which another is made, in pairs: its content would be there twice.

    Args:
        inputs: By the table's own input, every table that this one is made of, itself among them.
    """
    by_name: dict[str, str] = {}
    mixed: list[tuple[str, str]] = []
    for keys in inputs.values():
        for key in sorted(keys):
            first = by_name.setdefault(name_of(key), key)
            if first != key:
                mixed.append((first, key))
    return mixed
