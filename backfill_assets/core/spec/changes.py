"""`changes`: a database's change feed that keeps a table up to date, as its spec says it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import Field, field_validator

from backfill_assets.core.spec.fields import Strict

_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")


class ChangeFeed(Strict):
    """Inserts, updates and deletes of the source's table, as a capture lands them."""

    capture: str = Field(
        description="Name of the capture: its slot and its publication are `backfill_assets_NAME`, its files lie in "
        "`landing/changes/NAME`. Tables of one database may share it; `backfill-assets capture NAME` runs it."
    )
    backfill: Literal["automatic", "manual", "excluded"] = Field(
        default="automatic",
        description="`automatic`: partitions that were never launched are, once the feed runs. `manual`: only those "
        "that begin after the feed did; the others when somebody launches them. `excluded`: none are read from the "
        "database, and a launch is refused; the table has what the feed has brought.",
    )
    refresh_seconds: float = Field(
        default=10, gt=0, description="How often partitions that have changed are overwritten."
    )
    wait_seconds: float = Field(
        default=120, ge=0, description="How long a launch waits for the feed to come up to what the launch has read."
    )
    silent_after_seconds: int = Field(
        default=900,
        ge=660,
        description="An alert is posted within this time when `backfill-assets live` says nothing. Where nothing "
        "changes it gives a sign of life every 300 seconds: so no less than 660.",
    )
    max_lag_seconds: float = Field(
        default=900,
        gt=0,
        description="An alert is posted when the table is this far behind its database, or its capture has stopped.",
    )

    @field_validator("capture")
    @classmethod
    def _name_of_a_slot(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError(f"`{value}`: small letters, digits and `_`, at most 41 of them: it names a slot")
        return value


def feed_problems(
    feed: ChangeFeed | None, source_kind: str | None, key_columns: Sequence[str], others: Sequence[str]
) -> list[str]:
    """Say why a table cannot have a change feed.

    Args:
        others: Fields of the spec that are given and do not go with one.
    """
    if feed is None:
        return []
    found: list[str] = []
    if source_kind != "jdbc":
        found.append(f"changes: need `source.kind: jdbc`; this one is `{source_kind}`")
    if not key_columns:
        found.append("changes: need `key_columns`, by which a change finds its row")
    found += [f"changes: and `{name}` do not go together" for name in others]
    return found
