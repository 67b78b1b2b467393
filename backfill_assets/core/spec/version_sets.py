"""Versions that become current together: a new version, and those of every table that is made of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backfill_assets.core.spec.lakehouse import all_below
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.spec.versions import key_before, name_of


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
