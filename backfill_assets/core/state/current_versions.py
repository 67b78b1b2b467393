"""Which version of each table readers are given: one small map, replaced as a whole by each switch. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from backfill_assets.core.spec.versions import name_of, number_of
from backfill_assets.errors import VersionError

UNCHANGED = "Readers get what they got before."


@dataclass(frozen=True, slots=True)
class CurrentVersion:
    """The version that a name stands for.

    Args:
        path: Folder of the version's table.
        since: Instant in ISO format; empty for a first version to which nobody has switched.
        by: Who switched to it.
        retired: Keys of versions that are given up; no switch goes back to them.
    """

    name: str
    key: str
    path: str
    since: str
    by: str
    reason: str
    retired: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """The version's number."""
        return number_of(self.key)


@dataclass(frozen=True, slots=True)
class CurrentVersions:
    """The version of every name that was ever switched; every other name stands for its first version.

    Args:
        generation: Counts the switches, from 0.
        switch_id: Of the newest switch.
    """

    generation: int = 0
    switch_id: str = ""
    by_name: Mapping[str, CurrentVersion] = field(default_factory=dict[str, CurrentVersion])

    def key_of(self, name: str) -> str:
        """Return the key of the version that a name, or a version's key, stands for now."""
        known = self.by_name.get(name_of(name))
        return known.key if known else name_of(name)

    def is_retired(self, key: str) -> bool:
        """Say whether a version was given up."""
        known = self.by_name.get(name_of(key))
        return known is not None and key in known.retired


@dataclass(frozen=True, slots=True)
class Switch:
    """What a switch is to do, all of it in one commit.

    Args:
        switch_id: One that no other switch has.
        to: New key by name.
        expected: Key by name that it was decided on: of the names that change, and of all that they are made of.
        paths: Folder of each new key; of a version that is given up, where the one lies that is current.
        at: Instant in ISO format.
        retires: Keys of versions that are given up by it.
    """

    switch_id: str
    to: Mapping[str, str]
    expected: Mapping[str, str]
    paths: Mapping[str, str]
    at: str
    by: str
    reason: str
    retires: tuple[str, ...] = ()


def switched(now: CurrentVersions, switch: Switch) -> CurrentVersions:
    """Return the map after a switch.

    | now             | expected        | to              |                                   |
    |-----------------|-----------------|-----------------|-----------------------------------|
    | `orders`        | `orders`        | `orders__v2`    | switched                          |
    | `orders__v2`    | `orders`        | `orders__v2`    | refused: somebody was first       |
    | `orders`        | `orders__v2`    | `sales__v2`     | refused: made of what is not current |
    | `orders__v2`    | `orders__v2`    | `orders`        | switched back                     |
    | `orders__v2`, `orders` retired | `orders__v2` | `orders` | refused                        |

    Raises:
        VersionError: It was decided on versions that are not current any more, or leads to one that was retired.
    """
    others = {name: now.key_of(name) for name, key in switch.expected.items() if now.key_of(name) != key}
    if others:
        said = "; ".join(
            f"`{name}` is `{found}`{_since(now, name)}, not `{switch.expected[name]}`" for name, found in others.items()
        )
        raise VersionError(
            f"The switch was decided on versions that are not current any more: {said}.",
            state=UNCHANGED,
            remedy="Look with `backfill-assets version status`, and decide again.",
            found=others,
        )
    if gone := [key for key in switch.to.values() if now.is_retired(key)]:
        raise VersionError(
            f"`{gone[0]}` is retired: its stream has stopped, and what has arrived since is not in it.",
            state=UNCHANGED,
            remedy="Make a new version of the table that is current instead.",
        )
    by_name = dict(now.by_name)
    for name, key in switch.to.items():
        retired = by_name[name].retired if name in by_name else ()
        by_name[name] = CurrentVersion(
            name, key, switch.paths[key], switch.at, switch.by, reason=switch.reason, retired=retired
        )
    for key in switch.retires:
        name = name_of(key)
        known = by_name.get(name) or CurrentVersion(name, name, switch.paths[name], "", "", reason="")  # never switched
        by_name[name] = replace(known, retired=tuple(dict.fromkeys((*known.retired, key))))
    return CurrentVersions(now.generation + 1, switch.switch_id, by_name)


def without_spec(now: CurrentVersions, keys: Collection[str]) -> dict[str, VersionError]:
    """Return, by key, what is wrong with versions that readers are given and of which there is no spec any more.

    Where a name has no spec at all, its table was given up as a whole: that is nobody's mistake.

    | current      | specs                  |                 |
    |--------------|------------------------|-----------------|
    | `orders__v2` | `orders`, `orders__v2` |                 |
    | `orders__v2` | `orders`               | `orders__v2`    |
    | `orders`     | `orders__v2`           | `orders`        |
    | never said   | `orders__v2`           | `orders`        |
    | `orders__v2` |                        |                 |

    Args:
        keys: Of every spec.
    """
    given = {name: now.key_of(name) for name in sorted(names_of(keys))}
    return {
        key: VersionError(
            f"Readers of `{name}` are given `{key}`, of which the project has no spec: nobody launches, streams or "
            "checks it.",
            state=UNCHANGED,
            remedy="Put its spec back, and switch to another version before you remove it."
            + ("" if name in now.by_name else " Where it was never made, `backfill-assets version cutover` switches."),
        )
        for name, key in given.items()
        if key not in keys
    }


def _since(now: CurrentVersions, name: str) -> str:
    known = now.by_name.get(name)
    return f" since {known.since[:19].replace('T', ' ')} by {known.by or 'somebody'}" if known and known.since else ""


def names_of(keys: Iterable[str]) -> list[str]:
    """Return the names of some versions, each once, in order."""
    return list(dict.fromkeys(map(name_of, keys)))
