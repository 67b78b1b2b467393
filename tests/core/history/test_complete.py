"""Which partitions a source is complete for: what is asked for in vain is told why."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from backfill_assets.core.history.complete import complete_part
from backfill_assets.errors import SourceIncompleteError
from tests.core.spec.specs import spec

COPY = {"key": "b/orders__v2", "source": {"kind": "version", "table": "b/orders"}}


def test_what_was_copied_from_a_retired_version_is_not_launched():
    """And the message says so; one that only waits for its source is told to wait."""
    retired = spec(**COPY, version_of={"table": "b/orders", "retired": True})
    follows = spec(**COPY, version_of={"table": "b/orders"})
    days = follows.grid.between("2024-01-01", "2024-01-02")
    with pytest.raises(SourceIncompleteError, match="is retired and read no more. What was copied is in the table"):
        complete_part(retired, days, None)
    with pytest.raises(SourceIncompleteError, match="the source has nothing yet.*wait for the source"):
        complete_part(follows, days, None)
    assert complete_part(follows, days, datetime(2024, 1, 2, tzinfo=UTC)) == (days[:1], (days[1],))
