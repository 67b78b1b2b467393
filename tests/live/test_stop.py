"""A stream is stopped at any moment of a batch."""

from __future__ import annotations

import threading
import time

import pytest

from backfill_assets.live.writer import LiveWriter
from tests.support.live_shop import event


def test_a_stop_just_before_a_batch_is_written_ends(shop, monkeypatch: pytest.MonkeyPatch):
    """Spark has handed it over, and waits for that: it is not written, not noted as written, and written by the next start."""
    stop, write = threading.Event(), LiveWriter._write

    def late(writer, lines, number):
        stop.set()
        time.sleep(2)  # the stop comes first
        write(writer, lines, number)

    shop.land(event(1, "2024-01-05T10:00:00"))
    with monkeypatch.context() as patch:
        patch.setattr(LiveWriter, "_write", late)
        running = threading.Thread(target=shop.writer().run, kwargs={"stop": stop}, daemon=True)
        running.start()
        running.join(timeout=60)
    assert not running.is_alive(), "it waits for its batch, which waits for it"
    assert shop.ids() == []
    assert shop.spark.streams.active == []
    shop.stream()
    assert shop.ids() == [1]
