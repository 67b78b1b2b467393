"""A plan as people read it: a table on a terminal, or Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_assets.core.history.causes import cause_name
from backfill_assets.core.history.forecast import Action, PartitionForecast
from backfill_assets.core.history.plan_document import PlanDocument
from backfill_assets.core.state.tallies import sum_if_known
from backfill_assets.core.words import bytes_in_words, count_in_words, money_in_words, range_in_words, seconds_in_words

if TYPE_CHECKING:
    from rich.console import Console

MOST_LINES = 40
MOST_REFUSED = 10
COLUMNS = ("partitions", "number", "what is done", "why", "rows now", "rows then", "source")
_STYLES = {Action.CREATE: "green", Action.REPLACE: "yellow", Action.REFUSED: "bold red", Action.IDENTICAL: "dim"}


@dataclass(frozen=True, slots=True)
class Line:
    """Partitions side by side with which the same is done for the same reason."""

    found: tuple[PartitionForecast, ...]

    @property
    def action(self) -> Action:
        return self.found[0].action

    def fields(self) -> tuple[str, ...]:
        """Return its fields in the order of `COLUMNS`."""
        then = [one.rows for one in self.found]
        known = sum(rows for rows in then if rows is not None)
        files = sum(one.files for one in self.found)
        size = bytes_in_words(sum(one.size_bytes for one in self.found))
        return (
            _range(self.found),
            f"{len(self.found):,}",
            self.action.value,
            self.found[0].why,
            count_in_words(sum_if_known(one.rows_now for one in self.found)),
            f"{known:,}" if None not in then else "not known",
            f"{size} in {files:,} file{'' if files == 1 else 's'}" if files else "",
        )


def lines_of(plan: PlanDocument) -> Iterator[Line]:
    """Yield the partitions of a plan, those side by side with which the same is done in one line."""
    line: list[PartitionForecast] = []
    for found in plan.partitions:
        if line and not _goes_on(line[-1], found):
            yield Line(tuple(line))
            line = []
        line.append(found)
    if line:
        yield Line(tuple(line))


def _goes_on(last: PartitionForecast, found: PartitionForecast) -> bool:
    """Say whether a partition comes right after another one, with the same to be done for the same reason."""
    is_next = last.partition.window.end_utc == found.partition.window.start_utc
    return is_next and (last.action, cause_name(last.why)) == (found.action, cause_name(found.why))


def sentences_of(plan: PlanDocument) -> list[str]:
    """Return what a plan comes to, a sentence each."""
    count = {action: sum(one.action is action for one in plan.partitions) for action in Action}
    said = [
        f"{len(plan.written):,} of {len(plan.partitions):,} partitions are written ({count[Action.CREATE]:,} created, "
        f"{count[Action.REPLACE]:,} replaced); {count[Action.IDENTICAL]:,} are identical, "
        f"{count[Action.REFUSED]:,} refused, {count[Action.LEFT_OUT]:,} left out."
    ]
    said += [_estimated(plan)] if plan.written else []
    if plan.written and count[Action.IDENTICAL]:
        ranges = [_range(run) for run in plan.launches()]
        more = f" and {len(ranges) - 3} more ranges" if len(ranges) > 3 else ""
        said.append(
            f"The cheaper way: {count[Action.IDENTICAL]:,} partitions are up to date, and a launch of the whole range "
            f"would read them all the same. `backfill-assets apply` launches only {', '.join(ranges[:3])}{more}."
            f"{_compared(plan)}"
        )
    said += [f"{key}: {_counted(ranges)}." for key, ranges in plan.downstream.items()]
    said += plan.remarks
    if not plan.is_deep:
        said.append(
            "No rows were read: `--deep` reads the source, and is certain of what is refused and what identical."
        )
    return said


def refused_in_words(plan: PlanDocument) -> list[str]:
    """Return which partitions a plan does not launch because they would have been refused, a sentence each."""
    refused = [line.found for line in lines_of(plan) if line.action is Action.REFUSED]
    then = "is not launched; when this was planned it would have been refused"
    said = [f"{_range(found)} {then}: {found[0].why.rstrip('.')}." for found in refused[:MOST_REFUSED]]
    more = sum(map(len, refused[MOST_REFUSED:]))
    return [*said, f"So would {more:,} more have been; `--json` of `plan` has each."] if more else said


def show(plan: PlanDocument, console: Console) -> None:
    """Print a plan as a table."""
    from rich.markup import escape
    from rich.table import Table

    shown = Table(title=f"{plan.table}: plan {plan.id}", title_justify="left")
    for name in COLUMNS:
        is_number = name in ("number", "rows now", "rows then")
        shown.add_column(name, justify="right" if is_number else "left", overflow="fold", no_wrap=name == "partitions")
    lines = list(lines_of(plan))
    for line in lines[:MOST_LINES]:
        shown.add_row(*map(escape, line.fields()), style=_STYLES.get(line.action))
    console.print(shown)
    if len(lines) > MOST_LINES:
        console.print(f"... and {len(lines) - MOST_LINES:,} more lines; `--json` has every partition.")
    for sentence in sentences_of(plan):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)


def markdown_of(plan: PlanDocument) -> str:
    """Return a plan as Markdown."""
    lines = list(lines_of(plan))
    rows = [" | ".join(field.replace("|", "\\|") for field in line.fields()) for line in lines[:MOST_LINES]]
    more = [f"... and {len(lines) - MOST_LINES:,} more lines.", ""] if len(lines) > MOST_LINES else []
    return "\n".join(
        [
            f"### `{plan.table}`: plan `{plan.id}`",
            "",
            f"| {' | '.join(COLUMNS)} |",
            "|---|---:|---|---|---:|---:|---|",
            *(f"| {row} |" for row in rows),
            "",
            *more,
            *(f"- {sentence}" for sentence in sentences_of(plan)),
        ]
    )


def _estimated(plan: PlanDocument) -> str:
    known = plan.estimate
    by = (
        f"judged by {known['chunks_seen']} chunk{'' if known['chunks_seen'] == 1 else 's'} of `{known['learned_from']}`"
        if known["learned_from"]
        else "a guess: nothing like it was published here yet"
    )
    return f"Publishing takes {_time(known)} ({by}){_amount(known)}."


def _compared(plan: PlanDocument) -> str:
    """Return what the launches of a plan come to, beside one of the whole range."""
    whole = plan.estimate.get("whole")
    if not whole:
        return ""
    here, there = (f"{_time(known)}{_amount(known)}" for known in (plan.estimate, whole))
    return f" That takes {here}, instead of {there}."


def _time(known: Mapping[str, Any]) -> str:
    least, most = (seconds_in_words(seconds) for seconds in known["seconds"])
    return least if least == most else f"{least} to {most}"


def _amount(known: Mapping[str, Any]) -> str:
    """Return what is read, and what it costs where there are prices."""
    files = f" in {known['files']:,} files" if known["files"] else ""
    read = f", for {bytes_in_words(known['size_bytes'])}{files}" if known["size_bytes"] else ""
    if "cost" not in known:
        return read
    return f"{read}, {money_in_words(known['cost'][0])} to {money_in_words(known['cost'][1])} {known['currency']}"


def _range(run: Sequence[PartitionForecast]) -> str:
    return range_in_words(run[0].partition.key, run[-1].partition.key)


def _counted(ranges: Sequence[Sequence[Any]]) -> str:
    total = sum(count for _, _, count in ranges)
    named = ", ".join(range_in_words(first, last) for first, last, _ in ranges[:3])
    more = f" and {len(ranges) - 3} more ranges" if len(ranges) > 3 else ""
    return f"{total:,} partition{' is' if total == 1 else 's are'} made of these ({named}{more})"
