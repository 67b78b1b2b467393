"""A server that was put back from an older copy: its log tells other things at the same places as the one that has landed."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from backfill_assets.core.live.feed import FeedFile
from backfill_assets.errors import ChangeFeedError
from tests.live.changes.capturing import AT, Shop
from tests.live.changes.world import DAYS, new_world
from tests.support import postgres
from tests.support.shop import published_keys

INSERT = f"INSERT INTO customers VALUES (1, 'undone', 1, NULL, true, '{AT}')"
MANY = f"INSERT INTO customers SELECT n, 'new', 1, NULL, true, '{AT}' FROM generate_series(100, 20000) n"


@pytest.mark.prove
def test_a_server_that_was_put_back_and_wrote_on_is_noticed(tmp_path):
    """Its log reaches beyond the newest file again: what it wrote up to there would be skipped, and what it lost would stay."""
    with postgres.serving() as server:
        shop = Shop(tmp_path, server)
        shop.land()
        server.stop()
        shutil.copytree(server.data, tmp_path / "kept")
        server.start()
        shop.execute(INSERT)
        shop.land()
        server.stop()
        for file in (tmp_path / "kept").rglob("*"):
            if file.is_file():
                (server.data / file.relative_to(tmp_path / "kept")).write_bytes(file.read_bytes())
        server.start()
        shop.execute(INSERT.replace("undone", "new"), MANY)
        with pytest.raises(ChangeFeedError, match="another past"):
            shop.land()
        assert [after for _, _, after in shop.said()] == ["undone"]


@pytest.mark.prove
def test_a_feed_of_another_log_is_not_taken_for_the_same(spark, tmp_path):
    """Begun again at earlier places, none of it would be read, nor would a new stream help: it is said, and what helps."""
    world = new_world(spark, tmp_path)
    world.land()
    assert published_keys(world.launch(world.partitions[:1])) == [DAYS[0]]
    world.bring_up()
    landed = [(path, path.read_bytes()) for path in world.folder.iterdir() if FeedFile.named(path.name)]
    for path, _ in landed:
        path.unlink()
    other = world.folder / FeedFile(16, 32, is_idle=True).name
    other.touch()
    for is_new_feed in (False, True):
        with pytest.raises(ChangeFeedError, match="of another log") as error:
            world.source.reader.read(is_new_feed=is_new_feed)
    changes = Path(world.source.reader.table.path)
    assert f"`{changes}`" in str(error.value)
    changes.rename(tmp_path / "away")
    reach = world.source.reader.read()
    assert reach is not None
    assert (reach.began, reach.position) == (16, 32)
    assert world.source.positions(world.lake.published(), reach) == {}, "what was folded in is of the other log"
    lacking_since = world.refresh().once().lacking_since
    assert lacking_since is not None, "as long as it is not launched again, it lacks what came between the two"
    assert abs(lacking_since - reach.began_at) < timedelta(seconds=1)
