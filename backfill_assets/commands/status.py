"""`backfill-assets status`: how far the backfill of each table is, what runs, and what went wrong last."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from backfill_assets.commands.project import Project, ProjectTable
from backfill_assets.commands.stream_state import feed_of, stream_in_words
from backfill_assets.commands.terminal import definitions_option, json_option, new_console, one_message_for_an_error
from backfill_assets.core.state.backfill_state import BackfillState, backfill_state
from backfill_assets.core.words import seconds_in_words
from backfill_assets.errors import AddressMissingError, BackfillAssetsError

if TYPE_CHECKING:
    import dagster as dg
    from rich.table import Table as Shown

    from backfill_assets.core.state.receipts import PublishedPartition
    from backfill_assets.runs.table_runs import Launched

COLUMNS = ("table", "state", "partitions", "rows", "newest launch", "time left", "live", "what is wrong")
ALWAYS_SHOWN = 4
"""So many columns are shown also where no table has anything in them."""

_STYLES = {
    BackfillState.COMPLETED: "green",
    BackfillState.ACTIVE: "cyan",
    BackfillState.FAILED: "bold red",
    BackfillState.STOPPED: "yellow",
}


@click.command()
@click.argument("keys", nargs=-1)
@click.option("--watch", is_flag=True, help="Look again every few seconds, until Ctrl-C; with --json a line a look.")
@click.option("--every", type=click.FloatRange(min=0.5), default=5.0, show_default=True, help="Seconds, with --watch.")
@json_option
@definitions_option
def status(keys: tuple[str, ...], *, watch: bool, every: float, as_json: bool, module: str) -> None:
    """Show how far the backfill of the tables KEYS is; of all tables if none is named. Nothing is written.

    \b
    NOT_STARTED  nothing is published
    PENDING      a launch waits to be started
    ACTIVE       a launch is under way
    STOPPED      somebody has stopped the newest launch; `only: MISSING` does the rest
    FAILED       the newest launch failed, was killed, or was refused a partition
    PARTIAL      some partitions are missing or stale and no launch is under way; or the table's feed has stopped
    COMPLETED    every partition is published as its source would make it now

    \b
    Examples:
      backfill-assets status
      backfill-assets status bronze/orders --watch
      backfill-assets status --json
    """
    with one_message_for_an_error(), Project.load(module, looks=True) as project:
        console, answer = new_console(stderr=True), new_console()
        while True:
            with console.status("Looking at the tables"):
                found = look_at_tables(project, keys, log=console.log)
            if as_json:
                looked = {"tables": [one.as_fields() for one in found]}
                click.echo(json.dumps(looked, indent=None if watch else 1, ensure_ascii=False))
            else:
                answer.print(shown_as_table(found))
            if not watch:
                return
            time.sleep(every)
            answer.clear()  # where it is a terminal


@dataclass(frozen=True, slots=True)
class TableProgress:
    """How far the backfill of one table is.

    Args:
        by_state: Partitions by their state, `published` among them.
        launch: The newest launch: its run, how it stands, when it began and how long it took, by whom, how many
            partitions it has done, and how many rows they have.
        seconds_left: Of a launch that is under way, as far as it can be told.
        live: What the live stream does, in words; empty for a table without one.
        lag: How many seconds what landed waited for the newest batch, and how many it may.
        wrong: What went wrong last, or why the table could not be looked at, in words.
    """

    key: str
    state: BackfillState | None
    total: int = 0
    by_state: Mapping[str, int] = field(default_factory=dict[str, int])
    rows: int = 0
    launch: Mapping[str, Any] = field(default_factory=dict[str, Any])
    seconds_left: float | None = None
    live: str = ""
    wrong: str = ""
    lag: Mapping[str, float | None] = field(default_factory=dict[str, float | None])

    @property
    def published(self) -> int:
        return self.by_state.get("published", 0)

    def as_fields(self) -> dict[str, Any]:
        """Return what JSON has of it."""
        return {
            "table": self.key,
            "state": self.state and self.state.value,
            "partitions": self.total,
            "by_state": dict(self.by_state),
            "rows": self.rows,
            "launch": dict(self.launch) or None,
            "seconds_left": None if self.seconds_left is None else round(self.seconds_left, 1),
            "live": self.live or None,
            "lag": dict(self.lag) or None,
            "wrong": self.wrong or None,
        }

    def cells(self) -> tuple[str, ...]:
        """Return what a person reads, in the order of `COLUMNS`."""
        others = [f"{count:,} {state}" for state, count in sorted(self.by_state.items()) if state != "published"]
        newest = ""
        if self.launch:
            done = f", {self.launch['done']:,} of {self.launch['wanted']:,} done" if self.launch["wanted"] else ""
            began = self.launch["began"][:19].replace("T", " ")
            by = f", by {self.launch['by']}" if self.launch["by"] else ""
            named = self.launch["run_id"] or f"backfill {self.launch['backfill_id']}"
            now = f"\n{self.launch['step']}" if self.launch["step"] else ""
            newest = f"{self.launch['standing']}{done}{now}\nat {began}{by}{_pace(self.launch)}\n{named}"
        return (
            self.key,
            self.state.value if self.state else "not known",
            "\n".join([f"{self.published:,} of {self.total:,}", *others]) if self.state else "",
            f"{self.rows:,}" if self.state else "",
            newest,
            "" if self.seconds_left is None else f"about {seconds_in_words(self.seconds_left)}",
            self.live,
            self.wrong,
        )


def _pace(launch: Mapping[str, Any]) -> str:
    """Return how long a launch took until now, and how fast it was."""
    if launch["seconds"] is None:
        return ""
    fast = f", {launch['rows_per_second']:,.0f} rows a second" if launch.get("rows_per_second") else ""
    return f"\n{seconds_in_words(launch['seconds'])}{fast}"


def shown_as_table(found: Sequence[TableProgress]) -> Shown:
    """Return what a person reads, a row for each table."""
    from rich.markup import escape
    from rich.table import Table as Shown

    done, total = sum(one.state is BackfillState.COMPLETED for one in found), len(found)
    shown = Shown(title=f"{done:,} of {total:,} tables are backfilled", title_justify="left", show_lines=True)
    rows = [one.cells() for one in found]
    wanted = [n for n in range(len(COLUMNS)) if n < ALWAYS_SHOWN or any(row[n] for row in rows)]
    for name in (COLUMNS[n] for n in wanted):
        shown.add_column(name, justify="right" if name in ("rows", "time left") else "left", overflow="fold")
    for one, row in zip(found, rows, strict=True):
        shown.add_row(*(escape(row[n]) for n in wanted), style=_STYLES.get(one.state) if one.state else "bold red")
    return shown


def look_at_tables(project: Project, keys: Sequence[str], *, log: Callable[[str], None]) -> list[TableProgress]:
    """Return how far the backfill of some tables is, or of all. A table that cannot be looked at says why.

    With all comes a version that readers are given and that has no spec.

    Raises:
        ConfigurationError: There is no such table.
    """
    import dagster as dg

    from backfill_assets.assets.factory import tables_of
    from backfill_assets.commands.version.chosen import current_without_spec
    from backfill_assets.runs import killed
    from backfill_assets.runs.table_runs import newest_launches

    chosen = [project.table(key) for key in keys or sorted(tables_of(project.definitions)[0])]
    without = {} if keys else current_without_spec(project)
    _ = project.lakehouse  # before Dagster's instance is opened: its own context would outlive that one
    with dg.DagsterInstance.get() as instance:
        list(killed.report_dead(instance))
        launches = newest_launches(instance, {one.spec.key: one.table for one in chosen})
        found = [_look(instance, one, launches.get(one.spec.key), log) for one in chosen]
    return [*found, *(TableProgress(key, None, wrong=str(why)) for key, why in without.items())]


def _look(
    instance: dg.DagsterInstance,
    chosen: ProjectTable,
    newest: Launched | None,
    log: Callable[[str], None],
) -> TableProgress:
    from backfill_assets.core.state.partition_status import outside_in_words
    from backfill_assets.runs.table_status import look_at_table
    from backfill_assets.spark.failures import looked_at

    key, standing = chosen.spec.key, newest.standing if newest else "none"
    launch, seconds_left = _launch_of(key, newest) if newest else ({}, None)
    try:
        look = partial(look_at_table, instance, chosen.table, chosen.specs, chosen.lakehouse, log)
        seen = looked_at(key, look, log)
        rows = sum(published.partition.rows for published in seen.published.values())
        launch |= _written_by(launch, seen.published)
        by_state = Counter(str(status.state) for status in (*seen.complete, *seen.lost))
        feed, done = looked_at(key, partial(feed_of, chosen), log), by_state["published"]
        has_stopped, stale = feed is not None and feed.comes_no_more, len(seen.published) - done
        state = backfill_state(done, seen.total, standing, stale=stale, feed_has_stopped=has_stopped)
        failure = partial(_newest_failure, chosen, log)
        wrong = looked_at(key, failure, log) if state is not BackfillState.COMPLETED else ""
        wrong = "\n".join(filter(None, (wrong, outside_in_words(key, seen.outside))))
        live, lag = looked_at(key, partial(stream_in_words, chosen, feed, log), log)
    except AddressMissingError as error:
        unset = f"set {error.facts['variable']}: it is to hold the address of its database"
        return TableProgress(key, BackfillState.NOT_STARTED, launch=launch, seconds_left=seconds_left, wrong=unset)
    except BackfillAssetsError as error:
        return TableProgress(key, None, launch=launch, seconds_left=seconds_left, wrong=str(error))
    progress = TableProgress(key, state, seen.total, dict(by_state), rows, wrong=wrong)
    return replace(progress, launch=launch, seconds_left=seconds_left, live=live, lag=lag)


def _launch_of(key: str, newest: Launched) -> tuple[dict[str, Any], float | None]:
    """Return what is shown of a launch, and how many seconds it has left, judged by its own pace."""
    from backfill_assets.runs.killed import RUN
    from backfill_assets.runs.run_tags import launched_by, progress_of, step_of

    tags, is_its = newest.tags, newest.tags.get(RUN) == newest.launch_id
    done, wanted, worked, rest = progress_of(tags if is_its else {}, key) or (0, 0, 0, 0)
    seconds = (newest.ended or datetime.now(UTC).timestamp()) - newest.began
    left = seconds / worked * rest if newest.standing == "started" and worked else None
    shown = {
        "run_id": newest.launch_id if newest.run else None,
        "backfill_id": None if newest.run else newest.launch_id,
        "standing": newest.standing,
        "began": datetime.fromtimestamp(newest.began, tz=UTC).isoformat(timespec="seconds"),
        "by": launched_by(tags),
        "seconds": round(seconds, 1) if newest.has_begun else None,
        "done": done,
        "wanted": wanted,
        "step": (step_of(tags, key) or None) if is_its and newest.standing == "started" else None,
    }
    return shown, left


def _written_by(launch: Mapping[str, Any], published: Mapping[str, PublishedPartition]) -> dict[str, Any]:
    """Return how many rows the newest launch has published, and how many a second."""
    if not launch:
        return {}
    rows = sum(one.partition.rows for one in published.values() if one.receipt.run.id == launch["run_id"])
    return {"rows": rows, "rows_per_second": round(rows / launch["seconds"], 1) if launch["seconds"] else None}


def _newest_failure(chosen: ProjectTable, log: Callable[[str], None]) -> str:
    """Return what was refused, stopped or failed last, in words; empty if nothing ever was."""
    from backfill_assets.core.history.causes import causes_in_words, causes_of

    attempts = chosen.lakehouse.table(chosen.spec, log).history.attempts()
    if not attempts:
        return ""
    last = attempts[-1]
    why = last.why or causes_in_words(causes_of({key: [why] for key, why in last.partitions.items()}))
    return f"{last.outcome} at {last.at[:19].replace('T', ' ')}: {why}"
