"""History read from a replica while the feed comes from the primary: the replica may be ahead of what was asked first."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from backfill_assets.core.history.reconcile import reconcile
from backfill_assets.errors import FeedBehindError
from backfill_assets.sources.database import snapshot
from tests.live.changes.world import DAYS, World, new_world
from tests.support import postgres
from tests.support.shop import published_keys


@dataclass(frozen=True)
class Two:
    """A world whose history is read from a replica."""

    world: World
    replica: postgres.Server

    def has_replayed(self) -> None:
        """Wait until the replica has all that the primary has by now."""
        with self.world.server.connected() as primary, self.replica.connected() as standby:
            row = primary.execute("SELECT pg_current_wal_lsn()::text").fetchone()
            assert row is not None
            for _ in range(200):
                found = standby.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", row).fetchone()
                if found and found[0]:
                    return
                time.sleep(0.05)
        raise AssertionError("the replica does not catch up")


@pytest.fixture
def two(spark, tmp_path) -> Iterator[Two]:
    with postgres.serving() as primary:
        world = new_world(spark, tmp_path, server=primary, changes={"wait_seconds": 0.5})
        standby = primary.replica()
        os.environ["CUSTOMERS_REPLICA"] = standby.address(world.name)
        source = world.spec.source.model_copy(update={"replica": "CUSTOMERS_REPLICA"})
        world.spec = world.spec.model_copy(update={"source": source})
        try:
            yield Two(world, standby)
        finally:
            standby.stop("immediate")


@pytest.mark.prove
def test_a_launch_waits_for_what_the_replica_has_seen(two, monkeypatch):
    """A row moves after the primary was asked, and the replica shows it: without the feed the key would be there twice."""
    world, wait = two.world, snapshot._wait_until_replayed
    world.land()
    with world.capturing():
        assert published_keys(world.launch_now(world.partitions[1:2])) == [DAYS[1]]

    def move_meanwhile(*named: Any, **how: Any) -> None:
        wait(*named, **how)
        world.land()
        world.execute(f"UPDATE customers SET signed_up = '{DAYS[0]} 05:00Z' WHERE signed_up = '{DAYS[1]} 00:00Z'")
        two.has_replayed()

    monkeypatch.setattr(snapshot, "_wait_until_replayed", move_meanwhile)
    with pytest.raises(FeedBehindError):
        world.launch_now(world.partitions[:1])
    monkeypatch.undo()

    two.has_replayed()
    with world.capturing():
        assert set(published_keys(world.launch_now(world.partitions[:1]))) == {*DAYS[:2]}
        compared = list(reconcile(world.spec, world.partitions[:2], world.source, world.lake))
    assert [comparison.passed for comparison in compared] == [True, True]
    assert all(max(keys.values(), default=1) == 1 for keys in world.keys_by_version().values())
