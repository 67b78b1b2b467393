"""`kind: version`: history in the version of the same table before this one, as a spec says it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from backfill_assets.core.spec.source_spec import Input, SourceSpec, TableFacts
from backfill_assets.core.spec.versions import name_of, number_of


class VersionSpec(SourceSpec):
    """History in an earlier version of the same table, read at a pinned version, by what `version_of` says."""

    kind: Literal["version"] = Field(default="version", description="An earlier version of the table.")
    table: str = Field(description="Key of the earlier version, for example `bronze/orders`.")

    @property
    def description(self) -> str:
        """The earlier version by its key."""
        return f"its version `{self.table}`"

    @property
    def inputs(self) -> list[Input]:
        """The earlier version."""
        return [Input(table=self.table)]

    @property
    def is_of_version(self) -> bool:
        """What `version_of` says decides the rows."""
        return True

    def problems(self, table: TableFacts) -> list[str]:
        """Refuse another table, and a later version."""
        if name_of(self.table) != name_of(table.key) or number_of(self.table) >= number_of(table.key):
            return [f"source: `{self.table}` is no earlier version of `{table.key}`"]
        return []
