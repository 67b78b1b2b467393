"""`backfill-assets version deploy`: new versions are made, filled and compared, up to the switch."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from backfill_assets.commands.version.compare import (
    before_option,
    compare_all,
    fields_of,
    patience_option,
    shown_as_table,
)
from backfill_assets.commands.version.make import Copied, copy_versions, has_writer, make_versions
from backfill_assets.commands.version.plan import PlannedVersion, plan_as_table, plan_version
from backfill_assets.commands.version.rehearse import rehearsed
from backfill_assets.commands.version.waiting import NothingBefore, Waiting, waiting_for
from backfill_assets.errors import BackfillAssetsError

if TYPE_CHECKING:
    from rich.console import Console

    from backfill_assets.core.history.version_comparison import VersionComparison

REASON = "history missing: new version"
_LOOK_AGAIN_SECONDS = 10.0
_SAMPLE = 3
"""Number of partitions that are rehearsed."""


@click.command()
@click.argument("key")
@click.option("--check", is_flag=True, help="Make and copy nothing: say what would be done, and compare what is there.")
@click.option("--empty", is_flag=True, help="Make the tables, and copy nothing.")
@click.option("--wait", is_flag=True, help="Go on until all history before the boundary of its stream is copied.")
@click.option(
    "--rehearse",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Do it in DIR, a folder that does not exist yet and is removed at the end. Nothing else is written.",
)
@click.option(
    "--last",
    metavar="N",
    type=click.IntRange(1),
    help="With --rehearse: so many of the newest partitions of history; 3 if not given.",
)
@click.option("--keep", is_flag=True, help="With --rehearse: leave the folder.")
@patience_option
@before_option
@click.option("--reason", default=REASON, show_default=True, help="Kept in every commit's receipt.")
@json_option
@definitions_option
def deploy(
    key: str,
    *,
    check: bool,
    empty: bool,
    wait: bool,
    folder: Path | None,
    last: int | None,
    keep: bool,
    patience_seconds: float,
    before_day: datetime | None,
    reason: str,
    as_json: bool,
    module: str,
) -> None:
    """Bring up the new version KEY, and those of every table made of it: make, copy and compare them.

    Readers are not switched; `version cutover` does that. Tables that do not exist are made, empty. Then ordinary
    launches publish what they lack: what is up to date is neither read nor written again, so the command may be killed
    and repeated. At the end each version is compared with the one before: by day, and by key on the days that differ.

    History before the boundary of a version's own stream can be copied when the boundary has passed and the old stream
    has written everything before it. Until then the command says what it waits for; repeat it, or use --wait.

    \b
    Exit code:  0  the versions are equal, as far as they can be compared; or --empty
                1  they differ, history still waits, or a launch failed
                2  they cannot be made or compared; the message says what was done

    \b
    Examples:
      backfill-assets version deploy bronze/orders --check
      backfill-assets version deploy bronze/orders --rehearse /tmp/rehearsal --last 3
      backfill-assets version deploy bronze/orders
    """
    _refuse_two_of({"--check": check, "--empty": empty, "--rehearse": folder, "--wait": wait})
    _refuse_two_of({"--empty": empty, "--rehearse": folder, "--before": before_day})
    if folder is None and (last or keep):
        raise click.UsageError("--last and --keep belong to --rehearse.")
    with one_message_for_an_error(), Project.load(module, looks=check) as project:
        console = new_console(stderr=True)
        chosen = choose(project, key)
        answer = new_console()
        if folder is not None:
            compared, problems = rehearsed(chosen, folder, last=last or _SAMPLE, keep=keep, log=console.log)
            done = Deployed(chosen.key, (), (), compared=compared, problems=problems)
        else:
            with console.status(f"Looking at {chosen.key}"):
                done = planned(chosen, console.log)
            if not as_json:
                _show_plan(done, answer)
            if not check:
                done = replace(done, made=make_versions(chosen, reason=reason, log=console.log))
                _say_made(done, console)
            if not (check or empty):
                done = filled(chosen, done, reason=reason, wait=wait, log=console.log)
            if not empty and done.may_be_compared and all_exist(chosen, console.log):
                until = before_day.date() if before_day else "before"
                with console.status(f"Comparing {chosen.key} with the version before"), _what_is_there_stays():
                    found = compare_all(chosen, patience_seconds=patience_seconds, log=console.log, until=until)
                done = replace(done, compared=found)
        done = replace(done, following=() if folder else following(chosen, done))
    if as_json:
        click.echo(json.dumps(done.as_fields(), indent=1))
    else:
        _show(done, answer)
    sys.exit(0 if done.is_equal or empty else EXIT_DIFFERS)


@contextmanager
def _what_is_there_stays() -> Iterator[None]:
    """Make an error of the comparison say that what was made and copied stays."""
    try:
        yield
    except BackfillAssetsError as error:
        raise error.with_state("What was made and copied stays; it was not compared.") from error


def _refuse_two_of(given: dict[str, object]) -> None:
    named = [name for name, value in given.items() if value]
    if len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)} exclude each other.")


@dataclass(frozen=True, slots=True)
class Deployed:
    """What was found out about new versions, and done with them.

    Args:
        plans: How each comes up.
        not_forked: Tables made of what is replaced that have no version of their own.
        made: Where the stream of each table that was just made begins, by key; an empty text without a stream.
        runs: Launches.
        waiting: What cannot be copied yet.
        compared: With the versions before; nothing if they were not compared.
        problems: Of a rehearsal: what could not be published.
        following: What to type next.
    """

    key: str
    plans: Sequence[PlannedVersion]
    not_forked: Sequence[str]
    made: Mapping[str, str] = field(default_factory=dict[str, str])
    runs: Sequence[Copied] = ()
    waiting: Sequence[Waiting | NothingBefore] = ()
    compared: Sequence[VersionComparison] = ()
    problems: Sequence[str] = ()
    following: Sequence[str] = ()

    @property
    def is_equal(self) -> bool:
        """Whether all versions were compared, and are equal."""
        return bool(self.compared) and not self.problems and all(one.is_equal for one in self.compared)

    @property
    def may_be_compared(self) -> bool:
        """Whether no launch failed and nothing waits: else the versions differ anyway."""
        return not self.waiting and not self.has_failed

    @property
    def has_failed(self) -> bool:
        """Whether a launch failed, or was refused a partition."""
        return any(one.run.failure for one in self.runs)

    def as_fields(self) -> dict[str, Any]:
        """Return what JSON has of it."""
        return {
            "version": self.key,
            "plans": [asdict(one) for one in self.plans],
            "not_forked": list(self.not_forked),
            "made": dict(self.made),
            "runs": [{"table": one.key, **one.run.fields()} for one in self.runs],
            "waiting": [
                {"table": one.key, "partitions": one.partitions, "waits_for": str(one)} for one in self.waiting
            ],
            "equal": self.is_equal,
            "compared": [fields_of(one) for one in self.compared],
            "problems": list(self.problems),
            "next": list(self.following),
        }


def planned(chosen: ChosenVersion, log: Callable[[str], None]) -> Deployed:
    """Say how new versions come up. Nothing is written."""
    from backfill_assets.core.spec.version_sets import not_forked

    plans = [plan_version(chosen, pair, log) for pair in chosen.pairs]
    return Deployed(chosen.key, plans, not_forked(chosen.pairs, chosen.specs))


def filled(chosen: ChosenVersion, done: Deployed, *, reason: str, wait: bool, log: Callable[[str], None]) -> Deployed:
    """Launch what new versions lack; if asked to wait, until nothing is still to come."""
    while True:
        runs = [*done.runs, *copy_versions(chosen, reason=reason, log=log)]
        done = replace(done, runs=runs, waiting=waiting_for(chosen, log))
        to_come = [one for one in done.waiting if isinstance(one, Waiting)]
        if not (wait and to_come) or done.has_failed:
            return done
        for one in to_come:
            log(str(one))
        time.sleep(_LOOK_AGAIN_SECONDS)


def all_exist(chosen: ChosenVersion, log: Callable[[str], None]) -> bool:
    """Say whether all new tables exist."""
    return all(chosen.lake(pair.new, log).exists() for pair in chosen.pairs)


def following(chosen: ChosenVersion, done: Deployed) -> list[str]:
    """Return the commands that come next."""
    written = [pair.new for pair in chosen.pairs if has_writer(chosen.specs[pair.new])]
    live = [f"backfill-assets live {key}    # beside the old one's; both run on" for key in written]
    step = "cutover" if done.is_equal else "deploy"
    return [*([] if done.is_equal else live), f"backfill-assets version {step} {chosen.key}"]


def _show_plan(done: Deployed, answer: Console) -> None:
    answer.print(plan_as_table(done.plans))
    for one in done.plans:
        answer.print(f"{one.new}: {one.why}.", highlight=False, markup=False, soft_wrap=True)
    if done.not_forked:
        answer.print(
            f"[bold red]{', '.join(done.not_forked)}[/] is made of what is replaced, and has no version for it: the "
            "cut-over is refused until it has one (`version new --downstream`) or is named with `--not-forked`.",
            highlight=False,
        )


def _say_made(done: Deployed, console: Console) -> None:
    for key, fence in done.made.items():
        console.log(f"{key} is made{f'; its stream owns what happens from {fence} on' if fence else ''}.")


def _show(done: Deployed, answer: Console) -> None:
    """Print what was done, and what comes next."""
    if done.compared:
        answer.print(shown_as_table(done.compared))
    said = [f"{one.key} {one.run}" for one in done.runs] + [str(one) for one in done.waiting]
    for line in [*said, *done.problems]:
        answer.print(line, highlight=False, markup=False, soft_wrap=True)
    if done.following:
        answer.print("Next:", highlight=False)
    for command in done.following:
        answer.print(f"  {command}", highlight=False, markup=False, soft_wrap=True)
