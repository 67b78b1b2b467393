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
from backfill_assets.lake.table import LakeTable
from backfill_assets.live.changes.at_one_position import AtOnePosition
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
        return compared_as_followed(both, *(version.lake for version in self.both), patience_seconds=0, until=until)


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


@pytest.mark.prove
def test_versions_are_equal_though_never_refreshed_to_the_same_change(versions):
    """Every row that one is ahead with changes all the time: at no moment would it be the same in both."""
    first = versions.first

    def go_on() -> None:
        first.execute(*HOT, "DELETE FROM customers WHERE id = 7", "UPDATE customers SET id = 900 WHERE id = 8")
        first.execute(f"UPDATE customers SET signed_up = '{DAYS[4]} 05:00Z' WHERE id = 9")
        assert first.bring_up().published
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
def test_what_was_lost_is_found_under_changes(versions):
    """A row that somebody removed, of a partition that changes all the time."""
    opened(versions.second.lake.path).delete("id = 5")
    versions.first.execute(*HOT)
    versions.first.bring_up()
    found = versions.compared()
    assert sum(day.only_before - day.only_new for day in found.differing) == 1
    assert found.not_followed == (DAYS[0],), "nothing is folded into it any more"


@pytest.mark.prove
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
