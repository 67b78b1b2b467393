"""Which version is current: what a switch makes of the map, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backfill_assets.core.state.current_versions import CurrentVersions, Switch, switched, without_spec
from backfill_assets.errors import VersionError
from tests.support.docstring_tables import table_of


def switch(to: dict[str, str], expected: dict[str, str], **more: Any) -> Switch:
    keys = {key: f"/{key}" for key in to.values()}
    return Switch("id", to, expected, keys, "2024-01-01T00:00:00+00:00", "ann", "why", **more)


FORWARD = switch({"b/orders": "b/orders__v2"}, {"b/orders": "b/orders"})


def test_a_name_stands_for_its_first_version_until_it_is_switched():
    """And then for what it was switched to; the key of a version says whose it is."""
    now = CurrentVersions()
    assert now.key_of("b/orders") == now.key_of("b/orders__v2") == "b/orders"
    after = switched(now, FORWARD)
    assert (after.key_of("b/orders"), after.generation) == ("b/orders__v2", 1)
    back = switched(after, switch({"b/orders": "b/orders"}, {"b/orders": "b/orders__v2"}))
    assert (back.key_of("b/orders"), back.generation) == ("b/orders", 2)


def test_whoever_comes_second_is_told():
    """By whom, and since when; the same for what a table is made of."""
    after = switched(CurrentVersions(), FORWARD)
    with pytest.raises(VersionError, match=r"is `b/orders__v2` since 2024-01-01 00:00:00 by ann, not `b/orders`"):
        switched(after, FORWARD)
    with pytest.raises(VersionError, match="`b/orders`"):
        switched(after, switch({"s/daily": "s/daily__v2"}, {"s/daily": "s/daily", "b/orders": "b/orders"}))


def test_other_names_are_left_as_they_are():
    """A switch of one table does not take another one's back."""
    after = switched(CurrentVersions(), FORWARD)
    both = switched(after, switch({"s/daily": "s/daily__v2"}, {"s/daily": "s/daily"}))
    assert (both.key_of("b/orders"), both.key_of("s/daily")) == ("b/orders__v2", "s/daily__v2")


def test_nothing_goes_back_to_a_retired_version():
    """Not even with the right expectation."""
    after = switched(
        switched(CurrentVersions(), FORWARD), switch({}, {"b/orders": "b/orders__v2"}, retires=("b/orders",))
    )
    assert after.is_retired("b/orders")
    with pytest.raises(VersionError, match="is retired"):
        switched(after, switch({"b/orders": "b/orders"}, {"b/orders": "b/orders__v2"}))


def test_giving_up_what_was_never_current():
    """The name stands for its first version as before, with its folder; twice is once."""
    asked = replace(switch({}, {"b/orders": "b/orders"}, retires=("b/orders__v2",)), paths={"b/orders": "/first"})
    after = switched(CurrentVersions(), asked)
    assert (after.key_of("b/orders"), after.by_name["b/orders"].path) == ("b/orders", "/first")
    assert after.is_retired("b/orders__v2")
    assert switched(after, asked).by_name["b/orders"].retired == ("b/orders__v2",)
    with pytest.raises(VersionError, match="`b/orders` is `b/orders`, not `b/orders__v3`"):
        switched(after, switch({"b/orders": "b/orders__v4"}, {"b/orders": "b/orders__v3"}))


@pytest.mark.parametrize("row", table_of(without_spec), ids=lambda row: f"{row['current']} of {row['specs']}")
def test_what_readers_have_and_nobody_declares(row):
    """As the docstring's table says."""
    current, *specs = (text.strip(" `") for text in (row["current"], *row["specs"].split(",")))
    now = CurrentVersions() if current == "never said" else switched(CurrentVersions(), switch({"orders": current}, {}))
    assert [*without_spec(now, list(filter(None, specs)))] == list(filter(None, [row[""].strip("`")]))
