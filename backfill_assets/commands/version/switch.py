"""`backfill-assets version cutover` and `rollback`: which version readers are given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from backfill_assets.commands.project import Project
from backfill_assets.commands.terminal import definitions_option, json_option, new_console, one_message_for_an_error
from backfill_assets.commands.version.chosen import ChosenVersion, choose, choose_current
from backfill_assets.commands.version.compare import before_option, patience_option
from backfill_assets.commands.version.only_version import choose_only, switch_to_the_only_one
from backfill_assets.commands.version.switching import (
    UNCHANGED,
    Asked,
    Switched,
    one_of_each_name,
    refuse_not_forked,
    switch_versions,
)
from backfill_assets.errors import VersionError

if TYPE_CHECKING:
    from backfill_assets.core.state.current_versions import CurrentVersions

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
@patience_option
@except_option
@click.option(
    "--not-forked",
    multiple=True,
    metavar="KEY",
    help="Leave this table as it is, although it is made of the version before. Repeat it for each.",
)
@before_option
@click.option(
    "--accept-loss",
    "loss",
    metavar="NAME",
    default="",
    help="Switch to a version that lacks rows, where the table is not in production: its name, typed once more.",
)
@reason_option
@json_option
@definitions_option
def cutover(
    key: str,
    *,
    patience_seconds: float,
    exception: str,
    not_forked: tuple[str, ...],
    before_day: datetime | None,
    loss: str,
    reason: str,
    as_json: bool,
    module: str,
) -> None:
    """Give readers the new version KEY, and those of every table made of it, from one instant on.

    All are compared first, and only if they are equal one commit to `_current` switches all names together. A query
    that has begun ends on what it began with. The versions before go on being written: `version rollback` goes back.

    Readers by the path of a version, and streams, do not follow; they name the version that they read. Where the
    version before is gone from the project and was never made here, there is nothing to compare with.

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
        only = choose_only(project, key)
        chosen = only or one_of_each_name(choose(project, key))
        if loss:
            exception = _accepted(chosen, loss, exception)
        refuse_not_forked(chosen, not_forked)
        to = {pair.name: pair.new for pair in chosen.pairs}
        before = {pair.name: pair.before for pair in chosen.pairs}
        asked = Asked("cut over", to, before, reason, exception, until=before_day.date() if before_day else "before")
        with console.status(f"Comparing {chosen.key} with the version before"):
            if only:
                done = switch_to_the_only_one(only, asked, console.log)
            else:
                done = switch_versions(chosen, asked, patience_seconds=patience_seconds, log=console.log)
    _tell(done, chosen, as_json=as_json)


def _accepted(chosen: ChosenVersion, typed: str, exception: str) -> str:
    """Return why rows may be lost, or refuse a name that is not the table's."""
    from backfill_assets.core.spec.versions import name_of

    name = name_of(chosen.key)
    if typed != name:
        raise VersionError(
            f"`{typed}` is not the table's name, `{name}`.",
            state=UNCHANGED,
            remedy=f"Type it once more: `--accept-loss {name}`.",
        )
    return exception or "the loss is accepted: the table is not in production"


@click.command()
@click.argument("key")
@patience_option
@except_option
@reason_option
@json_option
@definitions_option
def rollback(key: str, *, patience_seconds: float, exception: str, reason: str, as_json: bool, module: str) -> None:
    """Give readers again what was before the new version KEY: all of its tables, in one commit.

    A table's name stands for the version that readers have. What is made of it and was not cut over stays as it is;
    what was, and has no earlier version any more, is a reason not to go back.

    Both are compared first: what has arrived since the cut-over must be in the version before as well. What only the
    new version has got, by a launch, is named, so that it can be launched in the other too. Rows that only the version
    before has are no reason to stay: they are told.

    \b
    Exit code:  0  the versions before are current
                2  they differ, or cannot be switched; nothing was changed

    \b
    Examples:
      backfill-assets version rollback bronze/orders__v2 --reason "totals of July are doubted"
    """
    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console(stderr=True)
        chosen = one_of_each_name(choose_current(project, key), goes_back=True)
        to = {pair.name: pair.before for pair in chosen.pairs}
        before = {pair.name: pair.new for pair in chosen.pairs}
        asked = Asked("rolled back", to, before, reason, exception, until="both")
        with console.status(f"Comparing {chosen.key} with the version before"):
            done = switch_versions(chosen, asked, patience_seconds=patience_seconds, log=console.log)
    _tell(done, chosen, as_json=as_json)


_DO_NOT_FOLLOW = (
    "A reader by path, or a stream, goes on reading the version that it names: start it again, with a new checkpoint, "
    "at the path of the current one."
)


def _tell(done: Switched, chosen: ChosenVersion, *, as_json: bool) -> None:
    """Say what is current now, what was not compared, and who does not follow."""
    now, names = done.now, [pair.name for pair in chosen.pairs]
    paths = {name: chosen.project.lakehouse.table_path(now.key_of(name)) for name in names}
    paths |= {name: now.by_name[name].path for name in names if name in now.by_name}  # else it was never switched
    stay = _named_by_tables(chosen, [one for pair in chosen.pairs for one in (pair.before, pair.new)], now)
    if as_json:
        body: dict[str, Any] = {
            "switched": done.is_new,
            "generation": now.generation,
            "current": {name: now.key_of(name) for name in names},
            "paths": paths,
            "not_compared": {one.new: list(one.not_compared) for one in done.found if one.not_compared},
            "differ": [str(one) for one in done.found if not one.is_equal],
            "do_not_follow": {"tables": stay, "others": _DO_NOT_FOLLOW},
        }
        click.echo(json.dumps(body, indent=1))
        return
    since = "now" if done.is_new else "already, and nothing was switched"
    said = [f"{name} is {now.key_of(name)} {since}, at {paths[name]}" for name in names]
    said += [f"{one}." for one in done.found if not one.is_equal]
    said += [f"Not compared: {what} ({one.new})." for one in done.found for what in one.not_compared]
    said += [f"{key} goes on being made of {', '.join(of)}, which is not current." for key, of in stay.items()]
    said.append(f"Generation {now.generation}. Readers by name have it from their next query on. {_DO_NOT_FOLLOW}")
    for line in said:
        new_console().print(line, highlight=False, markup=False, soft_wrap=True)


def _named_by_tables(chosen: ChosenVersion, keys: Sequence[str], now: CurrentVersions) -> dict[str, list[str]]:
    """Return, by key, the tables beside those that were switched which are made of a version that is not current."""
    from backfill_assets.core.spec.version_sets import read_by

    left = [key for key in keys if now.key_of(key) != key]
    found: dict[str, list[str]] = {}
    for key in left:
        for one in read_by(key, chosen.specs):
            if one not in keys:
                found.setdefault(one, []).append(key)
    return found
