"""Two versions of a table compared: what hides in a conversion, in a row without an instant, or behind a newer row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backfill_assets.core.history.version_comparison import VersionComparison
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import TableFactsError
from backfill_assets.lake import version_comparison
from backfill_assets.lake.table import LakeTable
from backfill_assets.lake.version_comparison import compare_versions
from backfill_assets.sources.files.source import FilesSource
from tests.support.shop import (
    Row,
    content,
    folder_of,
    frame_of,
    launch,
    opened,
    orders,
    orders_spec,
    published_keys,
    write_parquet,
)

FACTS: dict[str, Any] = {
    "columns": {"id": "bigint", "amount": "decimal(18,2)", "at": "timestamp", "paid_at": "timestamp"},
    "key_columns": ["id"],
    "latest_wins_by": ["paid_at"],
    "event_time": "at",
    "grain": "daily",
    "start": "2024-01-01",
    "source": {"kind": "files", "path": "orders", "format": "parquet"},
}


def first(**changes: Any) -> TableSpec:
    return TableSpec.model_validate({"key": "bronze/orders", **FACTS, **changes})


def second(**changes: Any) -> TableSpec:
    return first(**{"key": "bronze/orders__v2", "version_of": {"table": "bronze/orders"}, **changes})


def row(number: int, day: int, *, amount: str | None = "1.25", paid: int | None = 9) -> Row:
    at, paid_at = (day and datetime(2024, 1, day, 10, tzinfo=UTC) for day in (day, paid))
    return {"id": number, "amount": amount and Decimal(amount), "at": at, "paid_at": paid_at}


@pytest.fixture
def made(spark, tmp_path: Path) -> Callable[[TableSpec, list[Row]], LakeTable]:
    """Make a table if it is not there, and append rows."""

    def append(spec: TableSpec, rows: list[Row]) -> LakeTable:
        table = LakeTable(spark, spec, f"{tmp_path}/{spec.key}")
        table.create()
        frame_of(spark, spec, rows).write.format("delta").mode("append").save(table.path)
        return table

    return append


@pytest.mark.prove
def test_a_value_that_was_not_carried_over_is_a_difference(made):
    """The new type cannot hold it, and the new version has none: it was lost, and not the same all along."""
    fewer = {"columns": {**FACTS["columns"], "amount": "decimal(18,1)"}}
    spec = second(**fewer, version_of={"table": "bronze/orders", "cast": ["amount"]})
    before = made(first(), [row(1, 2), row(2, 2, amount="1.50"), row(3, 2, amount=None)])
    new = made(spec, [row(1, 2, amount=None), row(2, 2, amount="1.5"), row(3, 2, amount=None)])
    found = compare_versions(before, new)
    assert [(day.day, day.only_before, day.only_new) for day in found.differing] == [("2024-01-02", 1, 1)]
    assert "id=1 at 2024-01-02" in str(found)


@pytest.mark.prove
def test_a_row_that_is_on_no_day_of_the_new_version_is_a_difference(made):
    """What says there when it happened is NULL before: such rows are in the one before, and must not be forgotten."""
    before = made(first(), [row(1, 2), row(2, 2, paid=None)])
    found = compare_versions(before, made(second(event_time="paid_at"), [row(1, 2)]))
    assert [(day.only_before, day.only_new) for day in found.differing] == [(1, 0)]
    assert "id=2" in str(found)


@pytest.mark.prove
def test_rows_that_happen_later_by_another_time_are_compared_too(made, monkeypatch):
    """Where those of the version before end by its own time says nothing of when they happen in the new one."""
    monkeypatch.setattr(LakeTable, "published", lambda *_, **__: dict.fromkeys(["2024-01-01", "2024-01-02"]))
    before = made(first(start="2024-01-02"), [row(1, 2), row(2, 2, paid=20), row(3, 2, paid=1)])
    found = compare_versions(before, made(second(event_time="paid_at"), [row(1, 2)]))
    assert [day.day for day in found.differing] == ["2024-01-01", "2024-01-20"], (
        "before the start of the one before, too"
    )
    assert (found.not_compared, found.left_over) == ((), 0)


def compared_under_a_stream(made, monkeypatch, before: LakeTable, new: LakeTable) -> VersionComparison:
    """Compare two versions while both get another row again and again."""
    seconds = [0.0]
    monkeypatch.setattr(version_comparison, "time", SimpleNamespace(monotonic=lambda: seconds[0]))

    def go_on(_: float) -> None:
        seconds[0] += 60
        for table in (before, new):
            made(table.spec, [row(2, 4)])

    return compare_versions(before, new, patience_seconds=60, sleep=go_on)


def test_half_of_a_full_replacement_is_no_equal_version(spark, tmp_path):
    """Both versions read the same files: they differ until each has the whole replacement."""
    files, days = {"kind": "files", "path": "orders", "format": "parquet"}, ["2024-01-01", "2024-01-02"]
    before, new = (
        LakeTable(spark, orders_spec(source=files, **of), f"{tmp_path}/{name}")
        for name, of in (("v1", {}), ("v2", {"key": "bronze/orders__v2", "version_of": {"table": "bronze/orders"}}))
    )

    def replaced(amount: str) -> None:
        for day in days:
            write_parquet(folder_of(tmp_path / "landing", day), orders(day, amount=Decimal(amount)))

    def launched(table: LakeTable, *keys: str) -> None:
        table.create()
        source = FilesSource(spark, table.spec, table.spec.source, str(tmp_path / "landing"))
        assert published_keys(launch(table, source, map(table.spec.grid.partition, keys))) == list(keys)

    replaced("1.50")
    launched(before, *days)
    launched(new, days[0])
    assert [day.day for day in compare_versions(before, new).differing] == days[1:]
    replaced("3.50")
    launched(new, *days)
    assert [day.day for day in compare_versions(before, new).differing] == days
    launched(before, *days)
    assert compare_versions(before, new).is_equal
    assert content(new.path) == content(before.path)


@pytest.mark.prove
def test_a_newer_row_of_another_day_supersedes_nothing(made, monkeypatch):
    """A key may be on two days: that the new version has that of the later day does not make up for the other."""
    new = second(live={"path": "events", "starts": "2999-01-01"})
    before, new = made(first(), [row(1, 2, paid=2), row(1, 3, paid=3)]), made(new, [row(1, 3, paid=3)])
    found = compared_under_a_stream(made, monkeypatch, before, new)
    assert [(day.day, day.only_before, day.only_new) for day in found.differing] == [("2024-01-02", 1, 0)]


@pytest.mark.prove
@pytest.mark.parametrize("is_equal", [False, True], ids=["frozen", "copied"])
def test_a_copy_that_nobody_copies_is_not_equal_because_a_value_came_back(made, monkeypatch, is_equal):
    """What goes to and fro is the same as in any copy at some look: the copy has to have been written since."""
    feed = {"source": {"kind": "jdbc", "connection": "NOWHERE", "table": "orders"}, "changes": {"capture": "shop"}, "latest_wins_by": []}  # fmt: skip
    before = made(first(**feed), [row(1, 2, amount="2.00")])
    version = {"kind": "version", "table": "bronze/orders"}
    new = made(second(source=version, latest_wins_by=[]), [row(1, 2)])
    seconds, newest = [0.0], new.version()
    monkeypatch.setattr(version_comparison, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    known = {"2024-01-02": SimpleNamespace(version=newest + is_equal)}
    monkeypatch.setattr(LakeTable, "published", lambda table, **_: known if table is new else {})

    def go_on(_: float) -> None:
        seconds[0] += 40
        opened(before.path).delete()
        made(before.spec, [row(1, 2)])

    found = compare_versions(before, new, patience_seconds=60, sleep=go_on)
    assert found.is_equal is is_equal


@pytest.mark.prove
@pytest.mark.parametrize("is_lost", [False, True], ids=["followed", "lost"])
def test_versions_that_follow_changes_are_equal_though_never_at_the_same_moment(made, monkeypatch, is_lost):
    """What one was ahead with was replaced or deleted on both sides since; a row that one never gets stays a difference."""
    feed = {"source": {"kind": "jdbc", "connection": "NOWHERE", "table": "orders"}, "changes": {"capture": "shop"}, "latest_wins_by": []}  # fmt: skip
    before = made(first(**feed), [row(1, 2, amount="1.00"), row(2, 2), row(3, 2), row(4, 2)])
    new = made(second(**feed), [row(1, 2, amount="2.00"), *([] if is_lost else [row(2, 2)]), row(4, 2)])
    seconds = [0.0]
    monkeypatch.setattr(version_comparison, "time", SimpleNamespace(monotonic=lambda: seconds[0]))

    def go_on(_: float) -> None:
        seconds[0] += 20
        for table in (before, new) if seconds[0] < 50 else ():
            opened(table.path).delete("id IN (1, 3, 4)")
            later = [row(1, 2, amount=f"{seconds[0] + (table is new)}"), row(2, 2, amount="7.00"), row(4, 3)]
            made(table.spec, later[:1] if seconds[0] < 30 else [])
            if table is before and seconds[0] < 30:
                opened(table.path).delete("id = 2")
            if not is_lost or table is before:
                opened(table.path).delete("id = 2")
                made(table.spec, later[1:2])
            made(table.spec, later[2:])

    found = compare_versions(before, new, patience_seconds=60, sleep=go_on)
    assert [(day.day, day.only_before, day.only_new) for day in found.differing] == (
        [("2024-01-02", 1, 0)] if is_lost else []
    )


@pytest.mark.prove
def test_what_its_spec_does_not_know_of_a_table_is_not_left_out(made):
    """Rows of a stream whose `live` was taken out of the spec lie behind all that was published, and would not be compared."""
    before = made(first(live={"path": "events", "starts": "2024-01-04"}), [row(1, 5)])
    before.spec = first()
    with pytest.raises(TableFactsError, match="and the spec has no `live`"):
        compare_versions(before, made(second(), []))


def append(table: LakeTable, when: str) -> None:
    """Append a row as somebody else would."""
    one = table.spark.sql(f"SELECT 2L id, CAST(1.25 AS DECIMAL(18, 2)) amount, {when}")
    one.write.format("delta").mode("append").save(table.path)


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00", "9999-12-31T23:59:59.999999"])
def test_rows_at_the_ends_of_time_are_compared(made, at):
    """Such instants stand for *unknown* and *for ever*; nothing is compared up to them only."""
    far = {**row(2, 2), "at": datetime.fromisoformat(at).replace(tzinfo=UTC)}
    found = compare_versions(made(first(), [row(1, 2), far]), made(second(), [row(1, 2)]))
    assert (found.is_equal, found.too_early.before + sum(day.only_before for day in found.differing)) == (False, 1)


def test_a_row_without_a_partition_is_compared(made):
    """Also beside a key that a stream has brought twice, of which the newest row counts."""
    twice = [row(1, 2, paid=2), row(1, 2, paid=3)]
    before = made(first(live={"path": "events", "starts": "2024-01-01"}), twice)
    for name in ("at", "dt"):
        before.spark.sql(f"ALTER TABLE delta.`{before.path}` ALTER COLUMN {name} DROP NOT NULL")
    nowhere = "CAST(NULL AS TIMESTAMP) at, CAST(NULL AS TIMESTAMP) paid_at, CAST(NULL AS DATE) dt"
    append(before, nowhere)
    found = compare_versions(before, made(second(), twice[1:]))
    assert [(day.day, day.only_before, day.only_new) for day in found.differing] == [("no day", 1, 0)]


def test_a_row_after_the_newest_partition_is_not_left_out(made, monkeypatch):
    """It lies in a partition that is compared, and happened after it: the new version may lack it."""
    monkeypatch.setattr(LakeTable, "published", lambda *_, **__: dict.fromkeys(["2024-01-02"]))
    before, new = made(first(), [row(1, 2)]), made(second(), [row(1, 2)])
    append(before, "TIMESTAMP '2024-01-09' at, TIMESTAMP '2024-01-09' paid_at, DATE '2024-01-02' dt")
    found = compare_versions(before, new)
    assert (found.differing, found.is_equal) == ((), False)
    assert "1 rows that happened after its newest partition" in str(found)


def test_rows_before_the_new_version_starts_are_no_equal_ones(made):
    """Midnight of another zone is enough: readers would lose the first hours, on days that are the same in both."""
    at = datetime(2023, 12, 31, 23, 30, tzinfo=UTC)  # in Berlin it is 2024 already
    before = made(first(time_zone="Europe/Berlin"), [{**row(1, 1), "at": at}, row(2, 1)])
    new = made(second(), [row(2, 1)])
    found = compare_versions(before, new)
    assert (found.is_equal, found.differing, found.has_more) == (False, (), False)
    assert str(found).endswith(
        "have the same 1 rows on 1 days, but `bronze/orders` has 1 rows before 2024-01-01 00:00 UTC, where "
        "`bronze/orders__v2` starts: with an earlier `start` that would have them"
    )


@pytest.mark.prove
def test_rows_before_the_old_version_starts_are_what_whoever_goes_back_would_lose(made):
    """They are no difference for whoever goes forward: nothing says what they should be."""
    before = made(first(start="2024-01-03"), [row(2, 3)])
    new = made(second(start="2024-01-02"), [row(1, 2), row(2, 3)])
    found = compare_versions(before, new)
    assert (found.is_equal, found.has_more) == (True, True)
    assert "`bronze/orders__v2` has 1 rows before 2024-01-03 00:00 UTC, where `bronze/orders` starts" in found.outside


@pytest.mark.prove
def test_days_have_no_zone(made, monkeypatch):
    """The event time is a day, and the new version's zone further west: the last day is compared like all others."""
    days = {"columns": {"id": "bigint", "at": "date"}, "latest_wins_by": []}
    rows = [{"id": day, "at": date(2024, 1, day)} for day in (1, 2)]
    monkeypatch.setattr(LakeTable, "published", lambda *_, **__: dict.fromkeys(["2024-01-01", "2024-01-02"]))
    new = second(**days, time_zone="America/New_York")
    found = compare_versions(made(first(**days), rows), made(new, rows[:1]))
    assert [(day.day, day.only_before, day.only_new) for day in found.differing] == [("2024-01-02", 1, 0)]
    assert found.left_over == 0, found.not_compared


@pytest.mark.prove
def test_what_others_wrote_behind_all_that_was_published_is_compared(made, monkeypatch):
    """Readers have it; and where it was never published nobody copies it."""
    monkeypatch.setattr(LakeTable, "published", lambda *_, **__: dict.fromkeys(["2024-01-01", "2024-01-02"]))
    before, new = made(first(), [row(1, 2), row(2, 5)]), made(second(), [row(1, 2)])
    found = compare_versions(before, new)
    assert [(day.day, day.only_before, day.only_new) for day in found.differing] == [("2024-01-05", 1, 0)]
    assert found.left_over == 0
    made(new.spec, [row(2, 5), row(3, 6)])
    found = compare_versions(before, new)
    assert found.is_equal, "what the new one has beyond is no difference"
    assert "which is held against nothing" in str(found.not_compared)
