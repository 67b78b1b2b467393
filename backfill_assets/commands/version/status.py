"""`backfill-assets version status`: how far every version of a table is, and what comes next."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from backfill_assets.commands.project import Project
from backfill_assets.commands.terminal import definitions_option, json_option, new_console, one_message_for_an_error
from backfill_assets.commands.version.chosen import choose, current_without_spec
from backfill_assets.errors import BackfillAssetsError

if TYPE_CHECKING:
    from rich.table import Table as Shown

    from backfill_assets.core.state.current_versions import CurrentVersions
    from backfill_assets.core.state.version_steps import VersionStep


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
    with one_message_for_an_error(), Project.load(module, looks=True) as project:
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
        live: How its stream or feed stands, in words.
        compared: What the newest comparison said, and when.
        following: What comes next, as it is typed behind `backfill-assets`; nothing of a version that is done with.
        problem: In words, with what to do: readers are given it, and it has no spec; or its source cannot be asked.
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
        steps = project.lakehouse.version_steps(name)
        versions = sorted((one for one in specs if name_of(one) == name), key=number_of)
        found += [_status_of(project, one, now, steps, log) for one in versions]
        wrong = [(one, str(why)) for one, why in without.items() if name_of(one) == name]
        found += [VersionStatus(name, one, "current without a spec", problem=why) for one, why in wrong]
    return found


def _status_of(
    project: Project, key: str, now: CurrentVersions, steps: Sequence[VersionStep], log: Callable[[str], None]
) -> VersionStatus:
    from backfill_assets.commands.stream_state import feed_of, stream_in_words
    from backfill_assets.commands.version.make import lacks
    from backfill_assets.core.spec.versions import key_before, name_of
    from backfill_assets.core.state.version_steps import newest_comparison
    from backfill_assets.spark.failures import looked_at

    name, table = name_of(key), project.table(key)
    known = now.by_name.get(name)
    is_current = now.key_of(name) == key
    lake = project.lakehouse.table(table.spec, log)
    state = "current" if is_current else "retired" if now.is_retired(key) else "made" if lake.exists() else "not made"
    since = known.since[:19].replace("T", " ") if known and is_current else ""
    if state in ("not made", "retired"):
        following = f"version deploy {key}" if state == "not made" else ""
        return VersionStatus(name, key, state, following=following)
    published = lake.published()
    lacking, live, problem = None, "", ""
    try:
        live = looked_at(key, lambda: stream_in_words(table, feed_of(table), log)[0], log)
        lacking = len(looked_at(key, lambda: lacks(project, key, log), log))
    except BackfillAssetsError as error:  # of one table; all others are told of
        problem = str(error)
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
        following = f"version {'cutover' if is_equal and not lacking else 'deploy'} {key}"
    rows = sum(one.partition.rows for one in published.values())
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
        following="" if problem else following,
        problem=problem,
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
