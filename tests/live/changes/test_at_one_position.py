"""Two versions of a table that follow one feed, compared as both are at one position of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from backfill_assets.core.history.version_comparison import VersionComparison
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.lake.table import LakeTable
from backfill_assets.lake.version_comparison import compare_versions
from backfill_assets.live.changes.at_one_position import AtOnePosition, follow_the_same
from tests.live.changes.world import COLUMNS, DAYS, World, new_world
from tests.support.shop import opened, published_keys

EVERY_DAY = [(f"UPDATE customers SET balance = balance + 1 WHERE id % {n} = 0") for n in (2, 3)]


@pytest.fixture
def versions(spark, tmp_path) -> tuple[World, World]:
    """Customers by day, and by month with wider amounts; both are launched."""
    first = new_world(spark, tmp_path)
    facts = first.spec.model_dump(mode="json", exclude_none=True) | {"key": "bronze/customers__v2", "grain": "monthly"}
    facts |= {"columns": {**COLUMNS, "balance": "decimal(20,4)"}}
    spec = TableSpec.model_validate(facts | {"version_of": {"table": "bronze/customers", "cast": ["balance"]}})
    lake = LakeTable(spark, spec, f"{first.lake.path}__v2", first.log.append)
    second = replace(first, spec=spec, lake=lake)
    first.land()
    assert published_keys(first.launch()) == list(DAYS)
    assert published_keys(second.launch(spec.grid.between(DAYS[0], DAYS[0]))) == [DAYS[0]]
    return first, second


def compared(*versions: World, meanwhile: Any = lambda: None) -> VersionComparison:
    sources = [world.source for world in versions]
    assert follow_the_same(sources)
    both = AtOnePosition(sources)
    both.wait(0)
    meanwhile()
    return compare_versions(*(world.lake for world in versions), read=both.read)


def differing(found: VersionComparison) -> dict[str, tuple[int, int]]:
    return {day.day: (day.only_before, day.only_new) for day in found.differing}


@pytest.mark.parametrize("ahead", [0, 1], ids=["the first is ahead", "the second is ahead"])
def test_versions_are_equal_though_never_refreshed_to_the_same_change(versions, ahead):
    """Every row that one is ahead with changes all the time: at no moment would it be the same in both."""

    def go_on() -> None:
        versions[0].execute(
            *EVERY_DAY, "DELETE FROM customers WHERE id = 7", "UPDATE customers SET id = 900 WHERE id = 8"
        )
        versions[0].execute(f"UPDATE customers SET signed_up = '{DAYS[4]} 05:00Z' WHERE id = 9")
        assert versions[ahead].bring_up().published
        versions[0].execute(*EVERY_DAY)
        versions[0].land()

    found = compared(*versions, meanwhile=go_on)
    assert (differing(found), found.rows) == ({}, 239)
    assert versions[0].content() != versions[1].content()


def test_what_has_landed_before_must_be_there(versions):
    """What lags is compared as it is: a partition that is refused, or a writer that does not run, hides behind no fold."""
    versions[0].execute("UPDATE customers SET balance = 77 WHERE id = 24")
    versions[0].bring_up()
    assert differing(compared(*versions)) == {DAYS[1]: (1, 1)}
    versions[1].bring_up()
    assert differing(compared(*versions)) == {}


def test_what_was_lost_is_found_under_changes(versions):
    """A row that somebody removed, of a partition that changes all the time."""
    opened(versions[1].lake.path).delete("id = 5")

    def go_on() -> None:
        versions[0].execute(*EVERY_DAY)
        versions[0].bring_up()

    found = compared(*versions, meanwhile=go_on)
    assert Counter(differing(found)) == {**dict.fromkeys(DAYS, (32, 32)), DAYS[0]: (33, 32)}, (
        "nothing is folded into it"
    )


def test_a_change_that_changes_nothing_is_not_waited_for(versions):
    """Its partition is not written again for that, and its receipt tells of an earlier position for ever."""
    versions[0].execute("UPDATE customers SET balance = balance")
    for version in versions:
        version.bring_up()
    assert compared(*versions, meanwhile=lambda: versions[0].execute(*EVERY_DAY)).is_equal
    versions[0].land()
    assert versions[0].bring_up().published
    assert compared(*versions).is_equal is False
