"""A server that was put back from an older copy: its log tells other things at the same places as the one that has landed."""

from __future__ import annotations

import shutil

import pytest

from backfill_assets.errors import ChangeFeedError
from tests.live.changes.capturing import AT, Shop
from tests.support import postgres


INSERT = f"INSERT INTO customers VALUES (1, 'undone', 1, NULL, true, '{AT}')"
MANY = f"INSERT INTO customers SELECT n, 'new', 1, NULL, true, '{AT}' FROM generate_series(100, 20000) n"


@pytest.mark.parametrize(("lost", "landed"), [(INSERT, ["undone"]), ("CREATE TABLE other (id int)", [])])
def test_a_server_that_was_put_back_and_wrote_on_is_noticed(tmp_path, lost, landed):
    """Its log reaches beyond the newest file again: what it wrote up to there would be skipped, and what it lost would stay."""
    with postgres.serving() as server:
        shop = Shop(tmp_path, server)
        shop.land()
        server.stop()
        shutil.copytree(server.data, tmp_path / "kept")
        server.start()
        shop.execute(lost)
        shop.land()
        server.stop()
        for file in (tmp_path / "kept").rglob("*"):
            if file.is_file():
                (server.data / file.relative_to(tmp_path / "kept")).write_bytes(file.read_bytes())
        server.start()
        shop.execute(INSERT.replace("undone", "new"), MANY)
        with pytest.raises(ChangeFeedError, match="another past"):
            shop.land()
        assert [after for _, _, after in shop.said()] == landed
