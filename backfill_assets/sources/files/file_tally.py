"""What one file holds, as it was counted over all of its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from backfill_assets.core.history.audit import Finding
from backfill_assets.sources.files.file_format import Count


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of one file that are close to each other in time.

    Args:
        first_utc: Smallest event time.
        last_utc: Largest event time.
    """

    first_utc: datetime
    last_utc: datetime
    rows: int


@dataclass(slots=True)
class FileTally:
    """What one file holds.

    Args:
        counted: As the file itself says.
        spans: Readable rows with an event time.
        undated: Readable rows without one.
        filled: Values of each column that may not be lacking, in readable rows; only those that were counted.
    """

    counted: Count
    spans: list[Span] = field(default_factory=list[Span])
    undated: int = 0
    unreadable: int = 0
    filled: dict[str, int] = field(default_factory=dict[str, int])
    findings: list[Finding] = field(default_factory=list[Finding])

    @property
    def readable(self) -> int:
        """Rows that could be read."""
        return self.undated + sum(span.rows for span in self.spans)
