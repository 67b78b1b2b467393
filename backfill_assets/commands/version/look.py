"""`backfill-assets version plan` and `status`: what is to be done with new versions, and how far it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from backfill_assets.commands.project import Project
from backfill_assets.commands.terminal import definitions_option, json_option, new_console, one_message_for_an_error
from backfill_assets.commands.version.chosen import ChosenVersion, choose, current_without_spec
from backfill_assets.core.words import seconds_in_words

if TYPE_CHECKING:
    from rich.table import Table as Shown

    from backfill_assets.core.spec.version_sets import VersionPair
    from backfill_assets.core.state.current_versions import CurrentVersions
    from backfill_assets.core.state.version_steps import VersionStep


@click.command()
@click.argument("key")
@json_option
@definitions_option
def plan(key: str, *, as_json: bool, module: str) -> None:
    """Say how the new version KEY, and those of every table made of it, come up; what it costs; and what to type.

    Nothing is written.

    \b
    Examples:
      backfill-assets version plan bronze/orders
    """
    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console(stderr=True)
        chosen = choose(project, key)
        with console.status(f"Looking at {chosen.key}"):
            found = [_planned(chosen, pair, console.log) for pair in chosen.pairs]
            not_followed = _not_forked(chosen)
    if as_json:
        tables = [asdict(one) for one in found]
        body = {"version": chosen.key, "tables": tables, "not_forked": not_followed, "commands": _commands(chosen)}
        click.echo(json.dumps(body, indent=1))
        return
    answer = new_console()
    answer.print(_plan_as_table(found))
    for one in found:
        answer.print(f"{one.new}: {one.why}.", highlight=False, markup=False, soft_wrap=True)
    if not_followed:
        answer.print(
            f"[bold red]{', '.join(not_followed)}[/] is made of what is replaced, and has no version for it: the "
            "cut-over is refused until it has one (`version new --downstream`) or is named with `--not-forked`.",
            highlight=False,
        )
    for command in _commands(chosen):
        answer.print(f"  {command}", highlight=False, markup=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class PlannedVersion:
    """What will be done with one new version.

    Args:
        partitions: Of history, that it has until now.
        rows: That the version before has published.
        seconds: About so long the copy takes, at least and at most.
        not_compared: In words.
    """

    before: str
    new: str
    strategy: str
    why: str
    partitions: int
    rows: int
    seconds: tuple[float, float]
    not_compared: tuple[str, ...]


def _planned(chosen: ChosenVersion, pair: VersionPair, log: Callable[[str], None]) -> PlannedVersion:
    import math

    from backfill_assets.commands.time_and_cost import past_of
    from backfill_assets.core.history.estimate import seconds_of, work_of
    from backfill_assets.core.history.version_comparison import not_compared
    from backfill_assets.core.spec.history import history_of
    from backfill_assets.core.spec.version_strategy import strategy_of
    from backfill_assets.core.state.fence import first_fence

    new, before = chosen.specs[pair.new], chosen.specs[pair.before]
    strategy, fence = strategy_of(new, before), first_fence(new)
    until = min(datetime.now(UTC), fence.at_utc) if fence else datetime.now(UTC)
    partitions = len(history_of(new).until(until))
    rows = sum(known.partition.rows for known in chosen.lake(pair.before, log).published().values())
    past, _ = past_of(chosen.table(pair.before), log)
    chunks = max(1, math.ceil(partitions / new.max_partitions_per_chunk))
    seconds = seconds_of([work_of(partitions, rows) // chunks] * chunks, past)
    left_out = tuple(not_compared(new, before))
    return PlannedVersion(
        pair.before,
        pair.new,
        strategy.name,
        strategy.why,
        partitions,
        rows=rows,
        seconds=seconds,
        not_compared=left_out,
    )


def _not_forked(chosen: ChosenVersion) -> list[str]:
    from backfill_assets.core.spec.version_sets import not_forked

    return not_forked(chosen.pairs, chosen.specs)


def _commands(chosen: ChosenVersion) -> list[str]:
    """Return what to type, in order."""
    streams = [pair.new for pair in chosen.pairs if chosen.specs[pair.new].live]
    follows = any(chosen.specs[pair.new].source.is_of_version and pair.new not in streams for pair in chosen.pairs)
    return [
        f"backfill-assets version make {chosen.key}",
        *(f"backfill-assets live {key}    # beside the old one's; both run on" for key in streams),
        f"backfill-assets version copy {chosen.key}{' --follow' if follows else ''}",
        f"backfill-assets version compare {chosen.key}",
        f"backfill-assets version cutover {chosen.key}",
    ]


def _plan_as_table(found: Sequence[PlannedVersion]) -> Shown:
    from rich.markup import escape
    from rich.table import Table as Shown

    shown = Shown(title="New versions", title_justify="left", show_lines=True)
    for name in ("version", "how", "partitions", "rows before", "time", "not compared"):
        shown.add_column(name, justify="right" if name in ("partitions", "rows before") else "left", overflow="fold")
    for one in found:
        least, most = map(seconds_in_words, one.seconds)
        time = least if least == most else f"{least} to {most}"
        cells = (
            f"{one.new}\nbeside {one.before}",
            one.strategy,
            f"{one.partitions:,}",
            f"{one.rows:,}",
            f"about {time}",
            "\n".join(one.not_compared),
        )
        shown.add_row(*map(escape, cells))
    return shown


@click.command()
@click.argument("key", required=False)
@json_option
@definitions_option
def status(key: str | None, *, as_json: bool, module: str) -> None:
    """Show every version of the table KEY side by side, or of all tables that have more than one, and what comes next.

    Nothing is written.

    \b
    Examples:
      backfill-assets version status
      backfill-assets version status bronze/orders --json
    """
    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console(stderr=True)
        with console.status("Looking at the versions"):
            found = look_at_versions(project, key, log=console.log)
    if as_json:
        click.echo(json.dumps({"versions": [asdict(one) for one in found]}, indent=1))
    elif found:
        new_console().print(_status_as_table(found))
    else:
        new_console().print("No table has more than one version.")


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """How far one version is.

    Args:
        lacking: Partitions that are complete at its source and not published as that would make them.
        live: How its stream stands, in words.
        compared: What the newest comparison said, and when.
        following: What comes next, as it is typed behind `backfill-assets`; nothing of a version that is done with.
        problem: In words, with what to do: readers are given it, and it has no spec.
    """

    name: str
    key: str
    state: str
    since: str = ""
    published: int = 0
    rows: int = 0
    lacking: int | None = None
    live: str = ""
    compared: str = ""
    following: str = ""
    problem: str = ""


def look_at_versions(project: Project, key: str | None, *, log: Callable[[str], None]) -> list[VersionStatus]:
    """Return how far every version of a table is; of all tables that have several, if none is named.

    Raises:
        ConfigurationError: The table has no new version.
    """
    from backfill_assets.assets.factory import tables_of
    from backfill_assets.core.spec.versions import name_of, number_of

    _, specs = tables_of(project.definitions)
    without = current_without_spec(project)
    names = sorted({name_of(one) for one, spec in specs.items() if spec.version_of} | set(map(name_of, without)))
    if key is not None and name_of(key) not in names:
        choose(project, name_of(key))  # says so
    now = project.lakehouse.current_table().read()
    found: list[VersionStatus] = []
    for name in names if key is None else [name_of(key)]:
        steps = project.lakehouse.version_steps().of(name)
        versions = sorted((one for one in specs if name_of(one) == name), key=number_of)
        found += [_status_of(project, one, now, steps, log) for one in versions]
        wrong = [(one, str(why)) for one, why in without.items() if name_of(one) == name]
        found += [VersionStatus(name, one, "current without a spec", problem=why) for one, why in wrong]
    return found


def _status_of(
    project: Project, key: str, now: CurrentVersions, steps: Sequence[VersionStep], log: Callable[[str], None]
) -> VersionStatus:
    from backfill_assets.commands.status import live_in_words
    from backfill_assets.commands.version.make import lacks
    from backfill_assets.core.spec.versions import key_before, name_of
    from backfill_assets.core.state.version_steps import newest_comparison

    name, table = name_of(key), project.table(key)
    known = now.by_name.get(name)
    is_current = now.key_of(name) == key
    lake = project.lakehouse.table(table.spec, log)
    state = "current" if is_current else "retired" if now.is_retired(key) else "made" if lake.exists() else "not made"
    since = known.since[:19].replace("T", " ") if known and is_current else ""
    if state in ("not made", "retired"):
        following = f"version make {key}" if state == "not made" else ""
        return VersionStatus(name, key, state, following=following)
    published = lake.published()
    lacking = len(lacks(project, key, log))
    of_this = [step for step in steps if step.what == "compared" and step.key == key]
    compared, is_equal = newest_comparison(of_this)
    following = ""
    version = table.spec.version_of
    before = key_before(key, version) if version else ""
    goes_nowhere = is_current and (before not in table.specs or now.is_retired(before))
    follows = not table.spec.source.is_of_version and any(
        table.specs[source.table].version_of for source in table.spec.inputs
    )
    if is_current and version and not goes_nowhere:
        following = f"version retire {before}"
    elif version and not follows and not goes_nowhere:  # what is made of a new version is switched with it
        following = f"version {'copy' if lacking else 'cutover' if is_equal else 'compare'} {key}"
    rows = sum(one.partition.rows for one in published.values())
    live = live_in_words(table, log)[0] if table.spec.live else ""
    return VersionStatus(
        name,
        key,
        state,
        since,
        len(published),
        rows=rows,
        lacking=lacking,
        live=live,
        compared=compared,
        following=following,
    )


def _status_as_table(found: Sequence[VersionStatus]) -> Shown:
    from rich.markup import escape
    from rich.table import Table as Shown

    shown = Shown(title="Versions", title_justify="left", show_lines=True)
    for name in ("version", "state", "published", "lacking", "stream", "compared", "next"):
        shown.add_column(name, justify="right" if name in ("lacking",) else "left", overflow="fold")
    for one in found:
        cells = (
            one.key,
            f"{one.state}\nsince {one.since}" if one.since else one.state,
            f"{one.published:,} partitions\n{one.rows:,} rows" if one.published else "",
            "" if one.lacking is None else f"{one.lacking:,}",
            one.live,
            one.compared,
            one.problem or one.following,
        )
        style = "bold red" if one.problem else "green" if one.state == "current" else None
        shown.add_row(*map(escape, cells), style=style)
    return shown
