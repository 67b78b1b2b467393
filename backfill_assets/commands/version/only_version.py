"""The first switch of a name where its first version never was: there is nothing to hold the new one against."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import date

from backfill_assets.commands.project import Project
from backfill_assets.commands.version.chosen import ChosenVersion, new_versions, now_iso, record, who
from backfill_assets.commands.version.switching import Asked, Switched, record_missing
from backfill_assets.errors import VersionError


def choose_only(project: Project, key: str) -> ChosenVersion | None:
    """Return a version that follows one which is not here and has no spec any more; None if it is another case.

    So it is where a project that has left its first version behind begins anew: for a developer, in CI, elsewhere. The
    version may be current already: who repeats a command that was killed is told so.
    """
    from backfill_assets.assets.factory import tables_of
    from backfill_assets.core.spec.version_sets import VersionPair
    from backfill_assets.core.spec.versions import is_name, key_before
    from backfill_assets.table.readers import log_of

    _, specs = tables_of(project.definitions)
    versions = new_versions(specs, key)
    chosen = versions[-1] if versions and is_name(key) else key
    version = specs[chosen].version_of if chosen in versions else None
    if version is None or (follows := key_before(chosen, version)) in specs:
        return None
    lakehouse, current = project.lakehouse, project.lakehouse.current_table().read().key_of(chosen)
    before = follows if current == chosen else current
    is_made = {one: log_of(lakehouse.session, lakehouse.table_path(one)).exists() for one in (before, chosen)}
    if before in specs or is_made[before] or not is_made[chosen]:
        return None
    return ChosenVersion(project, chosen, (VersionPair(before, chosen),), specs)


def switch_to_the_only_one(chosen: ChosenVersion, asked: Asked, log: Callable[[str], None]) -> Switched:
    """Make a version current whose name has nothing to give readers yet; leave it as it is where it is current.

    Raises:
        VersionError: It is made of what is not current, or it was to be compared up to a day. Nothing was changed.
    """
    from backfill_assets.core.spec.version_sets import made_of_others
    from backfill_assets.core.state.current_versions import UNCHANGED, Switch, switched
    from backfill_assets.core.state.version_steps import VersionStep

    (pair,) = chosen.pairs
    if isinstance(asked.until, date):
        raise VersionError(
            f"`{pair.before}` is not there: `{pair.new}` cannot be held against it before {asked.until}.",
            state=UNCHANGED,
            remedy="Leave `--before` out.",
        )
    current = chosen.project.lakehouse.current_table()
    now = current.read()
    if now.key_of(pair.name) == pair.new:
        record_missing(chosen, asked, now, log)
        return Switched(now, is_new=False)
    switch = Switch(
        switch_id=uuid.uuid4().hex,
        to=asked.to,
        expected={**made_of_others([pair.new], chosen.specs), **asked.now},
        paths={pair.new: chosen.project.lakehouse.table_path(pair.new)},
        at=now_iso(),
        by=who(),
        reason=asked.why or "the version before is not there",
    )
    switched(now, switch)
    saved = current.switch(switch)
    step = VersionStep(
        *(switch.at, "cut over", pair.new, pair.before, switch.by),
        reason=switch.reason,
        versions={pair.new: chosen.lake(pair.new, log).version()},
        switch_id=switch.switch_id,
        detail="held against nothing: the version before is not there",
    )
    record(chosen.project, step, log=log)
    return Switched(saved)
