"""The orders' table with a stream, on every kind of grid."""

from __future__ import annotations

from datetime import UTC, datetime

from backfill_assets.core.spec.table import TableSpec
from tests.support.fakes import ORDERS

SHAPES = {
    "daily": {"grain": "daily", "start": "2024-01-01", "starts": "2024-03-01"},
    "weekly": {"grain": "weekly", "start": "2024-01-01", "starts": "2024-02-26"},
    "monthly": {"grain": "monthly", "start": "2024-01-01", "starts": "2024-03-01"},
    "Berlin": {"grain": "daily", "start": "2024-01-01", "starts": "2024-03-01", "time_zone": "Europe/Berlin"},
    "Berlin monthly": {"grain": "monthly", "start": "2024-01-01", "starts": "2024-03-01", "time_zone": "Europe/Berlin"},
    "Kolkata": {"grain": "daily", "start": "2024-01-01", "starts": "2024-03-01", "time_zone": "Asia/Kolkata"},
    "hourly": {"grain": "hourly", "start": "2024-01-01", "starts": "2024-03-01"},
    "Kolkata hourly": {"grain": "hourly", "start": "2024-01-01", "starts": "2024-03-01", "time_zone": "Asia/Kolkata"},
}


def spec_of(shape):
    """Return the orders' spec with a stream, on another grid."""
    changes = dict(SHAPES[shape])
    live = {"path": "events", "starts": changes.pop("starts")}
    return TableSpec.model_validate(
        {**ORDERS.model_dump(exclude_unset=True), "latest_wins_by": ["updated_at"], **changes, "live": live}
    )


def instant(text):
    """Read an instant; a bare day is its midnight in UTC."""
    return (
        datetime.fromisoformat(text).astimezone(UTC)
        if "T" in text
        else datetime.fromisoformat(text).replace(tzinfo=UTC)
    )
