"""A table is more than its columns: what it was made with is stored with it, and a spec that disagrees is refused."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from pyspark.sql import functions as F

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.table_facts import facts_of
from backfill_assets.errors import FenceError, LivePartitionsError, TableFactsError
from backfill_assets.lake.table import LakeTable
from tests.lake.scans import scan
from tests.support.shop import COLUMNS, content, frame_of, multiset, opened, orders, orders_spec, receipt_for

DAY, NEXT = "2024-01-01", "2024-01-02"
COLUMNS_AND_PAID = {**COLUMNS, "paid_at": "timestamp"}
LIVE = {"path": "events", "starts": NEXT, "late": "keep"}


def with_spec(table: LakeTable, **changes: Any) -> LakeTable:
    """The same table, as another spec sees it."""
    return LakeTable(table.spark, orders_spec(**changes), table.path)


def publish(table: LakeTable, *days: str) -> None:
    named = [table.spec.grid.partition(day) for day in days]
    with table.stage(scan(table.spark, table.spec, {day: orders(day) for day in days})) as staged:
        table.overwrite(staged, named, receipt_for(table, named))


def forget_facts(table: LakeTable) -> None:
    """Make it a table of before there were facts."""
    names = ", ".join(f"'{name}'" for name in facts_of(table.spec))
    table.spark.sql(f"ALTER TABLE delta.`{table.path}` UNSET TBLPROPERTIES ({names})")


def stored(table: LakeTable) -> dict[str, str]:
    """The facts that another reader finds."""
    configuration = opened(table.path).metadata().configuration
    return {name: value for name, value in configuration.items() if name in facts_of(table.spec)}


OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"grain": "monthly"}, "its `grain` is `daily`, not `monthly`"),
    ({"time_zone": "Europe/Berlin"}, "its `time_zone` is `UTC`, not `Europe/Berlin`"),
    ({"event_time": "paid_at"}, "its `event_time` is `ordered_at`, not `paid_at`"),
    ({"key_columns": ["order_id", "customer"]}, "its `key_columns` is `order_id`, not `order_id, customer`"),
    ({"key_columns": []}, "its `key_columns` is `order_id`, not ``"),
]


def test_a_spec_that_describes_another_table_is_refused(spark, tmp_path):
    """Neither a launch nor a look goes on: the table keeps its version, and the message says what differs and what to do."""
    table = LakeTable(spark, orders_spec(columns=COLUMNS_AND_PAID), f"{tmp_path}/orders")
    table.create()
    for changes, says in OTHERS:
        other = with_spec(table, columns=COLUMNS_AND_PAID, **{"start": DAY, **changes})
        for call in (other.create, other.refuse_another_schema):
            with pytest.raises(TableFactsError) as caught:
                call()
            assert says in caught.value.what
            assert "Nothing was written." in str(caught.value)
            assert "give the new one a key of its own" in caught.value.remedy
    assert opened(table.path).version() == 0


@pytest.mark.prove
def test_an_older_table_adopts_what_its_rows_agree_with(table):
    """A table that was made without facts gets those of its spec, if every row lies where the spec puts it; rows stay as they are."""
    publish(table, DAY, NEXT)
    forget_facts(table)
    assert stored(table) == {}
    table.refuse_another_schema()

    table.create()

    assert stored(table) == facts_of(table.spec)
    assert content(table.path) == multiset([*orders(DAY), *orders(NEXT)])
    version = opened(table.path).version()
    table.create()
    assert opened(table.path).version() == version


@pytest.mark.prove
def test_an_older_table_of_another_spec_is_refused(table):
    """Where rows lie in other partitions than the spec's, the table was made by another one: nothing is adopted."""
    publish(table, DAY, NEXT)
    forget_facts(table)
    version = opened(table.path).version()
    with pytest.raises(TableFactsError, match=r"has rows that this spec puts into another one.* of its 6 rows: it was"):
        with_spec(table, time_zone="America/New_York").create()
    assert (opened(table.path).version(), stored(table)) == (version, {})


def test_a_stream_does_not_begin_among_published_rows(table):
    """A first fence before rows of history would have the stream write them again; the message says where it may begin."""
    publish(table, DAY, NEXT)
    version = opened(table.path).version()
    with pytest.raises(FenceError, match=r"has published rows up to `2024-01-02`.*`live.starts` to `2024-01-03`"):
        with_spec(table, live=LIVE).create()
    assert opened(table.path).version() == version

    stray = frame_of(table.spark, table.spec, orders(DAY, 1)).withColumn("dt", F.lit(date(9999, 12, 31)))
    stray.write.format("delta").mode("append").save(table.path)  # somebody else's, after all partitions
    with pytest.raises(FenceError, match=r"has published rows up to `2024-01-02`"):
        with_spec(table, live=LIVE).create()

    later = with_spec(table, live={**LIVE, "starts": "2024-01-03"})
    later.create()
    fence = later.fence()
    assert fence is not None
    assert fence.at_utc.isoformat() == "2024-01-03T00:00:00+00:00"


@pytest.mark.prove
def test_a_later_stream_of_a_version_does_not_begin_in_the_past(spark, tmp_path):
    """What the version before got since then would be in no partition of it; once that is given up, nothing else has it."""
    said = {"table": "bronze/orders"}
    table = LakeTable(spark, orders_spec(key="bronze/orders__v2", version_of=said), f"{tmp_path}/orders__v2")
    table.create()
    publish(table, DAY)
    streaming = {"key": "bronze/orders__v2", "live": {**LIVE, "starts": "2024-01-05"}}
    with pytest.raises(
        FenceError, match=r"would begin at `2024-01-05T00:00:00\+00:00`, and that has passed"
    ) as refused:
        with_spec(table, version_of=said, **streaming).create()
    assert "Nothing was written." in str(refused.value)
    later = with_spec(table, version_of={**said, "retired": True}, **streaming)
    later.create()
    fence = later.fence()
    assert fence is not None
    assert fence.at_utc.isoformat() == "2024-01-05T00:00:00+00:00"


def test_a_stream_is_not_forgotten(table):
    """A table with a fence is not written by a spec without a stream, nor by one that was read before there was a fence."""
    publish(table, DAY)
    with_spec(table, live=LIVE).create()
    with pytest.raises(TableFactsError, match="a live stream owns its partitions from `2024-01-02T00:00:00"):
        table.create()
    with pytest.raises(LivePartitionsError):
        publish(table, NEXT)
    assert content(table.path) == multiset(orders(DAY))


def test_facts_are_the_spec_in_words(table):
    """All four, as other programs read them."""
    spec: TableSpec = orders_spec(key_columns=["order_id", "customer"], time_zone="Asia/Kolkata")
    assert facts_of(spec) == {
        "backfill_assets.grain": "daily",
        "backfill_assets.time_zone": "Asia/Kolkata",
        "backfill_assets.event_time": "ordered_at",
        "backfill_assets.key_columns": "order_id, customer",
    }
    assert stored(table) == facts_of(table.spec)


@pytest.mark.prove
def test_no_value_is_taken_for_a_secret(spark, tmp_path):
    """Spark hides properties that look like a URL or a password when it shows them; facts that do are read all the same."""
    spec = orders_spec(grain="hourly", key_columns=["token"], columns={**COLUMNS, "token": "string"})
    table = LakeTable(spark, spec, f"{tmp_path}/orders")
    table.create()
    table.create()
    assert stored(table)["backfill_assets.grain"] == "hourly"
