"""A plain spec of a table for the tests, and the words in which one is refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from backfill_assets.core.spec.table import TableSpec

FILES = {"kind": "files", "path": "orders", "format": "parquet"}
PLAIN = {
    "key": "bronze/orders",
    "columns": {"order_id": "bigint not null", "created_at": "timestamp", "amount": "decimal(18,2)"},
    "event_time": "created_at",
    "grain": "daily",
    "start": "2024-01-01",
    "source": FILES,
}


def spec(**changes):
    return TableSpec.model_validate({**PLAIN, **changes})


def refusal_of(make, *args, **changes):
    """Return the one message with which something is refused, without pydantic's prefix."""
    with pytest.raises(ValidationError) as caught:
        make(*args, **changes)
    (error,) = caught.value.errors()
    return error["msg"].removeprefix("Value error, ")
