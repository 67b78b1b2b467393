"""`backfill-assets version plan`: how a new version comes up, what that costs, and what to type."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from backfill_assets.commands.project import Project
from backfill_assets.commands.terminal import definitions_option, json_option, new_console, one_message_for_an_error
from backfill_assets.commands.version.chosen import ChosenVersion, choose
from backfill_assets.core.words import seconds_in_words

if TYPE_CHECKING:
    from rich.table import Table as Shown

    from backfill_assets.core.spec.version_sets import VersionPair


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
    streams = [pair.new for pair in chosen.pairs if chosen.specs[pair.new].live or chosen.specs[pair.new].changes]
    follows = any(chosen.specs[pair.new].source.is_of_version and pair.new not in streams for pair in chosen.pairs)
    feeds = [chosen.specs[pair.new].changes for pair in chosen.pairs]
    is_copied = any(feed is None or feed.backfill == "manual" for feed in feeds)  # else `live` brings all there is
    return [
        f"backfill-assets version make {chosen.key}",
        *(f"backfill-assets live {key}    # beside the old one's; both run on" for key in streams),
        *([f"backfill-assets version copy {chosen.key}{' --follow' if follows else ''}"] if is_copied else []),
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
