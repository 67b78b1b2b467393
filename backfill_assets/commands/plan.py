"""`backfill-assets plan`: what a launch would do with each partition, before it does anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from backfill_assets.commands.plan_selection import select
from backfill_assets.commands.project import Project, ProjectTable
from backfill_assets.commands.terminal import (
    definitions_option,
    json_option,
    new_console,
    one_message_for_an_error,
)
from backfill_assets.commands.time_and_cost import past_of, prices_in, prices_option
from backfill_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from backfill_assets.core.calendar.partitions import Partition
    from backfill_assets.core.history.estimate import PastChunk, Prices
    from backfill_assets.core.history.forecast import Forecast, PartitionForecast
    from backfill_assets.core.history.plan import Launch
    from backfill_assets.core.history.plan_document import PlanDocument


GUARDS = ("keep_keys", "only_keys")
"""Of a launch's config: what it must leave of the table's rows."""


@click.command()
@click.argument("key")
@click.option(
    "--partition-range",
    metavar="A...B",
    help="First and last partition, both included. Needed without --keys or --modified-since.",
)
@click.option("--keys", metavar="A...B", help="Only partitions that have such keys; nothing else in them may change.")
@click.option("--modified-since", metavar="INSTANT", help="Only partitions with rows written since, by the database.")
@click.option(
    "--only",
    type=click.Choice(["all", "missing"]),
    default="all",
    show_default=True,
    help="As in a launch's config: `missing` leaves out what is published as it would be made now.",
)
@click.option("--allow-shrink", is_flag=True, help="As in a launch's config.")
@click.option("--keep-keys", is_flag=True, help="Refuse partitions from which a key would get lost.")
@click.option("--allow-unexpected", is_flag=True, help="As in a launch's config.")
@click.option("--reason", default="", help="Why; it is kept in the receipt of every commit that the plan leads to.")
@click.option("--deep", is_flag=True, help="Read and audit the source as the launch would, so that all is certain.")
@click.option("--downstream", is_flag=True, help="Also name the partitions of other tables that are made of these.")
@prices_option
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the plan, for `apply`.")
@click.option("--markdown", is_flag=True, help="Print Markdown, for the comment of a pull request.")
@json_option
@definitions_option
def plan(key: str, *, output: Path | None, markdown: bool, as_json: bool, module: str, **asked: Any) -> None:
    """Say what a launch of the table KEY would do with each partition of a range. Nothing is written.

    A partition is created, replaced, found identical, refused, or left out; and why. Without --deep that is judged by
    receipts, the log and what the source says of itself, in seconds; with --deep the source is read.

    \b
    Examples:
      backfill-assets plan bronze/orders --partition-range 2023-01-01...2025-12-31
      backfill-assets plan bronze/orders --partition-range 2024-03-01...2024-03-31 --reason "new export" -o plan.json
      backfill-assets plan bronze/customers --modified-since 2024-05-01T00:00:00Z -o plan.json
      backfill-assets plan bronze/customers --keys 1000...1999 -o plan.json
      backfill-assets apply plan.json
    """
    with one_message_for_an_error(), Project.load(module, looks=not asked["deep"]) as project:
        console = new_console(stderr=True)
        with console.status(f"Looking at {key} and its source"):
            made = make_plan(project, key, **asked, log=console.log)
        if output is not None:
            write_plan(output, made)
            console.print(f"The plan is in {output}. To carry it out: backfill-assets apply {output}", highlight=False)
    if as_json:
        click.echo(made.to_json())
        return
    from backfill_assets.commands.plan_report import markdown_of, show

    if markdown:
        click.echo(markdown_of(made))
    else:
        show(made, new_console())


def make_plan(
    project: Project,
    key: str,
    *,
    partition_range: str | None,
    keys: str | None = None,
    modified_since: str | None = None,
    keep_keys: bool = False,
    only: Literal["all", "missing"] = "all",
    allow_shrink: bool = False,
    allow_unexpected: bool = False,
    reason: str = "",
    deep: bool = False,
    downstream: bool = False,
    price_file: Path | None = None,
    log: Callable[[str], None],
) -> PlanDocument:
    """Return the plan of a launch.

    Raises:
        ConfigurationError: There is no such table, or the prices cannot be read.
        WindowError: The range is not one of the table.
        SchemaMismatchError, TableFactsError: The table, or its source, has other columns than its spec.
    """
    chosen = project.table(key)
    prices = prices_in(price_file) if price_file else None
    selected = select(chosen, partition_range, keys=keys, modified_since=modified_since, log=log)
    how: dict[str, Any] = {"only": only, "allow_shrink": allow_shrink, "allow_unexpected": allow_unexpected}
    how |= {"reason": reason, **({"keep_keys": True} if keep_keys else {}), **({"only_keys": keys} if keys else {})}
    made = plan_of(chosen, selected.partitions, how, deep=deep, downstream=downstream, prices=prices, log=log)
    return replace(made, remarks=(*_advice(chosen, made, downstream, log), *selected.remarks, *made.remarks))


def _advice(chosen: ProjectTable, made: PlanDocument, downstream: bool, log: Callable[[str], None]) -> list[str]:
    """Return what the plan's reason suggests, and where the plan does something else."""
    from backfill_assets.core.history.advice import advice_on
    from backfill_assets.core.history.reasons import ReasonKind, kind_of

    spec, key = chosen.spec, chosen.spec.key
    below = sorted(name for name, of in chosen.specs.items() if any(one.table == key for one in of.source.inputs))
    is_of_logic = kind_of(made.config["reason"]) is ReasonKind.LOGIC_CHANGED
    published = chosen.lakehouse.table(spec, log).published() if is_of_logic else {}
    return list(advice_on(made, spec, below=below, are_named=downstream, published=published))


def plan_of(
    chosen: ProjectTable,
    wanted: Sequence[Partition],
    how: Mapping[str, Any],
    *,
    deep: bool = False,
    downstream: bool = False,
    prices: Prices | None = None,
    log: Callable[[str], None],
) -> PlanDocument:
    """Return the plan of a launch of some partitions.

    Args:
        how: Config of the launch: `only`, `allow_shrink`, `allow_unexpected`, `reason`; `keep_keys`, `only_keys`.
    """
    from backfill_assets.core.history.downstream import made_of
    from backfill_assets.core.history.plan_document import PlanDocument, facts_of, in_ranges

    launch = launch_of(chosen, **how)
    forecast = forecast_of(chosen, wanted, launch, deep=deep, log=log)
    written = [found.partition for found in forecast.written]
    below = made_of(chosen.spec.key, written, chosen.specs) if downstream and written else {}
    return PlanDocument(
        chosen.spec.key,
        forecast.partitions,
        how,
        facts_of(chosen.spec, forecast, chosen.table.code_version),
        forecast.is_deep,
        remarks=forecast.remarks,
        estimate=_estimate(chosen, forecast, prices, log),
        downstream={name: in_ranges(partitions) for name, partitions in below.items()},
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def launch_of(chosen: ProjectTable, **how: Any) -> Launch:
    """Return the launch that a plan is about, as a run of it would make it, and what the newest comparisons failed."""
    import dagster as dg

    from backfill_assets.core.history.guards import Allowances, guards_in
    from backfill_assets.core.history.plan import Launch
    from backfill_assets.core.state.receipts import Run
    from backfill_assets.runs.check_history import failed_comparisons

    guards = guards_in(chosen.spec, {name: how.pop(name, None) for name in GUARDS})
    with dg.DagsterInstance.get() as instance:
        differing = frozenset(failed_comparisons(instance, chosen.table))
    shrink, unexpected = how.pop("allow_shrink", False), how.pop("allow_unexpected", False)
    allowed = Allowances(allow_shrink=shrink, allow_unexpected=unexpected)
    run = Run("plan", reason=how.pop("reason", ""), code_version=chosen.table.code_version)
    return Launch(run, allowed=allowed, guards=guards, differing=differing, **how)


def forecast_of(
    chosen: ProjectTable,
    wanted: Sequence[Partition],
    launch: Launch,
    *,
    deep: bool = False,
    log: Callable[[str], None],
) -> Forecast:
    """Return what a launch of a project's table would do."""
    from backfill_assets.core.history.forecast import foresee
    from backfill_assets.runs.attempts import newest_refusals
    from backfill_assets.spark.failures import translated

    lake = chosen.lakehouse.table(chosen.spec, log)
    lake.refuse_another_schema()
    transform = chosen.table.transform() if chosen.table.transform else None
    source = chosen.lakehouse.source(chosen.spec, chosen.specs, transform, log)
    with translated(chosen.spec.key):
        refused = partial(newest_refusals, lake, wanted, differing=launch.differing)
        return foresee(chosen.spec, wanted, source, lake, launch, deep=deep, refused=refused, log=log)


def _estimate(
    chosen: ProjectTable, forecast: Forecast, prices: Prices | None, log: Callable[[str], None]
) -> dict[str, Any]:
    """Return how long the chunks of each launch take to publish, by those of this table, or else of tables like it.

    `whole` is the same of a launch that made all of the range, where part of it is up to date.
    """
    past, learned_from = past_of(chosen, log)
    most, written = chosen.spec.max_partitions_per_chunk, forecast.written
    judged = _judged(written, past, most, prices)
    if any(one.action == "identical" for one in forecast.partitions):
        launched = [one for one in forecast.partitions if one in written or one.action == "identical"]
        judged["whole"] = _judged(launched, past, most, prices)
    return {"learned_from": learned_from, "chunks_seen": len(past), **judged}


def _judged(
    named: Sequence[PartitionForecast], past: Sequence[PastChunk], most: int, prices: Prices | None
) -> dict[str, Any]:
    """Return how long it takes to publish some partitions, and what is read; each the least and the most."""
    from backfill_assets.core.calendar.partitions import runs_of
    from backfill_assets.core.history.estimate import seconds_of, work_of

    known = {one.partition: one.rows if one.rows is not None else one.rows_now or 0 for one in named}
    typical = sum(known.values()) // max(1, sum(1 for count in known.values() if count))
    rows = {partition: count or typical for partition, count in known.items()}
    chunks = [
        [rows[partition] for partition in run[at : at + most]]
        for run in runs_of(sorted(rows))
        for at in range(0, len(run), most)
    ]
    seconds = seconds_of([work_of(len(chunk), sum(chunk)) for chunk in chunks], past)
    size_bytes = sum(one.size_bytes for one in named)
    found: dict[str, Any] = {"seconds": [round(second, 1) for second in seconds]}
    if prices:
        found["cost"] = [round(amount, 4) for amount in prices.cost(size_bytes, seconds)]
        found["currency"] = prices.currency
    return {**found, "rows": sum(rows.values()), "size_bytes": size_bytes, "files": sum(one.files for one in named)}


def write_plan(output: Path, made: PlanDocument) -> None:
    """Write a plan to a file.

    Raises:
        ConfigurationError: It cannot be written.
    """
    try:
        output.write_text(made.to_json() + "\n", encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(
            f"The plan cannot be written to `{output}`: {error}.",
            state="Nothing was written.",
            remedy="Name another file with -o.",
        ) from error
