"""`backfill-assets apply`: carry out a plan, exactly; or refuse, and name what has changed since it was made."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backfill_assets.commands.plan import GUARDS, forecast_of, launch_of
from backfill_assets.commands.project import Project, ProjectTable
from backfill_assets.commands.range_launch import RangeRun, launch_range
from backfill_assets.commands.terminal import (
    EXIT_DIFFERS,
    definitions_option,
    json_option,
    new_console,
    one_message_for_an_error,
    text_in,
)
from backfill_assets.errors import NOTHING_WRITTEN, PlanDriftError

if TYPE_CHECKING:
    from rich.console import Console

    from backfill_assets.core.history.forecast import PartitionForecast
    from backfill_assets.core.history.plan_document import PlanDocument


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
@definitions_option
def apply(file: Path, *, as_json: bool, module: str) -> None:
    """Launch exactly what the plan in FILE says, as ordinary runs over ranges; or nothing, if it no longer holds.

    The plan holds as long as its partitions are as they were when it was made, at the source and in the table, and so
    are the fence, the spec and the code. What the plan has published already is not launched again, so a plan that was
    interrupted is carried on by the same command, and one that was carried out makes no commit.

    \b
    Exit code:  0  everything that the plan writes is published
                1  a launch has failed, or refused partitions
                2  the plan does not hold any more, or is none; nothing was written
    """
    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console(stderr=True)
        report = apply_plan(project, file, say=lambda text: console.print(text, highlight=False), log=console.log)
    if as_json:
        click.echo(report.to_json())
    else:
        report.show(new_console())
    sys.exit(0 if report.succeeded else EXIT_DIFFERS)


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a plan.

    Args:
        before: Partitions that it had published already.
        refused: Those that it does not launch, because they would have been refused; a sentence each.
    """

    plan_id: str
    table: str
    planned: int
    before: int
    runs: tuple[RangeRun, ...]
    refused: tuple[str, ...] = ()

    @property
    def succeeded(self) -> bool:
        return not any(run.failure for run in self.runs)

    def to_json(self) -> str:
        """Return one JSON object."""
        return json.dumps(
            {
                "plan": self.plan_id,
                "table": self.table,
                "planned": self.planned,
                "published_before": self.before,
                "succeeded": self.succeeded,
                "runs": [run.fields() for run in self.runs],
                "refused": list(self.refused),
            },
            indent=2,
        )

    def show(self, console: Console) -> None:
        """Print it."""
        for run in self.runs:
            console.print(str(run), highlight=False, soft_wrap=True)
        if not self.runs:
            left = f"left to write: {self.before:,} of its {self.planned:,} partitions are published by it"
            nothing = f"nothing {left}" if self.planned else "nothing to write"
            console.print(f"Plan {self.plan_id} has {nothing}.", highlight=False, soft_wrap=True)
        for sentence in self.refused:
            console.print(sentence, highlight=False, markup=False, soft_wrap=True)


def apply_plan(project: Project, file: Path, *, say: Callable[[str], None], log: Callable[[str], None]) -> Applied:
    """Launch what a plan writes and has not published yet.

    Raises:
        ConfigurationError: It is no plan, or its table is none of the project.
        PlanDriftError: It does not hold any more. Nothing was written.
    """
    from backfill_assets.commands.plan_report import refused_in_words
    from backfill_assets.core.history.plan_document import drift, plan_from_json, table_of

    text = text_in(file, "Name a file that `plan -o` has written.")
    chosen = project.table(table_of(text, str(file)))
    plan = plan_from_json(text, str(file), chosen.spec)
    lake = chosen.lakehouse.table(chosen.spec, log)
    published = lake.published()
    mine = {one.partition for one in plan.written if _is_of(plan, published.get(one.partition.key))}
    if touched := lake.written_by_others({one.key: published[one.key] for one in mine}):
        raise _drifted(
            plan,
            [
                f"table, partition {key}: the plan published it, and somebody else wrote it in version {version}"
                for key, version in sorted(touched.items())
            ],
        )
    left = plan.without(mine)
    if left.written:
        named = [one.partition for one in left.written]
        config = {
            name: plan.config[name]
            for name in ("only", "allow_shrink", "allow_unexpected", "reason", *GUARDS)
            if name in plan.config
        }
        now = forecast_of(chosen, named, launch_of(chosen, **config), log=log)
        if changed := drift(left, chosen.spec, now, chosen.table.code_version):
            raise _drifted(plan, changed)
    from backfill_assets.runs.pacing import wait_in_words

    runs: list[RangeRun] = []
    for number, run in enumerate(left.launches(), start=1):
        first, last = run[0].partition.key, run[-1].partition.key
        if waits := wait_in_words(chosen.spec, datetime.now(UTC)):
            say(waits)
        say(f"Launch {number} of {len(left.launches())}: {first}...{last} (partitions: {len(run):,})")
        runs.append(_launch(chosen, plan, run))
        if runs[-1].failure:
            break  # what follows may rest on the same fault
    return Applied(
        plan.id, plan.table, len(plan.written), len(mine), tuple(runs), refused=tuple(refused_in_words(plan))
    )


def _drifted(plan: PlanDocument, changed: Sequence[str]) -> PlanDriftError:
    more = f"; and {len(changed) - 5} more" if len(changed) > 5 else ""
    return PlanDriftError(
        f"`{plan.table}`: plan `{plan.id}` does not hold any more: {'; '.join(changed[:5])}{more}.",
        state=NOTHING_WRITTEN,
        remedy="Make a new plan, look at it, and apply that.",
        changed=list(changed),
    )


def _launch(chosen: ProjectTable, plan: PlanDocument, run: Sequence[PartitionForecast]) -> RangeRun:
    """Materialize one range in a run of Dagster."""
    from backfill_assets.core.history.plan_document import digest_of
    from backfill_assets.runs.run_tags import PLAN

    config = {
        "only": "ALL",
        "allow_shrink": plan.config["allow_shrink"],
        "allow_unexpected": plan.config.get("allow_unexpected", False),
        "reason": plan.config["reason"],
        "plan": plan.id,
        "planned_state": digest_of(run),
        **{name: plan.config[name] for name in GUARDS if name in plan.config},
    }
    return launch_range(chosen, run[0].partition.key, run[-1].partition.key, config, {PLAN: plan.id})


def _is_of(plan: PlanDocument, known: Any) -> bool:
    """Say whether a partition's newest publish is a plan's own."""
    return known is not None and known.receipt.kind == "publish" and known.receipt.run.plan == plan.id
