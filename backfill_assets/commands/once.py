"""`backfill-assets once`: what the once-flows of a table have done, and a reset."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from backfill_assets.commands.project import Project
from backfill_assets.commands.terminal import definitions_option, json_option, new_console, one_message_for_an_error
from backfill_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.table import Table as Shown

    from backfill_assets.core.history.once import FlowProgress
    from backfill_assets.core.spec.once import OnceFlow
    from backfill_assets.core.spec.table import TableSpec
    from backfill_assets.core.state.receipts import Receipt

ALL = "all"


@click.command()
@click.argument("key")
@click.option(
    "--reset",
    metavar="NAME",
    help="Let the flow NAME, or `all` of them, run again at its next launch. Nothing is deleted.",
)
@json_option
@definitions_option
def once(key: str, *, reset: str | None, as_json: bool, module: str) -> None:
    """Show which once-flows of the table KEY have run, when and in which run; or reset them.

    A once-flow loads its range of partitions exactly once: launch its asset, and a second launch writes nothing. A
    reset is a commit without rows in the table's log. The rows stay; the next launch of the flow replaces them.

    \b
    Examples:
      backfill-assets once bronze/registration_events
      backfill-assets once bronze/registration_events --reset registration_events_2023
      backfill-assets once bronze/registration_events --reset all --json
    """
    with one_message_for_an_error(), Project.load(module, looks=not reset) as project:
        console = new_console(stderr=True)
        with console.status(f"Looking at {key}"):
            report = look_at_flows(project, key, reset, log=console.log)
    if as_json:
        click.echo(report.to_json())
    else:
        new_console().print(report.to_table())


@dataclass(frozen=True, slots=True)
class FlowsReport:
    """The once-flows of a table with what each did, and which were reset now."""

    key: str
    flows: Sequence[FlowProgress]
    reset: Sequence[str] = ()

    def to_json(self) -> str:
        """Return one JSON object."""
        return json.dumps(
            {"table": self.key, "reset": list(self.reset), "flows": [_as_fields(flow) for flow in self.flows]}, indent=2
        )

    def to_table(self) -> Shown:
        """Return what a person reads."""
        from rich.table import Table as Shown

        shown = Shown(title=f"{self.key}: once-flows", title_justify="left")
        for name in ("flow", "range", "state", "partitions", "rows", "when", "run"):
            shown.add_column(name, justify="right" if name in ("partitions", "rows") else "left", overflow="fold")
        for progress in self.flows:
            fields = _as_fields(progress)
            state = f"{progress.state}, reset" if progress.flow.name in self.reset else progress.state
            done = f"{fields['published']:,} of {fields['partitions']:,}"
            shown.add_row(
                progress.flow.name,
                progress.flow.range,
                state,
                done,
                f"{progress.rows:,}",
                fields["at"],
                fields["run_id"],
            )
        return shown


def _as_fields(progress: FlowProgress) -> dict[str, Any]:
    receipt = progress.newest.receipt if progress.newest else None
    return {
        "name": progress.flow.name,
        "asset": progress.flow.key,
        "range": progress.flow.range,
        "state": progress.state,
        "partitions": len(progress.flow.partitions),
        "published": len(progress.published),
        "rows": progress.rows,
        "at": receipt.made_at if receipt else None,
        "run_id": receipt.run.id if receipt else None,
        "reset_at": progress.reset.made_at if progress.reset else None,
    }


def look_at_flows(project: Project, key: str, reset: str | None, *, log: Callable[[str], None]) -> FlowsReport:
    """Return the once-flows of a table with their state; reset one or all of them first if asked to.

    Args:
        reset: Name of a flow, or `all`; None to reset nothing.

    Raises:
        ConfigurationError: There is no such table or flow, or the table has no once-flows.
        TableLockedError: A flow that is to be reset runs just now. None was reset.
    """
    from backfill_assets.assets.once import reset_flows
    from backfill_assets.core.history.once import progress_of
    from backfill_assets.runs.attempts import fill_copy

    table = project.table(key)
    chosen = _chosen(table.spec, reset)
    delta = table.lakehouse.table(table.spec, log)
    receipts: dict[int, Receipt] = delta.history.receipts() if delta.exists() else {}
    done = [flow for flow in chosen if progress_of(flow, receipts).published]
    reset_flows(delta, done, log)
    if done:
        receipts = delta.history.receipts()
        fill_copy(delta, log)
    return FlowsReport(
        key, [progress_of(flow, receipts) for flow in table.spec.once_flows], [flow.name for flow in done]
    )


def _chosen(spec: TableSpec, reset: str | None) -> list[OnceFlow]:
    """Return the flows that a name means."""
    flows = spec.once_flows
    if not flows:
        raise ConfigurationError(
            f"`{spec.key}` has no once-flows.",
            state="Nothing was changed.",
            remedy="Add `once:` to its spec: the years, or other ranges, that are to be loaded exactly once.",
        )
    chosen = [flow for flow in flows if reset in (ALL, flow.name, flow.key)]
    if reset is not None and not chosen:
        raise ConfigurationError(
            f"`{spec.key}` has no once-flow `{reset}`.",
            state="Nothing was reset.",
            remedy=f"There are: {', '.join(flow.name for flow in flows)}; or `{ALL}` of them.",
        )
    return chosen
