"""Once-flows at the same time, and after one that was killed: a run, another run, a reset."""

from __future__ import annotations

from pathlib import Path

import pytest

from backfill_assets.lake.once_flows import flow_lock
from backfill_assets.runs.resources import Lakehouse
from tests.assets.flows import DAYS, EARLY, FLOW, invoked, run_flow, said, version, with_days
from tests.support.launching import ORDERS
from tests.support.shop import launch as publish_directly
from tests.support.under_way import GONE, under_way

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


@pytest.mark.prove
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


@pytest.mark.prove
def test_what_a_killed_run_published_last_is_recorded_though_nothing_is_left(tmp_path: Path):
    """Between its last commit and its last event it was killed: the flow is done, and Dagster hears of it all the same."""
    lake = with_days(tmp_path, *DAYS)
    lakehouse = Lakehouse(root=str(lake.root))
    table = lakehouse.table(lake.spec, lambda _: None)
    table.create()
    source, early = lakehouse.source(lake.spec, {}, None, lambda _: None), lake.spec.grid.between(*EARLY[::2])
    publish_directly(table, source, early, run_id=under_way(lake.instance, GONE), flow=FLOW)
    assert lake.shown(*EARLY) == dict.fromkeys(EARLY, "missing")
    ran = run_flow(lake)
    assert ran.succeeded, ran.failure
    assert said(ran)["state"] == "already done"
    assert lake.shown(*EARLY) == dict.fromkeys(EARLY, "materialized")
