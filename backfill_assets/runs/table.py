"""A table of the lakehouse: its spec with what only code can say of it."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dagster as dg

from backfill_assets.core.spec.table import TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Table:
    """A table's spec with what only code can say of it.

    Args:
        transform: Returns the function that makes the rows from the input tables' frames; called when a launch needs
            it.
        transform_source: Text of that function's module and of those that `source.code` names: a change of it makes
            published partitions stale.
        file: The YAML that it was read from; empty if it was made in Python.
    """

    spec: TableSpec
    transform: "Callable[[], Callable[..., DataFrame]] | None" = None
    transform_source: str = field(default="", repr=False)
    file: str = field(default="", repr=False)

    @property
    def asset_key(self) -> dg.AssetKey:
        return dg.AssetKey.from_user_string(self.spec.key)

    @property
    def code_version(self) -> str:
        """A short hash of all that decides the rows: columns, key, grain, source and transform."""
        spec = self.spec.model_copy(update={"source": self.spec.source.for_rows()})
        names = {"columns", "key_columns", "event_time", "grain", "time_zone", "partition_column", "latest_wins_by"}
        deciding = spec.model_dump_json(
            include={*names, "source", *(["version_of"] if spec.source.is_of_version else [])},
            exclude={"columns": {"__all__": {"description"}}, "version_of": {"retired"}},
        )
        return hashlib.sha256(f"{deciding}{self.transform_source}".encode()).hexdigest()[:8]
