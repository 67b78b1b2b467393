"""`changes`: a database's change feed that keeps a table up to date, as its spec says it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

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
    connection: str | None = Field(
        default=None,
        description="With `excluded`, instead of `source`: name of the environment variable with the database's "
        "address, which `backfill-assets capture` needs.",
    )
    table: str | None = Field(
        default=None, description="With `excluded`, instead of `source`: the database's table, `public.audit_log`."
    )
    timestamps_without_zone: str | None = Field(
        default=None,
        description="With `excluded`, instead of `source`: zone in which a `timestamp without time zone` is read.",
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


def source_said(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a spec's facts with a source: if history is excluded and no source is given, the feed's fields become it.

    Raises:
        ValueError: Neither is given.
    """
    if facts.get("source") is not None:
        return facts
    said = _facts_in(facts.get("changes"))
    named = {name: said[name] for name in _SOURCE_FIELDS if said.get(name) is not None}
    if said.get("backfill") != "excluded":
        raise ValueError("source: is missing; only with `changes: {backfill: excluded}` a table needs none")
    if missing := [name for name in ("connection", "table") if name not in named]:
        raise ValueError(f"changes: say `{missing[0]}`, since there is no `source`")
    rest = {name: value for name, value in said.items() if name not in _SOURCE_FIELDS}
    return {**facts, "source": {"kind": "jdbc", **named}, "changes": rest}


def _facts_in(value: object) -> Mapping[str, Any]:
    """Return what a part of a spec says, by name; nothing where it is none."""
    if isinstance(value, Strict):
        return value.model_dump(exclude_unset=True)
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


_SOURCE_FIELDS = ("connection", "table", "timestamps_without_zone")


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
