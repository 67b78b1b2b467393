"""Once-flows at the same time: a run, another run, a reset."""

from __future__ import annotations

from pathlib import Path

import pytest

from backfill_assets.lake.once_flows import flow_lock
from backfill_assets.runs.resources import Lakehouse
from tests.assets.flows import DAYS, FLOW, invoked, run_flow, version, with_days
from tests.support.launching import ORDERS

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_the_same_flow_does_not_run_twice_at_once(tmp_path: Path):
    """While a flow runs, a second run and a reset of it are refused with one clear error; nothing is written."""
    lake = with_days(tmp_path, *DAYS)
    table = Lakehouse(root=str(lake.root)).table(lake.spec, lambda _: None)
    with flow_lock(table, FLOW):
        ran = run_flow(lake)
    assert not ran.succeeded
    assert (
        f"`{ORDERS}`: the once-flow `{FLOW}` is running already, in another process or thread. Nothing was written."
        in ran.failure
    )
    assert not lake.path().exists()


def test_a_reset_of_all_flows_resets_all_or_none(tmp_path: Path):
    """One of them runs just now: what it says, that nothing was written, is so."""
    lake = with_days(tmp_path, *DAYS)
    table = Lakehouse(root=str(lake.root)).table(lake.spec, lambda _: None)
    assert run_flow(lake).succeeded
    assert run_flow(lake, "orders_later").succeeded
    before = version(lake)
    with flow_lock(table, "orders_later"):
        refused = invoked(lake, "--reset", "all")
    assert refused.exit_code == 2
    assert "Nothing was written." in refused.output
    assert version(lake) == before
