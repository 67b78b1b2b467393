"""A once-flow beside a live stream: one table, of which the flow loads history and the stream writes what comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.assets.flows import EARLY, FLOW, RANGES, command, run_flow, states, version
from tests.support.launching import Lake, new_lake
from tests.support.shop import json_line, multiset, orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

LIVE_DAY = "2024-01-04"


def stream(lake: Lake, name: str, *rows: Any) -> None:
    """Land some events, and write them as the schedule does."""
    folder = lake.root / "landing" / "events"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text("".join(f"{json_line(row)}\n" for row in rows))
    ran = lake._execute(lake.definitions.resolve_job_def("live_bronze_orders"), None, None, {}, None)
    assert ran.run.status == dg.DagsterRunStatus.SUCCESS, ran.log


@pytest.mark.prove
def test_a_flow_loads_history_beside_a_stream(tmp_path: Path):
    """The stream begins first: the flow folds its late event in, touches no live row, is done, and stays done as the stream goes on."""
    lake = new_lake(
        tmp_path / "lake",
        once={"ranges": {FLOW: RANGES[FLOW]}},
        latest_wins_by=["amount"],
        live={"path": "events", "starts": LIVE_DAY},
    )
    for day in EARLY:
        lake.export(day, orders(day))
    (late,) = orders(EARLY[0], 1, order_id=7)
    stream(lake, "first", *orders(LIVE_DAY, 2), late)

    flow = run_flow(lake)

    assert flow.succeeded, flow.failure
    history = [late, *(row for day in EARLY for row in orders(day))]
    assert lake.content() == multiset([*history, *orders(LIVE_DAY, 2)])
    (later,) = orders("2024-01-05", 1)
    stream(lake, "second", later)
    before = version(lake)
    assert run_flow(lake).succeeded
    assert version(lake) == before
    assert states(command(lake)) == {FLOW: "done"}
    assert lake.content() == multiset([*history, *orders(LIVE_DAY, 2), later])
