"""`backfill-assets certify`: write down what partitions of a table hold, so that anyone can check it later."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from backfill_assets.commands.project import Project
from backfill_assets.commands.terminal import (
    EXIT_DIFFERS,
    definitions_option,
    new_console,
    one_message_for_an_error,
    partitions_named,
)
from backfill_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from backfill_assets.core.history.certificate import Certificate

MOST_NAMED = 10


@click.command()
@click.argument("key")
@click.option(
    "--partition-range", metavar="A...B", help="First and last partition; all that are published if not given."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    default="-",
    help="The file to write; standard output if not given.",
)
@definitions_option
def certify(key: str, *, partition_range: str | None, output: Path, module: str) -> None:
    """Write a certificate of what partitions of the table KEY hold: rows, checksum, and what they were made of.

    The table's rows are read and held against their receipts. A partition that is not published, or holds other rows
    than its receipt names, is not certified, and named. `backfill-assets verify FILE` checks a certificate, with Spark
    or without it. Entries are chained, so one that was changed shows; the certificate's id is its last link.

    \b
    Example:
      backfill-assets certify bronze/orders --partition-range 2023-01-01...2025-12-31 -o orders.json
    \b
    Exit code:  0  every partition is certified
                1  some are not
                2  the table cannot be read
    """
    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console(stderr=True)
        with console.status(f"Reading {key}"):
            made, left_out = make_certificate(project, key, partition_range, log=console.log)
        _write(output, made)
        console.print(f"{len(made.entries):,} partitions are certified: {made.id}", highlight=False, soft_wrap=True)
        for partition, why in list(left_out.items())[:MOST_NAMED]:
            console.print(f"Not certified: {partition}, {why}.", highlight=False, markup=False, soft_wrap=True)
        if len(left_out) > MOST_NAMED:
            console.print(f"... and {len(left_out) - MOST_NAMED:,} more.", highlight=False)
    sys.exit(EXIT_DIFFERS if left_out else 0)


def make_certificate(
    project: Project, key: str, partition_range: str | None, *, log: Callable[[str], None]
) -> tuple[Certificate, dict[str, str]]:
    """Return the certificate of some partitions, and why others are not in it, by key.

    Raises:
        ConfigurationError: There is no such table, or nothing of it is published.
        WindowError: The range is not one of the table.
        SchemaMismatchError: The table differs from its spec.
    """
    from backfill_assets.core.history.certificate import Certificate, entry_of
    from backfill_assets.core.state.receipts import audited_contents, has_other_columns
    from backfill_assets.core.state.tallies import EMPTY
    from backfill_assets.runs.run_tags import launched_by
    from backfill_assets.spark.failures import translated

    chosen = project.table(key)
    spec, code_version = chosen.spec, chosen.table.code_version
    lake = chosen.lakehouse.table(spec, log)
    with translated(key):
        lake.refuse_another_schema()
        version = lake.version()
        published = lake.published(until=version)
        wanted = partitions_named(spec, partition_range) if partition_range else spec.grid.from_start(published)
        present = [partition for partition in wanted if partition.key in published]
        if not present:
            raise ConfigurationError(
                f"Nothing of `{key}` is published{f' in {partition_range}' if partition_range else ''}, so there is "
                "nothing to certify.",
                state="Nothing was written.",
                remedy="Launch it first; `backfill-assets gaps` says what is missing.",
            )
        chosen.lakehouse.expect(wanted)
        unique = audited_contents(published, present, spec, code_version)
        tallies = lake.tally(present, version=version, unique=unique)
    entries, left_out = [], {p.key: "it was never published" for p in wanted if p.key not in published}
    for partition in present:
        known = published[partition.key]
        if known.receipt.kind != "publish":
            left_out[partition.key] = "its newest publish was taken back"
        elif has_other_columns(known.receipt, spec, code_version):
            left_out[partition.key] = "its receipt is of other columns than the table has now"
        elif not known.partition.matches(tallies.get(partition.key, EMPTY)):
            left_out[partition.key] = "it does not hold what its receipt names"
        else:
            entries.append(entry_of(partition.key, known))
    if not entries:
        first, why = next(iter(left_out.items()))
        raise ConfigurationError(
            f"Not one of the {len(left_out):,} partitions can be certified; of {first}, {why}.",
            state="Nothing was written.",
            remedy=f"Launch them again; `backfill-assets status {key}` says what each of them lacks.",
        )
    columns = tuple((name, column.type) for name, column in spec.columns.items())
    now = datetime.now(UTC).isoformat(timespec="seconds")
    made = Certificate(key, version, spec.partition_column, columns, now, by=launched_by({}), entries=tuple(entries))
    return made, left_out


def _write(output: Path, made: Certificate) -> None:
    if str(output) == "-":
        click.echo(made.to_json())
        return
    try:
        output.write_text(made.to_json() + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"The certificate cannot be written to `{output}`: {error}.",
            state="Nothing was written.",
            remedy="Name another file with -o.",
        ) from error
