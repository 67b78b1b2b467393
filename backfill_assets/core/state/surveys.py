"""What is there of one partition before rows are read: at its source, and among the late rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Survey:
    """What the source has of one partition, known without reading rows.

    Args:
        fingerprint: Changes whenever the content may have changed.
        size_bytes: Stored bytes; 0 where the source does not know.
        files: How many there are; 0 where the source does not keep files.
        is_expected: Whether the table is to have it; not so where history is not loaded, and nothing of it has come,
            nor where the version before has not got it.
        content: What is to be read, as the source itself names it; nobody else looks inside.
        changed_utc: Since when the table lacks what the source has; None where the source cannot say.
    """

    fingerprint: str
    size_bytes: int = 0
    content: Any = ()
    changed_utc: datetime | None = None
    files: int = 0
    is_expected: bool = True


@dataclass(frozen=True, slots=True)
class Late:
    """Late rows that are to be joined to a source's.

    Args:
        version: Of `<table>_late`; None if there is no such table, or its rows are not joined.
        rows: By partition key; only partitions that have any.
    """

    version: int | None = None
    rows: Mapping[str, int] = field(default_factory=dict[str, int])


NO_LATE = Late()
