"""A database that has had more than 2³² transactions: the log has the lower halves of their ids, a snapshot has them whole."""

from __future__ import annotations

import pytest

from backfill_assets.core.history.changes import HALF
from tests.live.changes.world import DAYS, Load, new_world
from tests.support import postgres
from tests.support.shop import published_keys


@pytest.mark.prove
def test_a_database_of_more_than_four_billion_transactions(spark, tmp_path):
    """The captured ids are whole, and a launch beside clients folds in exactly what its snapshot did not see."""
    with postgres.serving_later_ids() as server:
        world = new_world(spark, tmp_path, server=server)
        world.land()
        with world.capturing(), Load(world, 1):
            launched = world.launch_now(world.partitions[:2])
            launched += world.launch_now()
        assert set(published_keys(launched)) == set(DAYS)
        world.bring_up()
        assert world.content() == world.rows()
        ids = {row["xid"] for row in world.source.reader.table.rows().select("xid").distinct().collect()}
        assert ids
        assert min(ids) > HALF
