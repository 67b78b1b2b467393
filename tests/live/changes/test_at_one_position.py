"""Two versions of a table that follow one feed, compared as both are at one position of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

import pytest

from backfill_assets.commands.version.compare import compared_as_followed
from backfill_assets.core.history.outcomes import Published
from backfill_assets.core.history.version_comparison import VersionComparison
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.lake.evolution import evolve
from backfill_assets.lake.table import LakeTable
from backfill_assets.live.changes.at_one_position import AtOnePosition
from backfill_assets.live.changes.capture import Capture
from backfill_assets.live.changes.landed import CaptureTable
from backfill_assets.sources.database.connection import Database
from tests.live.changes.test_modes import take_back
from tests.live.changes.world import COLUMNS, DAYS, World, new_world
from tests.support.shop import opened, published_keys

HOT = [f"UPDATE customers SET balance = balance + 1 WHERE id % {n} = 0" for n in (2, 3)]


@dataclass
class Versions:
    """Customers by day, and a later version of them by another grain, with wider amounts; both follow one database."""

    first: World
    second: World
    waits: int = field(default=0, init=False)

    @property
    def both(self) -> tuple[World, World]:
        return self.first, self.second

    def refresh(self) -> None:
        for version in self.both:
            version.refresh().once()

    def compared(
        self,
        meanwhile: Callable[[], object] = lambda: None,
        later: Callable[[], object] = lambda: None,
        until: Literal["before"] | datetime = "before",
    ) -> VersionComparison:
        """Compare; something happens before the first read, and something else when all has been read."""
        outer, self.waits = self, 0

        class Happening(AtOnePosition):
            def wait(self, seconds: float, *_: object) -> bool:
                outer.waits += 1
                if outer.waits > 1:
                    later()
                has_come = super().wait(seconds)
                if outer.waits == 1:
                    meanwhile()
                return has_come

        both = Happening([version.source for version in self.both])
        return compared_as_followed(both, *(version.lake for version in self.both), wait_seconds=0, until=until)


def versions_of(first: World, grain: str = "monthly", **others: Any) -> Versions:
    facts = {"grain": grain, "columns": {**COLUMNS, "balance": "decimal(20,4)"}}
    facts |= {"source": first.spec.source.model_dump(exclude_unset=True) | {"table": "public.customers"}}
    facts |= {"version_of": {"table": "bronze/customers", "cast": ["balance"]}}
    return Versions(first, with_facts(first, "__v2", key="bronze/customers__v2", **facts | others))


def with_facts(world: World, beside: str, **facts: Any) -> World:
    """Return another table of the same database, with other facts in its spec."""
    spec = TableSpec.model_validate(world.spec.model_dump(mode="json", exclude_unset=True) | facts)
    return replace(world, spec=spec, lake=LakeTable(world.lake.spark, spec, world.lake.path + beside, world.log.append))


@pytest.fixture
def versions(spark, tmp_path) -> Versions:
    """Both are launched."""
    made = versions_of(new_world(spark, tmp_path))
    made.first.land()
    assert published_keys(made.first.launch()) == list(DAYS)
    months = made.second.spec.grid.between(DAYS[0], DAYS[0])
    assert published_keys(made.second.launch(months)) == [DAYS[0]]
    return made


def differing(found: VersionComparison) -> dict[str, tuple[int, int]]:
    return {day.day: (day.only_before, day.only_new) for day in found.differing}


@pytest.mark.parametrize("ahead", [0, 1], ids=["the first is ahead", "the second is ahead"])
def test_versions_are_equal_though_never_refreshed_to_the_same_change(versions, ahead):
    """Every row that one is ahead with changes all the time: at no moment would it be the same in both."""
    first = versions.first

    def go_on() -> None:
        first.execute(*HOT, "DELETE FROM customers WHERE id = 7", "UPDATE customers SET id = 900 WHERE id = 8")
        first.execute(f"UPDATE customers SET signed_up = '{DAYS[4]} 05:00Z' WHERE id = 9")
        assert versions.both[ahead].bring_up().published
        first.execute(*HOT)
        first.land()

    found = versions.compared(go_on, later=versions.refresh)
    assert (differing(found), found.rows, versions.waits) == ({}, 239, 2)
    assert found.is_equal


@pytest.mark.prove
def test_what_has_landed_before_must_be_there(versions):
    """What lags is compared as it is: a writer that does not run hides behind no fold."""
    versions.first.execute("UPDATE customers SET balance = 77 WHERE id = 24")
    versions.first.bring_up()
    assert differing(versions.compared()) == {DAYS[1]: (1, 1)}
    versions.second.bring_up()
    assert versions.compared().is_equal


@pytest.mark.prove
def test_a_partition_that_is_refused_from_then_on_hides_behind_no_fold(versions):
    """What was folded in while both were read has to come into them: else one of them follows no more."""
    first = versions.first

    def go_on() -> None:
        first.execute(
            "UPDATE customers SET balance = 'NaN' WHERE id = 1", "UPDATE customers SET balance = 5 WHERE id = 50"
        )
        first.land()

    first.execute("ALTER TABLE customers ALTER balance TYPE numeric")
    first.land()
    versions.refresh()
    found = versions.compared(go_on, later=versions.refresh)
    assert differing(found) == {DAYS[2]: (1, 1)}, "the month is refused, and the day is not"


@pytest.mark.parametrize("lacks", [0, 1], ids=["dropped", "new"])
def test_a_partition_that_is_refused_is_no_equal_one(spark, tmp_path, lacks):
    """What is refused lies in a column that only one of both has: whoever is switched to it is not told of what comes."""
    world = new_world(spark, tmp_path)
    without = {name: kind for name, kind in COLUMNS.items() if name != "balance"}
    has, version_of = [without, COLUMNS], {"table": "bronze/customers"}
    old = with_facts(world, "", columns=has[1 - lacks])
    version_of["dropped" if lacks == 0 else "new"] = ["balance"]
    versions = versions_of(old, grain="daily", columns=has[lacks], version_of=version_of)
    old.land()
    old.launch()
    versions.second.launch()
    assert versions.compared().is_equal
    old.execute(
        "ALTER TABLE customers ALTER balance TYPE numeric", "UPDATE customers SET balance = 'NaN' WHERE id = 24"
    )
    old.land()
    versions.refresh()
    found = versions.compared()
    assert (found.differing, found.is_equal, found.has_more) == ((), lacks == 0, lacks == 0)
    assert [found.lagging_before, found.lagging][lacks] == (DAYS[1],)
    said = f"did not come into 1 partitions of `{versions.both[lacks].spec.key}`, `{DAYS[1]}` to `{DAYS[1]}`"
    assert said in str(found)
    old.execute("UPDATE customers SET balance = 24 WHERE id = 24")
    old.land()
    versions.refresh()
    found = versions.compared()
    assert (found.is_equal, found.has_more) == (True, False)


@pytest.mark.prove
def test_versions_by_another_time_are_equal_only_where_all_of_the_new_one_follows(spark, tmp_path):
    """Which time of the one is time of the other nobody knows where rows happen by other columns."""
    columns = {**COLUMNS, "due": "timestamp not null"}
    first = new_world(spark, tmp_path)
    first.execute(
        "ALTER TABLE customers ADD due timestamptz NOT NULL DEFAULT '2024-01-01 00:00Z'",
        f"UPDATE customers SET due = signed_up + interval '1 year' WHERE signed_up >= '{DAYS[4]}Z'",
    )
    version_of = {"table": "bronze/customers"}
    first = with_facts(first, "", columns=columns)
    versions = versions_of(first, event_time="due", columns=columns, version_of=version_of)
    first.land()
    first.launch()
    second = versions.second
    months = second.spec.grid.until(second.source.now())
    second.launch([month for month in months if month.key != "2024-06-01"])
    assert versions.compared().not_followed == ("2024-06-01",), "it is empty, and a row may move there"
    second.launch([month for month in months if month.key == "2024-06-01"])
    found = versions.compared()
    assert (found.rows, found.days, found.is_equal) == (240, 2, True), "those of 2025 are compared too"
    opened(second.lake.path).update(predicate="id = 96", updates={"name": "name"})
    found = versions.compared()
    assert (found.differing, found.not_followed) == ((), ("2025-01-01",))


@pytest.mark.prove
def test_a_version_that_follows_by_another_capture_is_asked_too(versions):
    """It is compared as it is, by what both have; that no change comes into a part of it is told all the same."""
    first = versions.first
    name = f"{first.name}_b"
    database = Database.of_a_capture(first.spec.source.variables[0], name)
    folder = first.folder.parent / name
    tables = [CaptureTable("public", "customers", keys=frozenset({("id",)}))]
    capture = Capture(name, database, tables, folder, heartbeat_seconds=0.1)
    facts = {"capture": name, "backfill": "manual", "wait_seconds": 30}
    second = replace(with_facts(versions.second, "b", grain="daily", changes=facts), capture=capture, folder=folder)
    versions.second = second
    second.land()
    second.launch()
    assert versions.compared().is_equal
    assert not AtOnePosition([version.source for version in versions.both]).is_one_feed()
    opened(second.lake.path).update(predicate="id = 96", updates={"name": "name"})
    found = versions.compared()
    assert (found.differing, found.not_followed, found.is_equal) == ((), (DAYS[4],), False)
    first.execute(
        "UPDATE customers SET name = 'x' WHERE id = 25", "UPDATE customers SET name = 'customer 25' WHERE id = 25"
    )
    second.land()
    found = versions.compared()
    assert (found.differing, found.lagging) == ((), (DAYS[1],)), "what has landed for it has not come, equal or not"


@pytest.mark.prove
def test_a_partition_of_other_columns_that_lacks_a_change_is_no_equal_one(spark, tmp_path):
    """It is read anew when anything in it changes: until it is, it lacks what a column has that only the new one has."""
    first = new_world(spark, tmp_path)
    first.execute("ALTER TABLE customers ADD score numeric(18,2)")
    versions = versions_of(first, "daily", columns=COLUMNS, version_of={"table": "bronze/customers"})
    first.land()
    first.launch()
    versions.second.launch()
    columns, version_of = {**COLUMNS, "score": "decimal(18,2)"}, {"table": "bronze/customers", "new": ["score"]}
    versions.second = with_facts(versions.second, "", columns=columns, version_of=version_of)
    evolve(versions.second.lake)
    first.execute("UPDATE customers SET score = 1 WHERE id = 24")
    first.land()
    first.refresh().once()
    found = versions.compared()
    assert (found.differing, found.lagging) == ((), (DAYS[1],))
    assert not found.is_equal
    with first.capturing():
        versions.refresh()
    assert versions.compared().is_equal


def test_what_was_lost_is_found_under_changes(versions):
    """A row that somebody removed, of a partition that changes all the time."""
    opened(versions.second.lake.path).delete("id = 5")
    versions.first.execute(*HOT)
    versions.first.bring_up()
    found = versions.compared()
    assert sum(day.only_before - day.only_new for day in found.differing) == 1
    assert found.not_followed == (DAYS[0],), "nothing is folded into it any more"


@pytest.mark.prove
def test_a_change_that_changes_nothing_keeps_versions_equal(versions):
    """Its partitions are refreshed, and are as they were."""
    versions.first.execute("UPDATE customers SET balance = balance")
    versions.first.land()
    versions.refresh()
    assert versions.compared().is_equal
    versions.first.execute(*HOT)
    assert versions.first.bring_up().published
    assert not versions.compared().is_equal


def test_a_partition_that_is_not_followed_is_no_equal_one(spark, tmp_path):
    """Never launched, written by others or taken back, with the same rows today: no change comes into it tomorrow."""
    versions = versions_of(new_world(spark, tmp_path), grain="daily")
    first, second = versions.both
    first.execute(f"DELETE FROM customers WHERE signed_up >= '{DAYS[2]}Z' AND signed_up < '{DAYS[3]}Z'")
    first.land()
    first.launch()
    second.launch([partition for partition in second.partitions if partition.key != DAYS[2]])
    opened(second.lake.path).update(predicate="id = 96", updates={"balance": "balance"})
    first.execute("UPDATE customers SET balance = 8 WHERE id = 1")
    (launched,) = first.launch(first.partitions[:1], run_id="again")
    assert isinstance(launched, Published)
    take_back(first, launched)
    found = versions.compared()
    assert (found.differing, found.not_followed, found.not_followed_before) == ((), (DAYS[2], DAYS[4]), (DAYS[0],))
    assert versions.compared(until=first.partitions[2].window.start_utc).not_followed == found.not_followed, "tomorrow"
    feed = {**second.spec.model_dump(exclude_unset=True)["changes"], "backfill": "automatic"}
    versions.second = with_facts(second, "", changes=feed)
    assert DAYS[2] in versions.compared().not_followed, "whether it will be launched nobody knows"
    versions.second = second
    assert not found.is_equal
    assert found.has_more, "whoever goes back would lose what changes in the day that was taken back"
    assert f"2 partitions of `bronze/customers__v2`, `{DAYS[2]}` to `{DAYS[4]}`, until they are launched" in str(found)
    first.execute("UPDATE customers SET balance = 9 WHERE id = 1")
    assert first.bring_up().lacking_since is not None, "what was taken back lacks what has changed since"
    second.launch([second.partitions[2], second.partitions[4]])
    first.launch(first.partitions[:1])
    assert versions.compared().is_equal
