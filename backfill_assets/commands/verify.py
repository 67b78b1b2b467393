"""`backfill-assets verify`: hold a table against a certificate, with Spark or with another reader."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from backfill_assets.commands.project import NOTHING_READ, Project, ProjectTable
from backfill_assets.commands.terminal import (
    EXIT_DIFFERS,
    definitions_option,
    json_option,
    new_console,
    one_message_for_an_error,
    text_in,
)
from backfill_assets.errors import ConfigurationError, UnreadableSourceError

if TYPE_CHECKING:
    from rich.console import Console

    from backfill_assets.core.calendar.partitions import Partition
    from backfill_assets.core.history.certificate import Certificate
    from backfill_assets.core.state.tallies import Content

MOST_LINES = 40


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--delta-rs", "without_spark", is_flag=True, help="Read the table with delta-rs: no Spark, no Java.")
@click.option("--path", help="Folder or URI of the table: the project is not needed then. Read with delta-rs.")
@json_option
@definitions_option
def verify(file: Path, *, without_spark: bool, path: str | None, as_json: bool, module: str) -> None:
    """Hold a table as it is now against the certificate in FILE, partition by partition.

    First the chain of the certificate is held: a changed, missing or added entry is an error. Then every partition is
    read, and its rows counted and summed up again. What differs is named, with who has written it since, as far as the
    table's log tells.

    \b
    Examples:
      backfill-assets verify orders.json
      backfill-assets verify orders.json --delta-rs
      backfill-assets verify orders.json --path /lake/tables/bronze/orders
    \b
    Exit code:  0  every partition holds what was certified
                1  some hold other rows
                2  the certificate does not hold, or the table cannot be read
    """
    console = new_console(stderr=True)
    with one_message_for_an_error():
        if path:
            report = verify_at(path, file)
        else:
            with Project.load(module) as project, console.status("Reading the table"):
                report = verify_certificate(project, file, without_spark=without_spark, log=console.log)
    if as_json:
        click.echo(report.to_json())
    else:
        report.show(new_console())
    sys.exit(EXIT_DIFFERS if report.differing else 0)


@dataclass(frozen=True, slots=True)
class Differing:
    """A partition that does not hold what was certified."""

    partition: str
    rows_certified: int
    rows_now: int
    why: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """A table held against a certificate."""

    certificate: Certificate
    reader: str
    differing: Sequence[Differing]

    def to_json(self) -> str:
        """Return one JSON object."""
        differing = [
            {"partition": d.partition, "rows_certified": d.rows_certified, "rows_now": d.rows_now, "why": d.why}
            for d in self.differing
        ]
        body = {
            "certificate": self.certificate.id,
            "table": self.certificate.table,
            "reader": self.reader,
            "verified": len(self.certificate.entries),
            "holds": not differing,
            "differing": differing,
        }
        return json.dumps(body, indent=1, ensure_ascii=False)

    def show(self, console: Console) -> None:
        """Print it."""
        from rich.markup import escape
        from rich.table import Table

        total, made = len(self.certificate.entries), self.certificate
        if self.differing:
            shown = Table(title="Partitions that do not hold what was certified", title_justify="left")
            for name in ("partition", "rows certified", "rows now", "why"):
                shown.add_column(name, justify="right" if "rows" in name else "left", overflow="fold")
            for one in self.differing[:MOST_LINES]:
                shown.add_row(one.partition, f"{one.rows_certified:,}", f"{one.rows_now:,}", escape(one.why))
            console.print(shown)
        console.print(
            f"{total - len(self.differing):,} of {total:,} partitions of {made.table} hold what certificate "
            f"{made.id[:12]} says, read with {self.reader}.",
            highlight=False,
            soft_wrap=True,
        )


def verify_certificate(
    project: Project, file: Path, *, without_spark: bool, log: Callable[[str], None]
) -> VerifyReport:
    """Hold a table of a project against a certificate.

    Raises:
        ConfigurationError: It is none, or was changed; or its table is none of the project, or has other columns now.
        UnreadableSourceError: The table cannot be read.
    """
    from backfill_assets.core.history.certificate import certificate_from_json, not_as_certified

    made = certificate_from_json(text_in(file, "Name a file that `certify` has written."), str(file))
    chosen = project.table(made.table)
    _refuse_other_columns(made, chosen)
    partitions = [chosen.spec.grid.partition(entry.partition) for entry in made.entries]
    found = _by_delta_rs(chosen, made, partitions) if without_spark else _by_spark(chosen, made, partitions, log)
    differing = not_as_certified(made.entries, found.items())
    certified = {entry.partition: entry for entry in made.entries}
    whys = {} if without_spark or not differing else _whys(chosen, made, list(differing), log)
    return VerifyReport(
        made,
        "delta-rs" if without_spark else "Spark",
        [
            Differing(key, certified[key].rows, content[0], whys.get(key, "its rows are others"))
            for key, content in sorted(differing.items())
        ],
    )


def verify_at(path: str, file: Path) -> VerifyReport:
    """Hold a table at a path against a certificate, by what that says of it; no project says more.

    Raises:
        ConfigurationError: It is none, or was changed; or it is of hours, which the project's time zone names.
        UnreadableSourceError: The table cannot be read.
    """
    from backfill_assets.core.history.certificate import certificate_from_json, not_as_certified
    from backfill_assets.lake.delta_rs import contents

    made = certificate_from_json(text_in(file, "Name a file that `certify` has written."), str(file))
    try:
        values = {entry.partition: date.fromisoformat(entry.partition) for entry in made.entries}
    except ValueError as error:
        raise ConfigurationError(
            f"`{file}` certifies hours ({error}), and which hour of the table each is only its project says.",
            state=NOTHING_READ,
            remedy="Verify it where the project is: leave out --path, and say --delta-rs.",
        ) from error
    found = contents(path, dict(made.columns), made.partition_column, values)
    certified = {entry.partition: entry for entry in made.entries}
    differing = sorted(not_as_certified(made.entries, found).items())
    why = "its rows are others"
    return VerifyReport(made, "delta-rs", [Differing(k, certified[k].rows, now[0], why) for k, now in differing])


def _by_spark(
    chosen: ProjectTable, made: Certificate, partitions: Sequence[Partition], log: Callable[[str], None]
) -> dict[str, Content]:
    from backfill_assets.core.state.tallies import EMPTY
    from backfill_assets.spark.failures import translated

    chosen.lakehouse.expect(partitions)
    lake = chosen.lakehouse.table(chosen.spec, log)
    if not lake.exists():
        raise UnreadableSourceError(
            f"There is no table at `{lake.path}`.",
            state=NOTHING_READ,
            remedy="See that the lakehouse is where `LAKEHOUSE_ROOT` says, and mounted.",
        )
    with translated(chosen.spec.key):  # of what was certified no keys need be counted
        tallies = lake.tally(partitions, unique={entry.partition: entry.content for entry in made.entries})
    return {partition.key: tallies.get(partition.key, EMPTY).content for partition in partitions}


def _by_delta_rs(chosen: ProjectTable, made: Certificate, partitions: Sequence[Partition]) -> dict[str, Content]:
    from backfill_assets.lake.delta_rs import contents

    values = {partition.key: partition.value for partition in partitions}
    path = chosen.lakehouse.table_path(made.table)
    return dict(contents(path, dict(made.columns), made.partition_column, values))


def _whys(chosen: ProjectTable, made: Certificate, keys: Sequence[str], log: Callable[[str], None]) -> dict[str, str]:
    """Return who has written partitions since they were certified, in words, by key."""
    lake = chosen.lakehouse.table(chosen.spec, log)
    published = {key: known for key, known in lake.published().items() if key in keys}
    touched = lake.written_by_others(published)
    certified = {entry.partition: entry.receipt_id for entry in made.entries}
    whys: dict[str, str] = {}
    for key in keys:
        known = published.get(key)
        if key in touched:
            whys[key] = f"somebody else wrote it in version {touched[key]}"
        elif known is None:
            whys[key] = "its publish was taken back"
        elif known.receipt.receipt_id != certified[key]:
            whys[key] = f"published since, in version {known.version} by run {known.receipt.run_id}"
        else:
            whys[key] = "nobody has written it since, by the log: its files are not what they were"
    return whys


def _refuse_other_columns(made: Certificate, chosen: ProjectTable) -> None:
    columns = tuple((name, column.type) for name, column in chosen.spec.columns.items())
    if columns != made.columns:
        raise ConfigurationError(
            f"`{made.table}` has other columns now than were certified, so checksums cannot be compared.",
            state=NOTHING_READ,
            remedy="Make a new certificate; the old one holds for the version of the table that it names.",
        )
