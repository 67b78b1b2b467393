"""The four hazards of a backfill beside a live stream, told as they happen to people: how many rows are wrong, and why.

One Spark process, `cases`, does what is told here; this one starts it and listens to it.
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

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from backfill_assets.commands.terminal import new_console, one_message_for_an_error
from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError
from examples.hazards.texts import HAZARDS, SAFE, Hazard

_MARKER = ".hazards"


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


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path(".lakehouse/hazards"))
@click.option("--seed", default=2023, show_default=True, help="Another seed makes another week.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the story.")
def hazards(folder: Path, *, seed: int, as_json: bool) -> None:
    """Do what people do to a table that a stream writes, count the rows that are wrong, and do the same safely.

    A week of the shop's orders, about 300 a day, and four hazards. Each is run on Spark and Delta as it happens to
    people, then with this project's parts on the same data, and each row is compared with what really happened:

    \b
      collision    a backfill and a stream write the same days: twice, lost, old
      retry        an appending job dies half-way and is started again
      overwhelmed  a query for each day at once, at a source that serves four
      boundary     history ends, and the stream begins, at two instants

    The tables stay in FOLDER (default `.lakehouse/hazards`); each run deletes it first. Takes a minute or two.

    \b
    Exit code:  0  every hazard left wrong rows, and the safe way none
                1  one of them did not
                2  it could not be run
    """
    with one_message_for_an_error():
        sys.exit(show(folder, seed, new_console(stderr=as_json), as_json=as_json))


def show(root: Path, seed: int, console: Console, *, as_json: bool) -> int:
    """Run every hazard in an empty folder; return 0 if each went wrong as people do it, and none the safe way.

    Args:
        root: Made anew; what an earlier run left there is deleted.
        console: Where a person reads along; with `as_json` only progress is shown there, and the outcome is printed.

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
            "Every case is run on Spark and Delta, and each row of its table is compared with what happened "
            "in the shop.",
            highlight=False,
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
            f"`{root}` holds files that this example did not make.",
            state=NOTHING_WRITTEN,
            remedy="Name another folder.",
        )
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    (root / _MARKER).touch()


def _results(root: Path, seed: int) -> Iterator[Result]:
    """Start the process that does it all, and yield what it says."""
    command = [sys.executable, "-m", "examples.hazards.cases", str(root), str(seed)]
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
                        raise _as_error(said["error"])
                    yield Result(**said)
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        last = " ".join(log.read_text().split("\n")[-4:]).strip()
        raise ConfigurationError(
            f"The process that runs the hazards ended with exit code {process.returncode}: {last[-500:]}",
            state="The example's tables are as far as it came; nothing else was touched.",
            remedy=f"Look at `{log}`, and start it again.",
        )


def _as_error(error: list[str]) -> ConfigurationError:
    what, state, remedy = error
    return ConfigurationError(what, state=state, remedy=remedy)


# -- for a person ------------------------------------------------------------------------------------------------------


def _tell(result: Result, console: Console, *, is_first: bool) -> None:
    hazard = _hazard_of(result)
    if is_first:
        console.print(f"\n[bold]{HAZARDS.index(hazard) + 1}. {hazard.title}[/]", highlight=False)
        _indented(console, hazard.people.format_map(result.facts), 3)
    is_safe = result.case == SAFE
    did, why = (text.format_map(result.facts) for text in (hazard.safe if is_safe else hazard.cases[result.case]))
    colour = "green" if result.wrong["rows"] == 0 else "red"
    console.print()
    _indented(
        console, f"{'[bold]The safe way:[/] ' if is_safe else ''}{did if is_safe else did[0].upper() + did[1:]}.", 3
    )
    _indented(console, f"[bold {colour}]{result.count()}[/]", 5)
    _indented(console, f"[dim]{why}[/]", 5)


def _indented(console: Console, text: str, spaces: int) -> None:
    console.print(Padding(text, (0, 0, 0, spaces), expand=False), highlight=False)


def _summary(results: list[Result], console: Console, *, passed: bool, seconds: float) -> None:
    table = Table(
        title=f"\nRows that are wrong, measured in {seconds:.0f} seconds", title_justify="left", show_lines=True
    )
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


# -- for a program -----------------------------------------------------------------------------------------------------


def _report(results: list[Result], *, passed: bool, seconds: float) -> dict[str, Any]:
    return {
        "passed": passed,
        "seconds": round(seconds, 1),
        "hazards": {
            hazard.name: {r.case: {"wrong": r.wrong, "facts": r.facts} for r in results if r.hazard == hazard.name}
            for hazard in HAZARDS
        },
    }


if __name__ == "__main__":
    hazards()
