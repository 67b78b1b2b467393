"""What estimates go by: how long earlier launches took, and what a user pays."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backfill_assets.commands.project import NOTHING_READ, ProjectTable
from backfill_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from backfill_assets.core.history.estimate import PastChunk, Prices

RECENT_COMMITS = 200
"""Of so many of a table's newest commits it is looked up how long they took."""

prices_option = click.option(
    "--prices",
    "price_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML with `currency`, `per_gb` and `per_hour`: what the launch costs.",
)


def prices_in(file: Path) -> Prices:
    """Read a price table.

    Raises:
        ConfigurationError: It is not one.
    """
    import yaml

    from backfill_assets.core.history.estimate import Prices

    try:
        read: Any = yaml.safe_load(file.read_text())
        prices = Prices(str(read["currency"]), float(read.get("per_gb", 0)), float(read.get("per_hour", 0)))
        if unknown := read.keys() - {"currency", "per_gb", "per_hour"}:
            raise ValueError(f"it has {', '.join(sorted(map(str, unknown)))}")
        if not all(0 <= price < math.inf for price in (prices.per_gb, prices.per_hour)):
            raise ValueError("a price is no number, or is negative")
        if not re.fullmatch(r"[^\W\d_]{1,9}|[$\u20ac\xa3\xa5]", prices.currency):
            raise ValueError(f"`{prices.currency}` is no currency")
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"`{file}` is no price table: {' '.join(str(error).split())}.",
            state=NOTHING_READ,
            remedy="Write three lines, for example `currency: USD`, `per_gb: 0.50` and `per_hour: 0.14`.",
        ) from error
    return prices


def past_of(chosen: ProjectTable, log: Callable[[str], None]) -> tuple[list[PastChunk], str]:
    """Return the chunks that say how long others take, and the table that they are of; of none if there are none."""
    from backfill_assets.core.history.estimate import past_chunks

    kind = type(chosen.spec.source)
    alike = [spec for _, spec in sorted(chosen.specs.items()) if isinstance(spec.source, kind)]
    for spec in (chosen.spec, *(other for other in alike if other.key != chosen.spec.key)):
        lake = chosen.lakehouse.table(spec, log)
        times = {version: one.at for version, one in lake.table_log.infos(newest=RECENT_COMMITS).items()}
        if times and (past := past_chunks(lake.receipts_after(min(times) - 1), times)):
            return past, spec.key
    return [], ""
