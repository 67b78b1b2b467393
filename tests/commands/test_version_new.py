"""`version new`: the text of a table's next version, of which a few values are others and every other letter stays."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

import backfill_assets
from backfill_assets.commands.version.new import first_boundary, write_versions
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


JSON_ORDERS = """\
type: backfill_assets.LakehouseTable
attributes:
  key: bronze/orders
  columns:
    id: bigint not null
    at: {type: timestamp, description: "When, in seconds.", format: epoch_seconds}
    city: {type: string, from: address.city, optional: true}
    note: # what the customer wrote
      type: string
      optional: true # since May
      description: A note.
  event_time: at
  grain: daily
  start: 2024-01-01
  source: {kind: files, path: orders, format: json}
"""


def test_copy_drops_fields_that_it_does_not_read(shop, tmp_path):
    """How files are read says nothing of a copy, whose spec loads all the same."""
    first = tmp_path / "a_shop/defs/bronze/orders/defs.yaml"
    first.write_text(JSON_ORDERS)
    for key in ("silver/daily_sales", "gold/monthly_revenue"):
        (tmp_path / "a_shop/defs" / key / "defs.yaml").unlink()
    written(shop, downstream=False, origin="version", with_stream=False)
    text = (tmp_path / "a_shop/defs/bronze/orders__v2/defs.yaml").read_text()
    assert read(text)["columns"] == {
        "id": "bigint not null",
        "at": {"type": "timestamp", "description": "When, in seconds."},
        "city": {"type": "string"},
        "note": {"type": "string", "description": "A note."},
    }
    assert "# what the customer wrote" in text
    assert TableSpec.model_validate(read(text)).source.is_of_version


def test_version_of_a_stream_keeps_formats_of_events(shop, tmp_path):
    """Its own stream still reads them; a copy without one does not."""
    first = tmp_path / "a_shop/defs/bronze/orders/defs.yaml"
    live = "  live: {path: events, starts: 2024-03-01, late: keep}\n"
    kept = JSON_ORDERS.replace(", from: address.city, optional: true", "").replace(
        "optional: true # since May\n      ", ""
    )
    first.write_text(kept.replace("format: json", "format: parquet") + live)
    for with_stream, formats in ((True, ["epoch_seconds"]), (False, [None])):
        written(shop, downstream=False, origin="version", with_stream=with_stream)
        file = tmp_path / "a_shop/defs/bronze/orders__v2/defs.yaml"
        assert [TableSpec.model_validate(read(file.read_text())).columns["at"].format] == formats
        file.unlink()


def test_a_copy_follows_the_version_before_and_not_its_change_feed():
    """As it stands a feed is the new version's too: it needs the database, so whatever is copied has none."""
    feed = text_of("bronze/customers")
    assert read(feed)["changes"] == read(next_customers(feed))["changes"]
    for left_out in (next_customers(feed, copies="bronze/customers"), next_customers(feed, with_feed=False)):
        assert "changes" not in read(left_out)


def test_a_version_that_nothing_would_fill_is_not_written():
    """A table of its feed alone, without both: its spec would not load, and with it none of the project."""
    with pytest.raises(ConfigurationError, match="nothing would fill the next version"):
        next_customers(text_of("bronze/audit_log"), with_feed=False, key="bronze/audit_log")


def next_customers(
    text: str, *, copies: str | None = None, with_feed: bool = True, key: str = "bronze/customers"
) -> str:
    return next_spec(text, key, {key: f"{key}__v2"}, starts=None, copies=copies, module="", with_feed=with_feed)


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


def test_comments_between_fields_stay():
    """Also those behind a field that is removed; only the comment on its own line goes with it."""
    text = (
        "# head\nattributes:\n  key: 'b/one' # the key\n\n  # about live\n  live: # own\n    starts: 2024-01-01\n\n    # deep\n"
        "  # about the source\n  source: {kind: files} # own\n  # tail\n  grain: daily\n# the end\n"
    )
    found = next_spec(text, "b/one", {"b/one": "b/one__v2"}, starts=None, copies="b/one", module="")
    lines = [line for line in found.splitlines() if line in text.splitlines() and line]
    gone = ("  key:", "  live:", "    starts:", "  source:")
    assert lines == [line for line in text.splitlines() if line and not line.startswith(gone)]
    assert "  key: 'b/one__v2' # the key\n" in found


@pytest.mark.parametrize(
    "text",
    [
        "type: x\nattributes:\n    grain: daily\n    source:\n        kind: files\n    key: b/one",
        "type: x\nattributes:\n    key: b/one\n    grain: daily\n    source:\n        kind: files\n",
    ],
    ids=["the key stands last", "the key stands first"],
)
def test_a_file_keeps_its_margins(text):
    """Whoever indents by four spaces gets a file that can be loaded, wherever the key stands, and with no line behind it."""
    for copies, source in ((None, {"kind": "files"}), ("b/one", {"kind": "version", "table": "b/one"})):
        found = next_spec(text, "b/one", {"b/one": "b/one__v2"}, starts=None, copies=copies, module="")
        assert read(found) == {
            "key": "b/one__v2", "version_of": {"table": "b/one"}, "grain": "daily", "source": source,
        }  # fmt: skip


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


@pytest.fixture
def shop(tmp_path, monkeypatch) -> Any:
    """Loads what lies below a package's `defs` now, as a project would."""
    package = ModuleType("a_shop")
    package.__file__ = str(tmp_path / "a_shop/__init__.py")
    monkeypatch.setitem(sys.modules, "a_shop", package)
    for key in FOLLOWING:
        file = tmp_path / "a_shop/defs" / key / "defs.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(text_of(key))

    def load() -> Any:
        files = {read(file.read_text())["key"]: file for file in tmp_path.rglob("defs.yaml")}
        specs = {key: TableSpec.model_validate(read(file.read_text())) for key, file in files.items()}
        tables = {
            key: SimpleNamespace(spec=spec, specs=specs, table=SimpleNamespace(file=str(files[key])))
            for key, spec in specs.items()
        }
        return SimpleNamespace(module="a_shop", table=tables.__getitem__)

    return load


def written(shop: Any, key: str = "bronze/orders", **changes: Any) -> list[str]:
    return [*write_versions(shop(), key, **{"downstream": True, "origin": "source", "with_stream": True, **changes})]


def test_another_file_in_the_place_is_left(shop, tmp_path):
    """And nothing beside it is written."""
    place = tmp_path / "a_shop/defs/silver/daily_sales__v2/defs.yaml"
    place.parent.mkdir()
    place.write_text(text_of("silver/daily_sales"))
    with pytest.raises(ConfigurationError, match="is there already"):
        written(shop)
    assert not (tmp_path / "a_shop/defs/bronze/orders__v2").exists()


def test_the_version_after_a_copy_copies_it(shop, tmp_path):
    """However it is asked for: what the copy was made of may be gone."""
    written(shop, downstream=False, origin="version", with_stream=False)
    (tmp_path / "a_shop/defs/bronze/orders/defs.yaml").unlink()
    file = tmp_path / "a_shop/defs/bronze/orders__v2/defs.yaml"
    text = file.read_text().replace("table: bronze/orders\n", "table: bronze/orders\n    retired: true\n")
    catch_up = text[text.index("  catch_up:") : text.index("  owners:")]  # of a version that copies nothing any more
    file.write_text(text.replace(catch_up, ""))
    assert written(shop, "bronze/orders__v2", downstream=False) == ["bronze/orders__v3"]
    third = read((tmp_path / "a_shop/defs/bronze/orders__v3/defs.yaml").read_text())
    assert third["source"] == {"kind": "version", "table": "bronze/orders__v2"}
    assert third["version_of"] == {"table": "bronze/orders"}
