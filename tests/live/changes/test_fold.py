"""Spark's fold against the one in memory, and which transactions a snapshot has seen against PostgreSQL itself."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from backfill_assets.core.history.audit import ALL_ROWS
from backfill_assets.core.history.changes import HALF, DatabaseSnapshot, RowChange, fold
from backfill_assets.core.postgres import questions
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.live.changes.fold import Fold, visible_in
from backfill_assets.live.changes.newest import left_since
from backfill_assets.live.changes.table import ChangesTable
from backfill_assets.spark.expressions import column
from tests.support import postgres
from tests.support.changing import DAYS, Change, Changing, Customer

EXAMPLES = 60
FACTS: dict[str, Any] = {  # with a column that is called as one of a change
    "key": "bronze/customers",
    "columns": {"id": "bigint not null", "number": "string", "day": "date not null"},
    "key_columns": ["id"],
    "event_time": "day",
    "grain": "daily",
    "start": "2024-01-01",
    "source": {"kind": "jdbc", "connection": "NOWHERE", "table": "customers"},
    "changes": {"capture": "nobody"},
}
SPEC = TableSpec(**FACTS)
NAMED = "id bigint, number string, day date, _ba_file_id bigint, _ba_problem string"
FIRST = date(2024, 1, 1)
AT = datetime(2024, 1, 1, tzinfo=UTC)


def of_example(number: int, row: Customer) -> Customer:
    """Return a row with a key that no other example has."""
    return row._replace(id=row.id + 100 * number)


def text(row: Customer | None) -> dict[str, str] | None:
    return row and {"id": str(row.id), "number": row.name, "day": str(FIRST + timedelta(days=row.day))}


def folded(
    spark: SparkSession, rows: list[Customer], changes: list[Change], days: list[int], since: list[int]
) -> list[Customer]:
    """Return what Spark's fold makes of rows."""
    partitions = [SPEC.grid.partition(str(FIRST + timedelta(days=day))) for day in days]
    numbers = {partition: -number for number, partition in enumerate(partitions, start=1)}
    there = [(row.id, row.name, FIRST + timedelta(days=row.day), -1, None) for row in rows]
    known = dict(zip(partitions, since, strict=True))
    made = Fold(SPEC, numbers, None, known).of(
        spark.createDataFrame(there, NAMED).withColumn("_ba_file_id", Fold(SPEC, numbers, None).file_id(column("day"))),
        frame_of_changes(spark, changes),
    )
    found = made.collect()
    assert not [row for row in found if row["_ba_problem"]]
    return sorted(Customer(row["id"], (row["day"] - FIRST).days, row["number"]) for row in found)


def frame_of_changes(spark: SparkSession, changes: list[Change]) -> DataFrame:
    kinds = ChangesTable(spark, SPEC, "nowhere").columns
    lines = [
        (*change.at, change.xid, AT, change.op, text(change.before), text(change.after),
         change.before and FIRST + timedelta(days=change.before.day), change.after and FIRST + timedelta(days=change.after.day))
        for change in changes
    ]  # fmt: skip
    return spark.createDataFrame(lines, ", ".join(f"{name} {kind}" for name, kind in kinds.items()))


def test_which_partitions_a_key_has_left(spark):
    """Deleted, moved to another day, or under another key: not where one came, or where a value changed, or before."""
    row = {day: Customer(day, day, "a") for day in range(8)}
    at = ((number, 0) for number in range(10, 99))
    changes = [
        RowChange("c", next(at), None, row[0]),
        RowChange("u", next(at), row[1], row[1]._replace(name="b")),
        RowChange("d", next(at), row[2], None),
        RowChange("u", next(at), row[3], row[3]._replace(day=4)),
        RowChange("u", next(at), row[5], row[5]._replace(id=99)),
        RowChange("d", (5, 0), row[6], None),
        RowChange("c", next(at), None, row[7]),  # it came and went: it was never there
        RowChange("d", next(at), row[7], None),
        RowChange("d", next(at), row[4], None),  # it went and came back
        RowChange("c", next(at), None, row[4]),
    ]
    since = {str(FIRST + timedelta(days=day)): 10 for day in range(8)}
    found = left_since(SPEC, lambda *_: frame_of_changes(spark, changes), since, 99)
    assert found.rows == {str(FIRST + timedelta(days=day)): day != 7 for day in (2, 3, 5, 7)}
    assert found.keys is not None
    assert {(row["dt"].day - 1, row["id"]) for row in found.keys.collect()} == {(day, day) for day in (2, 3, 5, 7)}
    found.release()
    emptied = [*changes, RowChange("t", next(at)), RowChange("d", next(at), row[1]), RowChange("d", next(at), row[2])]
    second = str(FIRST + timedelta(days=2))
    has_it = {**since, second: emptied[-1].at[0]}  # it was published since all was emptied
    found = left_since(SPEC, lambda *_: frame_of_changes(spark, emptied), has_it, 99)
    assert found.rows == {**dict.fromkeys(since, ALL_ROWS), second: 1}
    found.release()


@pytest.mark.parametrize("may_empty", [False, True], ids=["rows", "all rows"])
def test_spark_folds_as_the_fold_in_memory(spark, may_empty):
    """Sixty databases' changes at once, or one's that is emptied; from any position, into some days or all, each since its own."""
    dice = random.Random(int(may_empty))
    days = sorted(dice.sample(range(DAYS), 2)) if may_empty else list(range(DAYS))
    since, rows, changes, expected = [dice.choice([0, 10, 50, 90]) for _ in days], [], [], []
    by_day = dict(zip(days, since, strict=True))
    for number in range(1 if may_empty else EXAMPLES):
        database = Changing(dice, may_empty=may_empty)
        while database.position < 300 or (may_empty and not any(change.op == "t" for change in database.log)):
            database.step()
        own = [of_example(number, row) for row in database.at(dice.choice([0, 10, 50, 90])).values() if row.day in days]
        of_it = [
            RowChange(
                c.op, c.at, c.before and of_example(number, c.before), c.after and of_example(number, c.after), c.xid
            )
            for c in database.log
        ]
        made = fold(own, of_it, lambda row: (row.day, row.id), since=lambda row: by_day.get(row.day, 1 << 40))
        rows, changes, expected = rows + own, changes + of_it, expected + [row for row in made if row.day in days]
    assert expected
    assert folded(spark, rows, changes, days, since) == sorted(expected)


def test_what_a_snapshot_sees_is_what_postgresql_says(spark):
    """Of whole ids, and of their lower halves, below and above 2³²; Python, Spark and the server agree on each."""
    snapshots = ["5:9:5,7", "9:9:", "100:200:100,150,199", f"{HALF - 2}:{HALF + 3}:{HALF - 2},{HALF + 1}", f"{HALF + 9}:{HALF + 9}:"]  # fmt: skip
    for snapshot in snapshots:
        seen = DatabaseSnapshot.parse(snapshot)
        xids = sorted(
            {each + more for each in (seen.first_open, seen.next_one, *seen.still_open) for more in (-2, -1, 0, 1, 2)}
        )
        with postgres.shared_server().connected() as connection:
            asked = "SELECT pg_visible_in_snapshot(x::text::xid8, %s::pg_snapshot) FROM unnest(%s::bigint[]) WITH ORDINALITY t(x, n) ORDER BY n"
            said = [visible for (visible,) in connection.execute(asked, (snapshot, xids))]
        assert [seen.sees(xid) for xid in xids] == said
        for known in (lambda xid: xid, lambda xid: -(xid % HALF)):
            assert by_spark(spark, snapshot, [known(xid) for xid in xids]) == said


def by_spark(spark: SparkSession, snapshot: str, xids: list[int], at: datetime = AT) -> list[bool]:
    """Return which of some transactions Spark says that a snapshot has seen."""
    rows = spark.createDataFrame([Row(n=n, xid=xid, at=at) for n, xid in enumerate(xids)])
    found = rows.select("n", visible_in(snapshot, AT).alias("seen")).orderBy("n").collect()
    return [row["seen"] for row in found]


def test_half_an_id_of_long_ago_was_seen(spark):
    """Between it and the snapshot ids may have come round, so that it looks like one that is still to come."""
    later = [-(HALF // 2 + 5)]
    assert by_spark(spark, f"{HALF}:{HALF}:", later) == [True]
    assert by_spark(spark, f"{HALF}:{HALF}:", [-5]) == [False]
    assert by_spark(spark, f"{HALF}:{HALF}:", [-5], AT - timedelta(days=2)) == [True]


def test_a_transaction_that_is_open_across_a_snapshot(spark):
    """It began before and ends after: not seen, as one that begins later; one that ended before is."""
    ids: dict[str, Any] = {}
    name, _ = postgres.new_database()
    server = postgres.shared_server()

    def xid(connection: psycopg.Connection) -> int:
        return int(connection.execute("SELECT pg_current_xact_id()::text").fetchone()[0])

    with psycopg.connect(server.address(name)) as long, server.connected(name) as other:
        ids["long"] = xid(long)
        ids["before"] = xid(other)
        _, snapshot, *_ = other.execute(questions.MOMENT).fetchone()
        ids["after"] = xid(other)
        long.commit()
    assert by_spark(spark, snapshot, [ids["before"], ids["long"], ids["after"]]) == [True, False, False]
    assert by_spark(spark, snapshot, [-ids["before"], -ids["long"], -ids["after"]]) == [True, False, False]
