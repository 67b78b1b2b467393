"""A read replica: rows are read there, and never fewer than the primary had when the read began."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from backfill_assets.errors import SourceRefusedError, SourceUnavailableError
from tests.sources.database.world import DAYS, World, shop
from tests.support import postgres
from tests.support.shop import content, multiset, orders, published_keys


@dataclass(frozen=True)
class Two:
    """A primary with the shop, and its replica."""

    world: World
    replica: postgres.Server

    def pause(self) -> None:
        """Let the replica fall behind."""
        with self.replica.connected(self.world.name) as connection:
            connection.execute("SELECT pg_wal_replay_pause()")

    def resume(self) -> None:
        with self.replica.connected(self.world.name) as connection:
            connection.execute("SELECT pg_wal_replay_resume()")


@pytest.fixture
def two(spark, tmp_path) -> Iterator[Two]:
    world = shop(spark, tmp_path)
    with postgres.serving() as primary:
        os.environ[world.variable] = primary.new_database(world.name)
        with primary.connected(world.name) as connection:
            connection.execute(postgres.ORDERS)
            postgres.insert(connection, [row for day in DAYS for row in orders(day)])
        standby = primary.replica()
        os.environ["SHOP_REPLICA"] = standby.address(world.name)
        source = world.spec.source.model_copy(update={"replica": "SHOP_REPLICA", "replica_wait_seconds": 0.5})
        spec = world.spec.model_copy(update={"source": source})
        try:
            yield Two(replace(world, server=primary, spec=spec), standby)
        finally:
            standby.stop("immediate")


def test_rows_are_read_from_the_replica_once_it_has_them(two):
    """A replica that is behind is waited for, and then refused; one that has caught up is read, and the primary's table is not."""
    two.pause()
    two.world.execute("UPDATE orders SET amount = 7")
    with pytest.raises(SourceUnavailableError, match="has not replayed"):
        two.world.launch()
    assert not two.world.lake.published()

    source, day = two.world.source, two.world.partitions[:1]
    for look in (lambda: source.survey(day), lambda: source.with_keys(day, "1", "2")):
        with pytest.raises(SourceUnavailableError, match="has not replayed"):
            look()  # an answer would be that nothing has changed

    two.resume()
    before = rows_returned(two.world)
    assert published_keys(two.world.launch()) == list(DAYS)
    assert rows_returned(two.world) == before
    assert content(two.world.lake.path) == multiset(two.world.rows())
    (position,) = {str(p.receipt.source) for p in two.world.lake.published().values()}
    assert "'replica': True" in position


def rows_returned(world: World) -> int:
    """How many rows of its table the primary has handed out, by its own statistics."""
    with world.server.connected(world.name) as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
        row = connection.execute(
            "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = 'orders'"
        ).fetchone()
    assert row is not None
    return row[0]


@pytest.mark.prove
def test_a_standby_is_no_primary(two, monkeypatch):
    """Named as `connection` it is refused: which transactions are open only the primary knows."""
    monkeypatch.setenv(two.world.variable, two.replica.address(two.world.name))
    with pytest.raises(SourceRefusedError, match="is a standby"):
        two.world.launch()
