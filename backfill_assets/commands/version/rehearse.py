"""`backfill-assets version rehearse`: the steps of a new version in a folder that is thrown away, with a sample."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from backfill_assets.commands.project import Project
from backfill_assets.commands.terminal import (
    EXIT_DIFFERS,
    definitions_option,
    json_option,
    new_console,
    one_message_for_an_error,
)
from backfill_assets.commands.version.chosen import ChosenVersion, choose
from backfill_assets.commands.version.compare import fields_of, shown_as_table
from backfill_assets.core.spec.history import history_of
from backfill_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from backfill_assets.core.calendar.partitions import Partition
    from backfill_assets.core.history.version_comparison import VersionComparison
    from backfill_assets.runs.rehearsal import Rehearsal


@click.command()
@click.argument("key")
@click.option("--into", required=True, type=click.Path(path_type=Path), help="A folder that is not there yet.")
@click.option(
    "--last", type=click.IntRange(1), default=3, show_default=True, help="So many of the newest partitions of history."
)
@click.option("--all", "whole", is_flag=True, help="All of history.")
@click.option("--keep", is_flag=True, help="Leave the folder, to look at what was made.")
@json_option
@definitions_option
def rehearse(key: str, *, into: Path, last: int, whole: bool, keep: bool, as_json: bool, module: str) -> None:
    """Make, copy and compare the new version KEY, and those of every table made of it, in the folder DIR.

    Sources and present tables are read where they are; nothing is written but in DIR, which is removed at the end. No
    boundary is waited for. It is made to run for a pull request, before anything is done for real.

    \b
    Exit code:  0  what was made is equal
                1  it differs, or could not be published
                2  it cannot be rehearsed

    \b
    Examples:
      backfill-assets version rehearse bronze/orders --into /tmp/rehearsal
    """
    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console(stderr=True)
        chosen = choose(project, key)
        _make_folder(into)
        try:
            found, problems = rehearse_versions(chosen, into, None if whole else last, log=console.log)
        finally:
            if not keep:
                shutil.rmtree(into, ignore_errors=True)
    if as_json:
        click.echo(json.dumps({"problems": problems, "tables": [fields_of(one) for one in found]}, indent=1))
    else:
        answer = new_console()
        answer.print(shown_as_table(found))
        for problem in problems:
            answer.print(problem, highlight=False, markup=False, soft_wrap=True)
        answer.print(f"For real: `backfill-assets version plan {chosen.key}` says what to type.", highlight=False)
    sys.exit(EXIT_DIFFERS if problems or not all(one.is_equal for one in found) else 0)


def _make_folder(into: Path) -> None:
    """Make the folder that is removed at the end; one that is there is somebody else's, and is left as it is.

    Raises:
        ConfigurationError: It is there already.
    """
    try:
        into.mkdir(parents=True)
    except FileExistsError as error:
        raise ConfigurationError(
            f"`{into}` is there already.",
            state="Nothing was rehearsed, and nothing was written.",
            remedy="Name a folder that is not: it is removed at the end.",
        ) from error


def rehearse_versions(
    chosen: ChosenVersion, into: Path, last: int | None, *, log: Callable[[str], None]
) -> tuple[list[VersionComparison], list[str]]:
    """Publish partitions of new versions below a folder, and compare them; return what came of it, and failures."""
    from backfill_assets.core.calendar.windows import Window
    from backfill_assets.core.history.downstream import window_read
    from backfill_assets.runs.rehearsal import Rehearsal

    rehearsal = Rehearsal.of(chosen.project.lakehouse, str(into.absolute()), [pair.new for pair in chosen.pairs])
    found: list[VersionComparison] = []
    problems: list[str] = []
    sample: list[Partition] = []
    made: dict[str, Window] = {}
    for pair in chosen.pairs:
        spec = chosen.specs[pair.new]
        complete = _complete(chosen, rehearsal, pair.new, log)
        if not sample:
            sample = complete[-last:] if last else complete
            wanted = sample
        else:
            start, end = sample[0].window.start_utc, sample[-1].window.end_utc
            wanted = [
                p
                for p in complete
                if start <= p.window.start_utc
                and p.window.end_utc <= end
                and all(
                    max(read.start_utc, history_of(chosen.specs[key]).start_utc) >= made[key].start_utc
                    and read.end_utc <= made[key].end_utc
                    for key, read in ((one.table, window_read(spec, p, one)) for one in spec.inputs)
                    if key in made
                )
            ]
        if not wanted:
            problems.append(
                f"`{pair.new}`: no partition lies within the sample; rehearse more, with `--last` or `--all`."
            )
            continue
        log(f"{pair.new}: {len(wanted):,} partitions, {wanted[0].key}...{wanted[-1].key}")
        if failure := rehearsal.publish(chosen.project.definitions, spec, wanted[0].key, wanted[-1].key):
            problems.append(f"`{pair.new}`: {failure}")
            break
        made[pair.new] = Window(wanted[0].window.start_utc, wanted[-1].window.end_utc)
        found.append(_compared(chosen, rehearsal, (pair.before, pair.new), wanted, log))
    return found, problems


def _complete(chosen: ChosenVersion, rehearsal: Rehearsal, key: str, log: Callable[[str], None]) -> list[Partition]:
    from backfill_assets.core.state.fence import first_fence, is_history

    spec, table = chosen.specs[key], chosen.table(key)
    transform = table.table.transform() if table.table.transform else None
    until = rehearsal.source(spec, chosen.specs, transform, log).complete_until()
    fence, now = first_fence(spec), datetime.now(UTC)
    partitions = history_of(spec).until(min(until, now)) if until else []
    return [p for p in partitions if p.window.end_utc <= min(until or now, now) and (not fence or is_history(p, fence))]


def _compared(
    chosen: ChosenVersion,
    rehearsal: Rehearsal,
    keys: tuple[str, str],
    partitions: Sequence[Partition],
    log: Callable[[str], None],
) -> VersionComparison:
    from backfill_assets.core.calendar.windows import Window
    from backfill_assets.lake.version_comparison import compare_versions

    window = Window(partitions[0].window.start_utc, partitions[-1].window.end_utc)
    before = chosen.lake(keys[0], log)
    return compare_versions(before, rehearsal.table(chosen.specs[keys[1]], log), window=window)
