"""One table in one run of Dagster: what every step of a launch or a check needs at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import written_out
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.table import Table

if TYPE_CHECKING:
    from backfill_assets.core.history.ports import Source
    from backfill_assets.lake.table import LakeTable


@dataclass(frozen=True, slots=True)
class TableRun:
    """A table, the run that is about it, and where it lies.

    Args:
        specs: Of all tables of the lakehouse, by key.
    """

    context: dg.AssetExecutionContext
    table: Table
    specs: Mapping[str, TableSpec]
    lakehouse: Lakehouse

    @property
    def spec(self) -> TableSpec:
        return self.table.spec

    @property
    def log(self) -> Callable[[str], None]:
        """Write a sentence into the run's log; it may quote files, columns and values."""
        return lambda sentence: self.context.log.info(written_out(sentence, but="\n"))

    def lake_table(self) -> LakeTable:
        """Return the table as it lies in the lakehouse."""
        return self.lakehouse.table(self.spec, self.log)

    def source(self) -> Source[Any]:
        """Return where its history is read from."""
        transform = self.table.transform() if self.table.transform else None
        return self.lakehouse.source(self.spec, self.specs, transform, self.log)
