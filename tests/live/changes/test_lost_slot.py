"""A slot that the server throws away, since nobody took what it kept: said before it happens, and when it has."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backfill_assets.errors import ChangeFeedError
from backfill_assets.live.changes.landed import feed_state
from tests.live.changes.capturing import AT, Shop
from tests.support import postgres


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """Of a server that keeps little of its log for slots."""
    with postgres.serving() as server:
        shop = Shop(tmp_path, server)
        shop.land()
        with server.connected() as connection:
            connection.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
            connection.execute("SELECT pg_reload_conf()")
        yield shop


def fall_behind(shop: Shop) -> None:
    """Write a change, and fill files of the log."""
    shop.execute(f"INSERT INTO customers VALUES (1, 'a', 1, NULL, true, '{AT}')")
    for _ in range(4):
        shop.execute("CREATE TABLE filling (n int)", "DROP TABLE filling", "SELECT pg_switch_wal()")


def state(shop: Shop) -> str:
    return feed_state(shop.folder).in_words("shop", datetime.now(UTC))


@pytest.mark.prove
def test_a_slot_that_is_lost_is_said_before_and_after(shop):
    """A warning while there is time; then the capture stops, and every partition is as of when it had caught up."""
    said: list[str] = []
    assert "slot" not in state(shop)
    fall_behind(shop)
    with shop.new_capture(log=said.append).database.connected() as connection:
        late = shop.new_capture(log=said.append)
        late._prepare(connection)
        late._start(connection)
        late._start(connection)
    assert ["Warning: the server keeps its log for the slot no longer" in line for line in said] == [True], "once"
    assert "at its next checkpoint the slot is lost" in state(shop)

    caught_up = feed_state(shop.folder).landed_at
    shop.execute("CHECKPOINT")
    with pytest.raises(ChangeFeedError, match="thrown away what it kept") as error:
        shop.new_capture().run(once=True, pause_seconds=0.02, stop=threading.Event())
    assert "launch all partitions again" in str(error.value)
    assert shop.events == []
    assert feed_state(shop.folder).slot == "lost"
    assert state(shop).startswith("the capture shop has stopped: ")
    assert state(shop).endswith(f"Every partition is as of {caught_up:%Y-%m-%d %H:%M:%S} UTC.")
