"""The disk on which a database's changes land fills up, and has room again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backfill_assets.errors import StorageError
from backfill_assets.live.changes.landed import feed_state
from backfill_assets.live.changes.outages import capture_until_stopped
from tests.live.changes.capturing import Shop
from tests.support.disks import leave_free, small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk, 1):
        yield disk


@pytest.mark.prove
def test_what_a_full_disk_refused_lands_once_there_is_room(disk):
    """Each change once and in order; no part of a file stays."""
    shop, rows = Shop(disk), 80
    shop.land()
    shop.execute(
        f"INSERT INTO customers SELECT n, repeat('x', 9000) || n, 0, '', true, now() FROM generate_series(1, {rows}) n"
    )
    ballast = leave_free(disk, 64)
    for _ in range(2):
        with pytest.raises(StorageError) as error:
            capture_until_stopped(shop.new_capture(), pause_seconds=0.01, stop=threading.Event())
        assert str(error.value).startswith(f"The changes cannot land in `{shop.folder}`: No space left on device. ")
        assert feed_state(shop.folder).stopped == error.value.what
        assert not list(shop.folder.glob("*.tmp"))
    assert shop.said() == []
    ballast.unlink()
    shop.land()
    assert [after[9000:] for _, _, after in shop.said() if after] == [str(number) for number in range(1, rows + 1)]
    assert not feed_state(shop.folder).stopped
