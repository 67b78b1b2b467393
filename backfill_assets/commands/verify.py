"""`backfill-assets verify`: compare a table's rows with its receipts, by another reader than its writer."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from backfill_assets.commands.project import NOTHING_READ, Project, ProjectTable
from backfill_assets.commands.terminal import (
    EXIT_DIFFERS,
    definitions_option,
    json_option,
    new_console,
    one_message_for_an_error,
    partitions_named,
)
from backfill_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console

    from backfill_assets.core.state.receipts import PublishedPartition
    from backfill_assets.core.state.tallies import Content

MOST_LINES = 40


@click.command()
@click.argument("key")
@click.option("--partition-range", metavar="A...B", help="First and last partition; all with a receipt if not given.")
@json_option
@definitions_option
def verify(key: str, *, partition_range: str | None, as_json: bool, module: str) -> None:
    """Compare the rows of the table KEY with its receipts.

    delta-rs reads every partition, without Spark and without Java: it is not the engine that wrote them. Each
    partition's rows are counted, their checksum is computed, and both are compared with the newest receipt. A value
    that changed, a row that is lost or there twice, NULL in place of '': each gives another checksum.

    \b
    Examples:
      backfill-assets verify bronze/orders
      backfill-assets verify bronze/orders --partition-range 2024-01-01...2024-03-31 --json
    \b
    Exit code:  0  every partition has the rows that its receipt names
                1  some have other rows, or no receipt that can be compared
                2  the table cannot be read, or no partition has a receipt
    """
    with one_message_for_an_error(), Project.load(module, looks=True) as project:
        console = new_console(stderr=True)
        with console.status(f"Reading {key}"):
            report = verify_table(project.table(key), partition_range, console.log)
        if as_json:
            click.echo(report.to_json())
        else:
            report.show(new_console())
    sys.exit(EXIT_DIFFERS if report.differing else 0)


@dataclass(frozen=True, slots=True)
class Differing:
    """A partition whose rows are not known to be those of its receipt.

    Args:
        rows_published: As its receipt has it; None if it has no receipt.
        rows_now: None if they were not counted.
    """

    partition: str
    rows_published: int | None
    rows_now: int | None
    why: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """A table's partitions, compared with their receipts.

    Args:
        version: Of the table that was read.
        verified: How many partitions were looked at.
    """

    table: str
    version: int
    verified: int
    differing: Sequence[Differing]

    def to_json(self) -> str:
        """Return one JSON object."""
        body = {
            "table": self.table,
            "version": self.version,
            "verified": self.verified,
            "holds": not self.differing,
            "differing": [asdict(one) for one in self.differing],
        }
        return json.dumps(body, indent=1, ensure_ascii=False)

    def show(self, console: Console) -> None:
        """Print it."""
        from rich.markup import escape
        from rich.table import Table

        if self.differing:
            shown = Table(title="Partitions that do not have the rows of their receipt", title_justify="left")
            for name in ("partition", "rows published", "rows now", "why"):
                shown.add_column(name, justify="right" if "rows" in name else "left", overflow="fold")
            for one in self.differing[:MOST_LINES]:
                counts = ("" if rows is None else f"{rows:,}" for rows in (one.rows_published, one.rows_now))
                shown.add_row(one.partition, *counts, escape(one.why))
            console.print(shown)
            if len(self.differing) > MOST_LINES:
                console.print(f"... and {len(self.differing) - MOST_LINES:,} more.", highlight=False)
            console.print(f"`backfill-assets history {self.table} --partition P` shows who wrote a partition.")
        console.print(
            f"{self.verified - len(self.differing):,} of {self.verified:,} partitions of {self.table} have the rows of "
            f"their receipts, in version {self.version} as delta-rs reads it.",
            highlight=False,
            soft_wrap=True,
        )


def verify_table(chosen: ProjectTable, partition_range: str | None, log: Callable[[str], None]) -> VerifyReport:
    """Compare the partitions of a table with their receipts.

    Raises:
        ConfigurationError: The table has other columns than its spec; or no partition has a receipt.
        WindowError: The range is not one of the table.
        UnreadableSourceError: delta-rs cannot read the table.
    """
    from backfill_assets.core.state.receipts import has_other_columns
    from backfill_assets.lake import delta_rs

    spec, lake = chosen.spec, chosen.lakehouse.table(chosen.spec, log)
    table = delta_rs.opened(lake.spark, lake.path)
    published = lake.published(until=table.version())
    wanted = partitions_named(spec, partition_range) if partition_range else spec.grid.from_start(published)
    named = [partition for partition in wanted if partition.key in published]
    if not named:
        raise ConfigurationError(
            f"No partition of `{spec.key}` {f'in {partition_range} ' if partition_range else ''}has a receipt.",
            state=NOTHING_READ,
            remedy=f"Launch it first. `backfill-assets reconcile {spec.key}` compares rows without receipts with the "
            "source.",
        )
    columns = {name: column.type for name, column in spec.columns.items()}
    compared = {p.key: p.value for p in named if not has_other_columns(published[p.key].receipt, spec)}
    found = dict(delta_rs.contents(table, columns, spec.partition_column, compared))
    differing = list(_differing([partition.key for partition in wanted], published, found))
    return VerifyReport(spec.key, table.version(), len(wanted), differing)


def _differing(
    keys: Sequence[str],
    published: Mapping[str, PublishedPartition],
    found: Mapping[str, Content],
) -> Iterator[Differing]:
    for key in keys:
        known, now = published.get(key), found.get(key)
        if known is None:
            yield Differing(key, None, None, "it has no receipt")
        elif now is None:
            yield Differing(key, known.partition.rows, None, "published with other columns")
        elif now != known.partition.content:
            yield Differing(key, known.partition.rows, now[0], f"other rows than version {known.version} published")
