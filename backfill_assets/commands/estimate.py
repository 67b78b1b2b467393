"""`backfill-assets estimate`: how large databases' tables are, by their catalog, and how long their history takes."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backfill_assets.commands.project import NOTHING_READ, Project, ProjectTable
from backfill_assets.commands.terminal import (
    EXIT_USAGE,
    definitions_option,
    json_option,
    new_console,
    one_message_for_an_error,
)
from backfill_assets.commands.time_and_cost import past_of, prices_in, prices_option
from backfill_assets.core.words import money_in_words, seconds_in_words
from backfill_assets.errors import AddressMissingError, BackfillAssetsError, ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console

    from backfill_assets.core.history.estimate import Prices
    from backfill_assets.sources.database.catalog import CatalogSize

MIB = 2**20


@click.command()
@click.argument("keys", nargs=-1)
@click.option(
    "--gb-per-hour",
    "speed",
    metavar="SLOW...FAST",
    help="How fast history is read, in 10^9 bytes an hour: `1...5`. Default: as chunks were published before.",
)
@prices_option
@json_option
@definitions_option
def estimate(keys: tuple[str, ...], *, speed: str | None, price_file: Path | None, as_json: bool, module: str) -> None:
    """Say how large the tables of databases are, and how long a launch of all their history takes. Largest first.

    Rows and sizes are the catalog's: no row is read, and each database is asked one question. `ANALYZE` in the database
    renews them. KEYS are tables of the project whose source is a database; without any, all of them.

    \b
    Examples:
      backfill-assets estimate
      backfill-assets estimate bronze/customers --gb-per-hour 1...5 --prices prices.yaml
    """
    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console(stderr=True)
        rates = _rates(speed) if speed else None
        prices = prices_in(price_file) if price_file else None
        with console.status("Asking the catalog"):
            found, unknown = estimates(project, keys, rates=rates, log=console.log)
    if as_json:
        failed = [{"table": key, "problem": str(error)} for key, error in unknown.items()]
        click.echo(json.dumps({"tables": [*(one.fields(prices) for one in found), *failed]}, indent=2))
    else:
        show(found, unknown, prices, new_console())
    if any(not isinstance(error, AddressMissingError) for error in unknown.values()):
        sys.exit(EXIT_USAGE)


@dataclass(frozen=True, slots=True)
class TableEstimate:
    """How large one table is, and how long a launch of all its history takes.

    Args:
        seconds: The least and the most.
        learned_from: The table whose chunks say how long it takes; empty if it is a guess, or a rate that was given.
    """

    key: str
    table: str
    size: CatalogSize
    seconds: tuple[float, float]
    learned_from: str = ""

    def fields(self, prices: Prices | None) -> dict[str, Any]:
        """Return it for JSON."""
        size = self.size
        found: dict[str, Any] = {
            "table": self.key,
            "source": self.table,
            "rows": size.rows,
            "data_bytes": size.data_bytes,
            "index_bytes": size.index_bytes,
            "seconds": [round(second, 1) for second in self.seconds],
            "learned_from": self.learned_from,
        }
        if prices:
            found["cost"] = [round(amount, 4) for amount in prices.cost(size.data_bytes, self.seconds)]
            found["currency"] = prices.currency
        return found


def estimates(
    project: Project,
    keys: Sequence[str],
    *,
    rates: tuple[float, float] | None = None,
    log: Callable[[str], None],
) -> tuple[list[TableEstimate], dict[str, BackfillAssetsError]]:
    """Return how large tables are, the largest first; and where none was named, why some could not be asked.

    Args:
        rates: Bytes a second, the slowest and the fastest; None: as chunks were published before.

    Raises:
        ConfigurationError: A key is not a table, or its source is not a database.
        SourceUnavailableError, SourceRefusedError, SourceMissingError: The database of a table that was named does not
            say.
    """
    from backfill_assets.assets.factory import tables_of
    from backfill_assets.core.spec.databases import DatabaseSpec
    from backfill_assets.sources.database.catalog import catalog_size

    of_databases = [key for key, table in tables_of(project.definitions)[0].items() if _is_launched(table.spec)]
    found, unknown = list[TableEstimate](), dict[str, BackfillAssetsError]()
    for chosen in map(project.table, keys or sorted(of_databases)):
        source = chosen.spec.source
        if not isinstance(source, DatabaseSpec):
            raise ConfigurationError(
                f"The source of `{chosen.spec.key}` is no database, so no catalog says how large it is.",
                state=NOTHING_READ,
                remedy=f"`backfill-assets plan {chosen.spec.key} --partition-range A...B` says how long one takes.",
            )
        try:
            size = catalog_size(chosen.spec, source)
        except BackfillAssetsError as error:
            if keys:
                raise
            unknown[chosen.spec.key] = error
            continue
        if rates:
            seconds, learned_from = (size.data_bytes / rates[1], size.data_bytes / rates[0]), ""
        else:
            seconds, learned_from = _learned(chosen, size, log)
        found.append(TableEstimate(chosen.spec.key, source.table, size, seconds, learned_from))
    return sorted(found, key=lambda one: (-one.size.data_bytes, one.key)), unknown


def _is_launched(spec: Any) -> bool:
    """Say whether a table's history is read from a database."""
    from backfill_assets.core.spec.databases import DatabaseSpec

    return isinstance(spec.source, DatabaseSpec) and not (spec.changes and spec.changes.backfill == "excluded")


def _learned(chosen: ProjectTable, size: CatalogSize, log: Callable[[str], None]) -> tuple[tuple[float, float], str]:
    """Return how long all partitions that have ended take, in chunks of the usual size, and which table says so."""
    from backfill_assets.core.history.estimate import seconds_of, work_of

    spec = chosen.spec
    past, learned_from = past_of(chosen, log)
    partitions = max(1, len(spec.grid.until(datetime.now(UTC))))
    chunks = math.ceil(partitions / spec.max_partitions_per_chunk)
    work = work_of(partitions, size.rows or 0) // chunks
    return seconds_of([work] * chunks, past), learned_from


def _rates(speed: str) -> tuple[float, float]:
    """Read `SLOW...FAST` in 10^9 bytes an hour; return bytes a second."""
    slow, _, fast = speed.partition("...")
    try:
        rates = float(slow) * 1e9 / 3600, float(fast or slow) * 1e9 / 3600
        if not 0 < rates[0] <= rates[1] < math.inf:
            raise ValueError(speed)
    except ValueError:
        raise ConfigurationError(
            f"`{speed}` says no speed.",
            state=NOTHING_READ,
            remedy="Write the slowest and the fastest in 10^9 bytes an hour, with three dots between: `1...5`.",
        ) from None
    return rates


def show(
    found: Sequence[TableEstimate],
    unknown: Mapping[str, BackfillAssetsError],
    prices: Prices | None,
    console: Console,
) -> None:
    """Print estimates as a table, what its figures rest on, and which tables could not be asked."""
    from rich.table import Table

    for error in unknown.values():
        console.print(str(error), highlight=False, markup=False, soft_wrap=True)
    if not found:
        if not unknown:
            console.print("No table of the project has its history in a database.")
        return
    shown = Table(title="By the databases' catalogs", title_justify="left")
    for name in ("table", "source", "rows", "data MiB", "index MiB", "time", *(["cost"] if prices else [])):
        shown.add_column(name, justify="left" if name in ("table", "source") else "right", overflow="fold")
    for one in found:
        size = one.size
        cost = [_cost(prices, size.data_bytes, one.seconds)] if prices else []
        rows = "not analyzed" if size.rows is None else f"{size.rows:,}"
        shown.add_row(
            one.key, one.table, rows, f"{size.data_bytes / MIB:,.2f}", f"{size.index_bytes / MIB:,.2f}",
            _time(one.seconds), *cost,
        )  # fmt: skip
    if len(found) > 1:
        seconds = sum(one.seconds[0] for one in found), sum(one.seconds[1] for one in found)
        data, index = sum(one.size.data_bytes for one in found), sum(one.size.index_bytes for one in found)
        rows = sum(one.size.rows or 0 for one in found)
        cost = [_cost(prices, data, seconds)] if prices else []
        shown.add_section()
        shown.add_row(
            "one after the other", "", f"{rows:,}", f"{data / MIB:,.2f}", f"{index / MIB:,.2f}", _time(seconds), *cost
        )
    console.print(shown)
    for sentence in _sentences(found):
        console.print(sentence, highlight=False, soft_wrap=True)


def _sentences(found: Sequence[TableEstimate]) -> list[str]:
    said: list[str] = []
    if unknown := [one.table for one in found if one.size.rows is None]:
        said.append(f"Rows are not known before `ANALYZE {', '.join(unknown)};`.")
    if by := sorted({one.learned_from for one in found} - {""}):
        said.append(f"Times are judged by what was published before, of {', '.join(by)}.")
    return [*said, "History only: what changes meanwhile, and starting Spark, come to it."]


def _time(seconds: tuple[float, float]) -> str:
    least, most = map(seconds_in_words, seconds)
    return least if least == most else f"{least} to {most}"


def _cost(prices: Prices, size_bytes: int, seconds: tuple[float, float]) -> str:
    least, most = prices.cost(size_bytes, seconds)
    return f"{money_in_words(least)} to {money_in_words(most)} {prices.currency}"
