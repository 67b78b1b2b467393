"""`backfill-assets version cutover` and `rollback`: which version readers are given."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from backfill_assets.commands.project import Project
from backfill_assets.commands.terminal import definitions_option, json_option, new_console, one_message_for_an_error
from backfill_assets.commands.version.chosen import ChosenVersion, choose, now_iso, record, who
from backfill_assets.commands.version.compare import compare_all, wait_option
from backfill_assets.errors import VersionError

if TYPE_CHECKING:
    from backfill_assets.core.history.version_comparison import VersionComparison
    from backfill_assets.core.state.current_versions import CurrentVersions
    from backfill_assets.core.state.version_steps import StepName

UNCHANGED = "Readers get what they got before."
_AGAIN = 3
"""So often two versions are compared if launches write them meanwhile."""

except_option = click.option(
    "--except",
    "exception",
    metavar="REASON",
    default="",
    help="Switch although they differ, for this reason; it is kept with what differs.",
)
reason_option = click.option("--reason", default="", help="Kept in `_current` and in the log of versions.")


@click.command()
@click.argument("key")
@wait_option
@except_option
@click.option(
    "--not-forked",
    multiple=True,
    metavar="KEY",
    help="Leave this table as it is, although it is made of the version before. Repeat it for each.",
)
@reason_option
@json_option
@definitions_option
def cutover(
    key: str,
    *,
    wait_seconds: float,
    exception: str,
    not_forked: tuple[str, ...],
    reason: str,
    as_json: bool,
    module: str,
) -> None:
    """Give readers the new version KEY, and those of every table made of it, from one instant on.

    All are compared first, and only if they are equal one commit to `_current` switches all names together. A query
    that has begun ends on what it began with. The versions before go on being written: `version rollback` goes back.

    Readers by the path of a version, and streams, do not follow; they name the version that they read.

    \b
    Exit code:  0  the new versions are current
                2  they differ, somebody was first, or they cannot be switched; nothing was changed

    \b
    Examples:
      backfill-assets version cutover bronze/orders__v2
      backfill-assets version cutover bronze/orders__v2 --except "refunds of 2023 are right only now"
    """
    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console(stderr=True)
        chosen = choose(project, key)
        refuse_not_forked(chosen, not_forked)
        to = {pair.name: pair.new for pair in chosen.pairs}
        before = {pair.name: pair.before for pair in chosen.pairs}
        asked = Asked("cut over", to, before, reason, exception)
        with console.status(f"Comparing {chosen.key} with the version before"):
            done = switch_versions(chosen, asked, wait_seconds=wait_seconds, log=console.log)
    _tell(done, chosen, as_json=as_json)


@click.command()
@click.argument("key")
@wait_option
@except_option
@reason_option
@json_option
@definitions_option
def rollback(key: str, *, wait_seconds: float, exception: str, reason: str, as_json: bool, module: str) -> None:
    """Give readers again what was before the new version KEY: all of its tables, in one commit.

    Both are compared first: what has arrived since the cut-over must be in the version before as well. What only the
    new version has got, by a launch, is named, so that it can be launched in the other too.

    \b
    Exit code:  0  the versions before are current
                2  they differ, or cannot be switched; nothing was changed

    \b
    Examples:
      backfill-assets version rollback bronze/orders__v2 --reason "totals of July are doubted"
    """
    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console(stderr=True)
        chosen = choose(project, key)
        to = {pair.name: pair.before for pair in chosen.pairs}
        before = {pair.name: pair.new for pair in chosen.pairs}
        asked = Asked("rolled back", to, before, reason, exception)
        with console.status(f"Comparing {chosen.key} with the version before"):
            done = switch_versions(chosen, asked, wait_seconds=wait_seconds, log=console.log)
    _tell(done, chosen, as_json=as_json)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person asks for: which names are to stand for which versions.

    Args:
        to: Key by name.
        now: Key by name that is expected to be current.
        exception: Why versions that differ are switched all the same.
    """

    what: StepName
    to: Mapping[str, str]
    now: Mapping[str, str]
    reason: str
    exception: str


def refuse_not_forked(chosen: ChosenVersion, left: Sequence[str]) -> None:
    """Refuse a cut-over beside which tables stay that are made of the version before.

    Raises:
        VersionError: There are such tables, and they are not named.
    """
    from backfill_assets.core.spec.version_sets import not_forked

    missing = [key for key in not_forked(chosen.pairs, chosen.specs) if key not in left]
    if missing:
        named = ", ".join(f"`{key}`" for key in missing)
        raise VersionError(
            f"{named} is made of what `{chosen.key}` replaces, and has no version that is made of the new one: readers "
            "would join rows of both.",
            state=UNCHANGED,
            remedy=f"Write one, `backfill-assets version new {chosen.pairs[0].name} --downstream`; or leave it as it "
            f"is, with `--not-forked {missing[0]}`.",
            tables=missing,
        )


def switch_versions(
    chosen: ChosenVersion, asked: Asked, *, wait_seconds: float, log: Callable[[str], None]
) -> CurrentVersions:
    """Compare versions, and make others of them current in one commit. What is so already is left as it is.

    Raises:
        VersionError: They differ, or somebody was first. Nothing was changed.
    """
    from backfill_assets.core.spec.version_sets import made_of_others
    from backfill_assets.core.state.current_versions import Switch, switched
    from backfill_assets.core.state.version_steps import VersionStep

    current = chosen.project.lakehouse.current_table()
    now = current.read()
    if all(now.key_of(name) == key for name, key in asked.to.items()):
        _record_missing(chosen, asked, now, log)
        return now
    paths = {key: chosen.project.lakehouse.table_path(key) for key in asked.to.values()}
    expected = {**made_of_others([*asked.to.values()], chosen.specs), **asked.now}
    switch = Switch(
        uuid.uuid4().hex, asked.to, expected, paths, now_iso(), by=who(), reason=asked.exception or asked.reason
    )
    switched(now, switch)  # before the work of comparing
    found = _compared(chosen, asked, wait_seconds, log)
    switch = replace(switch, at=now_iso())
    saved = current.switch(switch)
    differing = "; ".join(str(one) for one in found if not one.is_equal)
    detail = f"although {differing}" if differing else "equal"
    steps = [
        VersionStep(
            switch.at,
            asked.what,
            asked.to[one_name],
            asked.now[one_name],
            switch.by,
            reason=switch.reason,
            versions={one.before: one.before_version, one.new: one.new_version},
            rows=one.rows,
            equal=one.is_equal,
            switch_id=switch.switch_id,
            detail=detail,
        )
        for one, one_name in zip(found, asked.to, strict=True)
    ]
    record(chosen.project, *steps, log=log)
    return saved


def _compared(
    chosen: ChosenVersion, asked: Asked, wait_seconds: float, log: Callable[[str], None]
) -> list[VersionComparison]:
    """Compare, and again if a launch came between; raise if versions differ, unless that is excepted."""
    found: list[VersionComparison] = []
    for _ in range(_AGAIN):
        found = compare_all(chosen, wait_seconds=wait_seconds, log=log)
        differing = [one for one in found if not one.is_equal]
        if differing and not asked.exception:
            raise VersionError(
                f"{differing[0]}.",
                state=UNCHANGED,
                remedy=f"`backfill-assets version copy {chosen.key}` launches what the new version lacks, and `status` "
                "says which partitions of either wait for a launch; then repeat this. Or name the reason why they may "
                "differ with `--except REASON`.",
                tables=[one.new for one in differing],
            )
        if not (launched := _launched_since(chosen, found, log)):
            break
        log(f"{', '.join(launched)} was launched meanwhile; comparing again.")
    return found


def _launched_since(chosen: ChosenVersion, found: Sequence[VersionComparison], log: Callable[[str], None]) -> list[str]:
    """Return the versions that a launch has written since they were compared."""
    pinned = {one.before: one.before_version for one in found} | {one.new: one.new_version for one in found}
    return sorted(key for key, version in pinned.items() if chosen.lake(key, log).receipts_after(version))


def _record_missing(chosen: ChosenVersion, asked: Asked, now: CurrentVersions, log: Callable[[str], None]) -> None:
    """Note a switch that was saved by a command that was killed before it could note it."""
    from backfill_assets.core.state.version_steps import VersionStep

    steps = chosen.project.lakehouse.version_steps()
    lacking = [
        VersionStep(
            known.since, asked.what, known.key, asked.now[name], known.by, reason=known.reason, switch_id=now.switch_id
        )
        for name, known in now.by_name.items()
        if name in asked.to and not any(step.at == known.since and step.what == asked.what for step in steps.of(name))
    ]
    if lacking:
        record(chosen.project, *lacking, log=log)


def _tell(done: CurrentVersions, chosen: ChosenVersion, *, as_json: bool) -> None:
    """Say what is current now, and who does not follow."""
    names = [pair.name for pair in chosen.pairs]
    if as_json:
        body: dict[str, Any] = {"generation": done.generation, "current": {name: done.key_of(name) for name in names}}
        click.echo(json.dumps(body, indent=1))
        return
    console = new_console()
    for name in names:
        console.print(
            f"{name} is {done.key_of(name)} now, at {done.by_name[name].path}", highlight=False, soft_wrap=True
        )
    console.print(
        f"Generation {done.generation}. Readers by name have it from their next query on. A reader by path, or a "
        "stream, goes on reading the version that it names: start it again, with a new checkpoint, at the path above.",
        highlight=False,
        soft_wrap=True,
    )
