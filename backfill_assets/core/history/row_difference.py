"""One row in which source and table differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Values = Mapping[str, str | None]
"""The columns of a row as text, instants in UTC; None is NULL."""


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row that one side lacks, or has in another form, or more often.

    Args:
        partition: Key of the partition.
        kind: `missing` is in the source only, `extra` in the table only; `different` is in both under the same key;
            `repeated` is in both too, more often in one of them.
        source: The row in the source, or one with its key; None if there is none.
        table: Likewise in the table.
        columns: Names of those in which both differ.
        source_times: How often its key is in the source's partition; of a table without keys, the whole row.
        table_times: How often it is in the table's.
    """

    partition: str
    kind: Literal["missing", "extra", "different", "repeated"]
    source: Values | None
    table: Values | None
    columns: tuple[str, ...]
    source_times: int
    table_times: int

    @property
    def either(self) -> Values:
        """The row as the side has it that has it; the source's, if both do."""
        return self.source or self.table or {}
