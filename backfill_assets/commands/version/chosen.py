"""The new version that a command is about, with every version that becomes current together with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from backfill_assets.commands.project import NOTHING_READ, Project, ProjectTable
from backfill_assets.errors import BackfillAssetsError, ConfigurationError, PublishError, VersionError

if TYPE_CHECKING:
    from backfill_assets.core.spec.table import TableSpec
    from backfill_assets.core.spec.version_sets import VersionPair
    from backfill_assets.core.state.version_steps import VersionStep
    from backfill_assets.lake.table import LakeTable


@dataclass(frozen=True, slots=True)
class ChosenVersion:
    """A new version of a table, and those of all tables that are made of it.

    Args:
        pairs: Each new version with the one that it follows; what others are made of comes first.
    """

    project: Project
    key: str
    pairs: tuple[VersionPair, ...]
    specs: Mapping[str, TableSpec]

    def table(self, key: str) -> ProjectTable:
        """Return one of the tables."""
        return self.project.table(key)

    def lake(self, key: str, log: Callable[[str], None]) -> LakeTable:
        """Return the Delta table of one of them."""
        return self.project.lakehouse.table(self.specs[key], log)


def choose(project: Project, key: str) -> ChosenVersion:
    """Return the new version that a key names; by the name of a table, its newest version.

    Raises:
        ConfigurationError: There is no such version, or the one before it is gone.
        VersionError: The one before it is gone, and readers have it.
    """
    from backfill_assets.assets.factory import tables_of
    from backfill_assets.core.spec.version_sets import versions_together
    from backfill_assets.core.spec.versions import is_name, key_before, name_of

    _, specs = tables_of(project.definitions)
    versions = new_versions(specs, key)
    if not versions or (key not in versions and not is_name(key)):
        known = sorted(one for one, spec in specs.items() if spec.version_of)
        raise ConfigurationError(
            f"There is no new version `{key}` in `{project.module}`."
            if key in versions or not is_name(key)
            else f"`{key}` has no new version in `{project.module}`.",
            state=NOTHING_READ,
            remedy=f"There are: {', '.join(known)}."
            if known
            else f"`backfill-assets version new {name_of(key)}` writes the spec of one.",
        )
    chosen = versions[-1] if is_name(key) else key
    version = specs[chosen].version_of
    if version and (before := key_before(chosen, version)) not in specs:
        if problem := current_without_spec(project).get(before):
            raise problem
        raise ConfigurationError(
            f"`{chosen}` has nothing to be held against: `{before}`, the version before, is retired and gone.",
            state=NOTHING_READ,
            remedy=f"`backfill-assets version new {chosen}` writes the spec of the next one.",
        )
    return ChosenVersion(project, chosen, tuple(versions_together(chosen, specs)), specs)


def new_versions(specs: Mapping[str, TableSpec], key: str) -> list[str]:
    """Return the new versions of the table that a key is of, the newest last."""
    from backfill_assets.core.spec.versions import name_of, number_of

    return sorted(
        (one for one, spec in specs.items() if spec.version_of and name_of(one) == name_of(key)), key=number_of
    )


def choose_current(project: Project, key: str) -> ChosenVersion:
    """Return the new version that a key names; by the name of a table, the one that readers have.

    Where they have the first, or the newest switch was not noted, and it led back, the one that it left: who repeats a
    command that was killed is told so, and goes back once.

    Raises:
        ConfigurationError: There is no such version in the project, or the one before it is gone.
        VersionError: Readers have the first version, and nobody has gone back to it; or one that has no spec.
    """
    from backfill_assets.assets.factory import tables_of
    from backfill_assets.core.spec.versions import is_name, key_before, name_of
    from backfill_assets.core.state.current_versions import UNCHANGED, without_spec
    from backfill_assets.core.state.version_steps import is_noted, left_by_the_newest_switch

    if not is_name(key):
        return choose(project, key)
    _, specs = tables_of(project.definitions)
    now = project.lakehouse.current_table().read()
    current, known = now.key_of(key), now.by_name.get(key)
    steps = project.lakehouse.version_steps(key) if known else []
    if known and (current == key or not is_noted(known, steps)):
        left = left_by_the_newest_switch(known, steps)
        version = specs[left].version_of if left in specs else None
        if version and key_before(left, version) == current:
            return choose(project, left)
    if problem := without_spec(now, specs).get(current):
        raise problem
    if current == key and any(spec.version_of and name_of(one) == key for one, spec in specs.items()):
        raise VersionError(
            f"Readers of `{key}` have its first version, so there is nothing to go back from.",
            state=UNCHANGED,
            remedy=f"`backfill-assets version status {key}` shows its versions.",
        )
    return choose(project, current)


def current_without_spec(project: Project) -> Mapping[str, BackfillAssetsError]:
    """Return, by key, what is wrong with versions that readers are given and of which a project has no spec."""
    from backfill_assets.assets.factory import tables_of

    return project.lakehouse.current_table().without_spec(tables_of(project.definitions)[1])


def record(project: Project, *steps: VersionStep, log: Callable[[str], None]) -> None:
    """Append what was done to the log of versions; where that cannot be, what was done stands all the same."""
    try:
        project.lakehouse.add_version_steps(steps)
    except PublishError as error:
        log(f"The log of versions could not be written: {error}")


def who() -> str:
    """Return who runs this command."""
    from backfill_assets.runs.run_tags import launched_by

    with suppress(OSError, KeyError):
        return launched_by({})
    return ""


def now_iso() -> str:
    """Return what time it is, in ISO format."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
