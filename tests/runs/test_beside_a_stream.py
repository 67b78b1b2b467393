"""A launch of a table with a live stream: where a batch waits for a save, chunks are cut as the spec says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from backfill_assets.core.history.plan import Launch
from backfill_assets.runs import launch as launches
from backfill_assets.runs.table_run import TableRun
from tests.live.shop import live_spec
from tests.support.shop import orders_spec

LIVE = live_spec(live={"path": "events", "starts": "2024-01-04", "max_publish_seconds": 7})


@pytest.mark.parametrize(
    ("spec", "path", "seconds"),
    [
        (LIVE, "/lake/orders", 7.0),
        (LIVE, "file:///lake/orders", 7.0),
        (LIVE, "hdfs://name/lake/orders", None),
        (orders_spec(), "/lake/orders", None),
    ],
)
def test_a_batch_waits_no_longer_than_the_spec_says(monkeypatch: pytest.MonkeyPatch, spec, path, seconds):
    """`live.max_publish_seconds` holds where writers of a table wait for each other, and nowhere else."""
    seen: list[Launch] = []

    def materialize(_spec: Any, _wanted: Any, _source: Any, _delta: Any, request: Launch, **_: Any) -> Any:
        seen.append(request)
        return iter(())

    monkeypatch.setattr(launches, "materialize", materialize)
    monkeypatch.setattr(launches, "killed", FakeKilled)
    receipts = SimpleNamespace(in_log=lambda newest: {})
    delta = SimpleNamespace(path=path, version=lambda: -1, receipts=receipts)
    log = SimpleNamespace(info=print, warning=print)
    context = SimpleNamespace(log=log, instance=None, run=SimpleNamespace(run_id="run"), log_event=lambda _: None)
    table = SimpleNamespace(spec=spec, asset_key=None, transform=None)
    lakehouse = SimpleNamespace(spark=None, table=lambda *_: delta, source=lambda *_: None)
    monkeypatch.setattr(launches.dg, "AssetObservation", lambda *_, **__: None)
    launches.launch(TableRun(context, table, {}, lakehouse), [], Launch("run", "run"))  # type: ignore[arg-type]
    assert [request.max_publish_seconds for request in seen] == [seconds]


class FakeKilled:
    """No run was ever killed."""

    RECENT_COMMITS = 1

    @staticmethod
    def tag_with_process(*_: Any) -> None: ...
    @staticmethod
    def record_unrecorded(*_: Any) -> None: ...
    @staticmethod
    def report_dead(_: Any) -> list[str]:
        return []
