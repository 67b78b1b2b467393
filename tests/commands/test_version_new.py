"""`version new`: the text of a table's next version, of which a few values are others and every other letter stays."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

import backfill_assets
from backfill_assets.commands.version.new import first_boundary
from backfill_assets.commands.version.spec_text import next_spec
from backfill_assets.core.spec.lakehouse import check_together
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import ConfigurationError

DEFS = Path(backfill_assets.__file__).parent / "defs"
FOLLOWING = {key: f"{key}__v2" for key in ("bronze/orders", "silver/daily_sales", "gold/monthly_revenue")}


def text_of(key: str) -> str:
    return (DEFS / key / "defs.yaml").read_text()


def read(text: str) -> dict[str, Any]:
    return yaml.safe_load(text)["attributes"]


def test_the_shop_gets_a_second_version_of_each_table():
    """All of them load together with the first ones, and only what has to be another is."""
    specs = {key: TableSpec.model_validate(read(text_of(key))) for key in FOLLOWING}
    for key, following in FOLLOWING.items():
        text = next_spec(text_of(key), key, FOLLOWING, starts=date(2027, 1, 1), copies=None, module="shop.defs")
        changed = read(text)
        assert changed.pop("version_of") == {"table": key}
        specs[following] = TableSpec.model_validate(read(text))
        before = read(text_of(key))
        others = {name for name in before if before[name] != changed[name]}
        assert others <= {"key", "source", "live"}
        lines = {*text_of(key).splitlines()} - {*text.splitlines()}
        assert len(lines) <= 3, "comments and order stay"
    assert specs["silver/daily_sales__v2"].source.inputs[0].table == "bronze/orders__v2"
    assert specs["silver/daily_sales__v2"].source.transform_path == "shop.defs.transform.daily_sales"
    found: list[str] = []
    check_together(specs, lambda key, what: found.append(f"{key}: {what}"))
    assert not found


def test_a_version_may_copy_the_one_before():
    """Then its source is that one; and without a stream nothing is left of it."""
    text = next_spec(
        text_of("bronze/orders"), "bronze/orders", FOLLOWING, starts=None, copies="bronze/orders", module=""
    )
    changed = read(text)
    assert changed["source"] == {"kind": "version", "table": "bronze/orders"}
    assert "live" not in changed
    assert changed["catch_up"]["max_partitions"] == 200, "what stands behind it stays"


MANY = """\
type: backfill_assets.LakehouseTable
attributes:
  key: b/one # the first
  once:
    ranges:
      - {from: 2024-01-01, to: 2024-02-01}
  grain: daily
---
type: backfill_assets.LakehouseTable
attributes:
  key: b/two__v2
  version_of: {table: b/two}
  grain: daily
"""


def test_a_file_may_hold_several_tables():
    """Of the one that is asked for there is a file; what loads something once is not doubled, and its own past is its own."""
    first = next_spec(MANY, "b/one", {"b/one": "b/one__v2"}, starts=None, copies=None, module="")
    assert read(first) == {"key": "b/one__v2", "version_of": {"table": "b/one"}, "grain": "daily"}
    third = next_spec(MANY, "b/two__v2", {"b/two__v2": "b/two__v3"}, starts=None, copies=None, module="")
    assert read(third) == {"key": "b/two__v3", "version_of": {"table": "b/two"}, "grain": "daily"}
    skipped = next_spec(MANY, "b/one", {"b/one": "b/one__v4"}, starts=None, copies=None, module="")
    assert read(skipped)["version_of"] == {"table": "b/one", "before": "b/one"}
    with pytest.raises(ConfigurationError, match="not written in its YAML"):
        next_spec(MANY, "b/three", {"b/three": "b/three__v2"}, starts=None, copies=None, module="")


@pytest.mark.parametrize(
    ("grain", "zone", "after", "first"),
    [
        ("daily", "UTC", "2026-11-23T22:00", date(2026, 11, 24)),
        ("daily", "Asia/Kolkata", "2026-11-23T22:00", date(2026, 11, 25)),
        ("weekly", "UTC", "2026-11-23T22:00", date(2026, 11, 30)),
        ("monthly", "UTC", "2026-12-01T00:00", date(2026, 12, 1)),
        ("monthly", "UTC", "2026-12-01T00:00:01", date(2027, 1, 1)),
    ],
)
def test_a_stream_begins_with_a_partition(grain, zone, after, first):
    """The first that begins at an instant or after it, in the table's zone."""
    facts = {**read(text_of("bronze/orders")), "live": None, "grain": grain, "time_zone": zone}
    facts["start"] = {"weekly": "2023-01-02"}.get(grain, "2023-01-01")
    assert first_boundary(TableSpec.model_validate(facts), datetime.fromisoformat(after).replace(tzinfo=UTC)) == first
