"""A partition that cannot be read: it is named, launched and healed, and it blocks no other."""

from __future__ import annotations

import pytest

from backfill_assets.core.history.effects import ATTEMPTS
from backfill_assets.core.history.plan import LeftOut
from backfill_assets.core.history.reconcile import reconcile
from backfill_assets.errors import UnreadableTableError
from tests.core.history.world import BAD, KEYS, World, published_keys
from tests.support.fakes import ORDERS, raising

GONE = "its file `part-0` does not exist"


@pytest.fixture
def broken():
    """A table that equals its source, except that one partition cannot be read."""
    made = World()
    made.run()
    made.lake.unreadable_now = {BAD: GONE}
    return made


@pytest.mark.parametrize("keys", [KEYS, [BAD]], ids=["among others", "alone"])
def test_reconcile_names_an_unreadable_partition(broken, keys):
    """It differs, the reason names its file and the remedy, and all others are compared."""
    partitions = [ORDERS.grid.partition(key) for key in keys]
    found = {c.partition.key: c for c in reconcile(ORDERS, partitions, broken.source, broken.lake)}
    assert [key for key, comparison in found.items() if not comparison.passed] == [BAD]
    assert list(found) == keys
    said = f"the table's rows cannot be read: {GONE}. Launch {BAD} again: a launch writes it anew."
    assert said in str(found[BAD])


@pytest.mark.parametrize("only", ["missing", "all"])
def test_launch_heals_an_unreadable_partition(broken, only):
    """A plain launch writes it anew, and so does one that makes only what is missing, which makes no other."""
    outcomes = broken.run(only=only)
    assert published_keys(outcomes) == [KEYS if only == "all" else [BAD]]
    assert broken.lake.content() == broken.source_content()
    assert not broken.lake.unreadable_now
    left_out = [key.key for o in outcomes if isinstance(o, LeftOut) for key in o.partitions]
    assert left_out == ([] if only == "all" else [key for key in KEYS if key != BAD])


def test_commit_without_its_files_is_no_success():
    """If a file of a commit is gone when the log is looked at, the chunk is published again."""
    world = World()
    world.lake.lost = {1: ["dt=2024-02-28/part-0"]}
    assert published_keys(world.run()) == [KEYS]
    assert world.lake.version() == 2
    assert "files that version 1 has added do not exist" in world.said[0]


def test_launch_ends_if_each_commit_loses_files():
    """After five commits that lost a file the launch fails, and claims nothing."""
    world = World()
    world.lake.lost = {version: ["dt=2024-02-28/part-0"] for version in range(1, 20)}
    with pytest.raises(UnreadableTableError, match="version 5 has added do not exist.*Version 5 is committed"):
        world.run()
    assert world.lake.version() == ATTEMPTS


def test_unreadable_table_that_names_no_partition_is_an_error(broken):
    """If no partition is found to be unreadable, the failure is told as it is, not as an equal table."""
    broken.lake.unreadable_now = {}
    error = UnreadableTableError("A footer.", state="Nothing was written.", remedy="Look.")
    broken.script.at("tally", raising(error))
    with pytest.raises(UnreadableTableError, match="A footer"):
        list(reconcile(ORDERS, [ORDERS.grid.partition(key) for key in KEYS], broken.source, broken.lake))
