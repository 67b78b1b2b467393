"""Versions that become current together: a new version, and those of every table that is made of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from backfill_assets.core.spec.lakehouse import all_below
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.spec.versions import key_before, name_of, number_of


@dataclass(frozen=True, slots=True)
class VersionPair:
    """A new version of a table, and the one that it follows."""

    before: str
    new: str

    @property
    def name(self) -> str:
        """What readers call both."""
        return name_of(self.new)


def versions_together(key: str, specs: Mapping[str, TableSpec]) -> list[VersionPair]:
    """Return a new version and the versions of all tables that are made of it, what others are made of first.

    Args:
        key: Of a new version.
        specs: Of all tables of the lakehouse, by key.
    """
    chosen = {one for one, spec in specs.items() if spec.version_of and (one == key or key in all_below(one, specs))}
    ordered = sorted(chosen, key=lambda one: (len(all_below(one, specs)), one))
    pairs: list[VersionPair] = []
    for one in ordered:
        version = specs[one].version_of
        assert version is not None, "only versions were chosen"  # noqa: S101 (by the caller)
        if (before := key_before(one, version)) in specs:  # else it is retired and gone
            pairs.append(VersionPair(before, one))
    return pairs


def pairs_to_switch(
    pairs: Sequence[VersionPair], current: Callable[[str], str], *, goes_back: bool = False
) -> list[VersionPair]:
    """Return one pair for each name: several versions of one table may be made of the same version of another.

    | pairs of a name    | current | switched | back     |
    |--------------------|---------|----------|----------|
    | 1 and 2, 2 and 3   | 1       | 1 to 2   | -        |
    | 1 and 2, 2 and 3   | 2       | 2 to 3   | 2 to 1   |
    | 1 and 2, 2 and 3   | 3       | -        | 3 to 2   |
    | 1 and 2, 1 and 3   | 1       | 1 to 3   | -        |

    Where the first pair was switched before, those that were switched with it. Of several names, those are left out on
    the way back that stand for the earlier version already, unless all do.

    Args:
        pairs: What others are made of comes first.
        current: Returns the key of the version that a name stands for.
    """

    def ends(pair: VersionPair) -> tuple[str, str]:
        return (pair.new, pair.before) if goes_back else (pair.before, pair.new)

    is_done = bool(pairs) and current(pairs[0].name) == ends(pairs[0])[1]
    by_fit = sorted(pairs, key=lambda pair: (current(pair.name) == ends(pair)[is_done], number_of(pair.new)))
    best = {pair.name: pair for pair in by_fit}
    chosen = [pair for pair in pairs if best[pair.name] == pair]
    return ([pair for pair in chosen if current(pair.name) != pair.before] if goes_back else []) or chosen


def made_of_what_goes(to: Mapping[str, str], specs: Mapping[str, TableSpec]) -> dict[str, str]:
    """Return what is to become current, by key, and is made of a version that thereby is current no more, with that.

    Args:
        to: The key that each name is to stand for.
    """
    return {
        key: one for key in to.values() for one in sorted(all_below(key, specs)) if to.get(name_of(one), one) != one
    }


def left_behind(to: Mapping[str, str], current: Mapping[str, str], specs: Mapping[str, TableSpec]) -> dict[str, str]:
    """Return the versions that stay current, and are made of one that is to be current no more, each with that.

    A table of one version alone is made of whichever its spec names, and stays as it is.

    Args:
        to: The key that each name is to stand for.
        current: The key that each name stands for.
    """
    goes = {current[name] for name, key in to.items() if current.get(name, key) != key}
    return {
        key: one
        for name, key in sorted(current.items())
        if name not in to and key in specs and specs[key].version_of
        for one in sorted(all_below(key, specs) & goes)
    }


def not_forked(pairs: Sequence[VersionPair], specs: Mapping[str, TableSpec]) -> list[str]:
    """Return the tables that are made of a version that is to be replaced, and have no version of their own for it."""
    replaced = {pair.before for pair in pairs}
    known = replaced | {pair.new for pair in pairs}
    return sorted(
        key
        for key in specs
        if key not in known and name_of(key) not in {pair.name for pair in pairs} and all_below(key, specs) & replaced
    )


def made_of_others(keys: Sequence[str], specs: Mapping[str, TableSpec]) -> dict[str, str]:
    """Return the key, by name, of every table that some versions are made of and that is not among them."""
    below = {one for key in keys for one in all_below(key, specs)} - set(keys)
    return {name_of(one): one for one in sorted(below)}


def followed_by(key: str, specs: Mapping[str, TableSpec]) -> list[str]:
    """Return the versions that follow a version, and do not say yet that it is given up."""
    return sorted(
        one
        for one, spec in specs.items()
        if spec.version_of and key_before(one, spec.version_of) == key and not spec.version_of.retired
    )


def read_by(key: str, specs: Mapping[str, TableSpec]) -> list[str]:
    """Return the tables that read a version: those made of it, and those that copy it."""
    return sorted(one for one, spec in specs.items() if any(source.table == key for source in spec.inputs))
