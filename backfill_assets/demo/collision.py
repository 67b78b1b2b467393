"""The four hazards of a backfill beside a live stream, told as they happen to people: how many rows are wrong, and why.

What is told here is done in `hazards/`, by one Spark process that this one starts and listens to.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError

SAFE = "safe"
_MARKER = ".demo"


@dataclass(frozen=True, slots=True)
class Hazard:
    """One way in which a backfill goes wrong.

    Args:
        people: What people do, in two sentences.
        cases: By name, what was done and why it went wrong; numbers of the case are filled in.
        safe: What the safe way did, and which mechanism prevents it.
    """

    name: str
    title: str
    people: str
    cases: dict[str, tuple[str, str]]
    safe: tuple[str, str]


HAZARDS = (
    Hazard(
        "collision",
        "Two writers of one range",
        "A stream has written the table since 2025-12-30, and somebody loads the whole week from the old system's export. Both write "
        "the last two days, and each is sure that it is the only one.",
        {
            "append": (
                "the backfill appends the week while the stream appends its events",
                "Delta lets any two appends pass: each is right alone, and orders that both know are there twice.",
            ),
            "overwrite_first": (
                "it overwrites the week with `replaceWhere`, and the stream appends what it reads next",
                "The overwrite was clean and no commit conflicts, since the stream's comes later: orders that the export had already are "
                "appended beside it.",
            ),
            "overwrite_last": (
                "the stream is ahead, and the week is overwritten with an export that was taken at noon",
                "The overwrite removes what only the stream knew: the afternoon's orders are gone, and payments and refunds are undone.",
            ),
        },
        (
            "the whole week is launched from the noon's export while a live writer appends: {published} days published, {left_out} left "
            "to the stream, {folded} published again with the late refunds",
            "The fence: history overwrites whole days before it and is cut off at it, the live writer appends only at or after it and "
            "keeps late events beside the table, from where the next launch folds them in.",
        ),
    ),
    Hazard(
        "retry",
        "A retry that is not idempotent",
        "A job appends history in chunks, and dies half-way. It is started again, from the start, as every scheduler does by itself.",
        {
            "append_again": (
                "the source goes away after {committed} of {chunks} chunks were committed; the job is run again",
                "Each commit was atomic, the job was not: nothing knows that the first {committed} chunks are there, so they come twice.",
            ),
        },
        (
            "the same death after {committed} chunks; launched again for what was missing ({left_out} days left out), then once "
            "more for everything",
            "Each chunk replaces its own days in one commit that carries a receipt: doing it again gives the same rows, and what has a "
            "receipt can be left out.",
        ),
    ),
    Hazard(
        "overwhelmed",
        "A source that is asked for too much",
        "A backfill opens a query for each day, all at once, at a service that serves {served_at_most} readers. A day that fails is "
        "logged as a warning, and the job goes on and ends green.",
        {
            "all_at_once": (
                "{days} days are asked for at the same time: {peak} readers at once, {refused} refused",
                "The source protects itself; the job does not compare what it wrote with what there was, so nobody misses the days.",
            ),
        },
        (
            "the same {days} days: at most {peak} readers at once, {refused} refused",
            "Chunks of whole days, read by no more tasks at once than Spark has cores; a read that fails fails its chunk, and each day's "
            "rows must equal what the source says it has before any of it is published.",
        ),
    ),
    Hazard(
        "boundary",
        "Two ideas of where history ends",
        'Whoever loads history writes down "up to the moment when the stream began", and whoever runs the stream "from that moment on". '
        "The moment is written down twice: in two places, by two people, perhaps in two zones.",
        {
            "inclusive": (
                "history takes `BETWEEN ... AND cutover`, the stream `>= cutover`",
                "BETWEEN includes both ends: orders made exactly at the cutover are taken by both. Subscriptions renew at midnight.",
            ),
            "other_zone": (
                "history takes `< now()` of a clock in New York, written without its zone and read as UTC",
                "The stream began at 00:00 UTC, when that clock showed 19:00: five hours belong to nobody.",
            ),
        },
        (
            "one fence for both; while the stream writes it is moved over a day, at 09:30 of a clock in New York, and that day is launched",
            "The fence is one instant in UTC, stored in the table and read by both sides, half-open (`<` before it, `>=` from it on) and "
            "always the start of a day; an instant without a zone is refused.",
        ),
    ),
)


@dataclass(slots=True)
class Result:
    """What became of one case.

    Args:
        wrong: `rows`, and of these `extra`, `lost` and `old`.
    """

    hazard: str
    case: str
    wrong: dict[str, int]
    facts: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def is_as_it_should(self) -> bool:
        return (self.wrong["rows"] == 0) == (self.case == SAFE)

    def count(self) -> str:
        """Return the count as a person reads it."""
        kinds = (("extra", "too many"), ("lost", "lost"), ("old", "with old values"))
        parts = [f"{self.wrong[kind]:,} {words}" for kind, words in kinds if self.wrong[kind]]
        rows = self.wrong["rows"]
        return f"{rows:,} {'row' if rows == 1 else 'rows'} wrong" + (f" ({', '.join(parts)})" if parts else "")


def show(root: Path, seed: int, console: Console, *, as_json: bool) -> int:
    """Run every hazard below a folder that is made anew; return 0 if each went wrong as people do it, and none the safe way.

    Args:
        console: Where a person reads along; with `as_json`, what goes on is shown there, and the outcome is printed as JSON.

    Raises:
        ConfigurationError: The folder is somebody else's, or Spark did not run.
    """
    _make_anew(root)
    started = time.monotonic()
    results: list[Result] = []
    told: set[str] = set()
    if not as_json:
        console.print("[bold]What happens to a backfill beside a live stream, and what does not[/]")
        console.print(
            "Every case is run on Spark and Delta, and each row of its table is held against what happened in the shop.", highlight=False
        )
    with console.status("Spark is starting") as status:
        for result in _results(root, seed):
            results.append(result)
            if not as_json:
                _tell(result, console, is_first=result.hazard not in told)
            told.add(result.hazard)
            status.update("running the next case")
    seconds = time.monotonic() - started
    complete = {(r.hazard, r.case) for r in results} == {(h.name, case) for h in HAZARDS for case in (*h.cases, SAFE)}
    passed = complete and all(result.is_as_it_should for result in results)
    if as_json:
        sys.stdout.write(json.dumps(_report(results, passed=passed, seconds=seconds), indent=2) + "\n")
    else:
        _summary(results, console, passed=passed, seconds=seconds)
    return 0 if passed else 1


def _make_anew(root: Path) -> None:
    if root.exists() and any(root.iterdir()) and not (root / _MARKER).exists():
        raise ConfigurationError(
            f"`{root}` holds files that this demo did not make.",
            state=NOTHING_WRITTEN,
            remedy="Set LAKEHOUSE_ROOT to another folder for the demo.",
        )
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    (root / _MARKER).touch()


def _results(root: Path, seed: int) -> Iterator[Result]:
    """Start the process that does it all, and yield what it says."""
    command = [sys.executable, "-m", "backfill_assets.demo.hazards", str(root), str(seed)]
    log = root / "log.txt"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,  # noqa: S603 (our own command)
    ):
        assert process.stdout is not None  # noqa: S101 (a pipe was asked for)
        try:
            for line in process.stdout:
                if line.startswith("{"):
                    said: dict[str, Any] = json.loads(line)
                    if "error" in said:
                        raise _in_our_words(said["error"])
                    yield Result(**said)
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        last = " ".join(log.read_text().split("\n")[-4:]).strip()
        raise ConfigurationError(
            f"The process that runs the hazards ended with exit code {process.returncode}: {last[-500:]}",
            state="The demo's tables are as far as it came; nothing else was touched.",
            remedy=f"Look at `{log}`, and start it again.",
        )


def _in_our_words(error: list[str]) -> ConfigurationError:
    what, state, remedy = error
    return ConfigurationError(what, state=state, remedy=remedy)


# -- for a person --------------------------------------------------------------------------------------------------------


def _tell(result: Result, console: Console, *, is_first: bool) -> None:
    hazard = _hazard_of(result)
    if is_first:
        console.print(f"\n[bold]{HAZARDS.index(hazard) + 1}. {hazard.title}[/]", highlight=False)
        _indented(console, hazard.people.format_map(result.facts), 3)
    is_safe = result.case == SAFE
    did, why = (text.format_map(result.facts) for text in (hazard.safe if is_safe else hazard.cases[result.case]))
    colour = "green" if result.wrong["rows"] == 0 else "red"
    console.print()
    _indented(console, f"{'[bold]The safe way:[/] ' if is_safe else ''}{did if is_safe else did[0].upper() + did[1:]}.", 3)
    _indented(console, f"[bold {colour}]{result.count()}[/]", 5)
    _indented(console, f"[dim]{why}[/]", 5)


def _indented(console: Console, text: str, spaces: int) -> None:
    console.print(Padding(text, (0, 0, 0, spaces), expand=False), highlight=False)


def _summary(results: list[Result], console: Console, *, passed: bool, seconds: float) -> None:
    table = Table(title=f"\nRows that are wrong, measured in {seconds:.0f} seconds", title_justify="left", show_lines=True)
    table.add_column("hazard")
    table.add_column("what people do", overflow="fold")
    table.add_column("rows wrong", justify="right")
    table.add_column("the safe way", justify="right")
    found = {(r.hazard, r.case): r for r in results}
    for result in results:
        if result.case != SAFE:
            hazard = _hazard_of(result)
            did = hazard.cases[result.case][0].format_map(result.facts)
            table.add_row(hazard.title, did, _cell(result), _cell(found.get((hazard.name, SAFE))))
    console.print(table)
    if passed:
        console.print("[bold green]Each hazard is real, and none of them is left.[/]")
    else:
        console.print("[bold red]A case did not end as it should: a hazard left no wrong row, or the safe way did.[/]")


def _hazard_of(result: Result) -> Hazard:
    return next(hazard for hazard in HAZARDS if hazard.name == result.hazard)


def _cell(result: Result | None) -> str:
    if result is None:
        return "[red]?[/]"
    rows = result.wrong["rows"]
    return f"[{'green' if rows == 0 else 'bold red'}]{rows:,}[/]"


# -- for a program -------------------------------------------------------------------------------------------------------


def _report(results: list[Result], *, passed: bool, seconds: float) -> dict[str, Any]:
    return {
        "passed": passed,
        "seconds": round(seconds, 1),
        "hazards": {
            hazard.name: {r.case: {"wrong": r.wrong, "facts": r.facts} for r in results if r.hazard == hazard.name} for hazard in HAZARDS
        },
    }
