"""Tables with once-flows: how one is run, and what it and the command say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from backfill_assets.cli import main
from tests.support.launching import ORDERS, Lake, Ran, key_of, new_lake
from tests.support.shop import multiset, opened, orders

DAYS = ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05")
EARLY, LATER = DAYS[:3], DAYS[3:]
RANGES = {"orders_early": f"{EARLY[0]}...{EARLY[-1]}", "orders_later": f"{LATER[0]}...{LATER[-1]}"}
FLOW, MODULE = "orders_early", "a_shop_of_the_tests"


def run_flow(lake: Lake, name: str = FLOW, **config: Any) -> Ran:
    """Materialize the asset of one flow, as `dg launch --assets` does."""
    job = lake.definitions.resolve_implicit_global_asset_job_def().get_subset(
        asset_selection=frozenset({key_of(f"bronze/{name}")})
    )
    return lake._execute(job, None, None, {"ops": {f"bronze__{name}": {"config": config}}} if config else {}, None)


def version(lake: Lake) -> int:
    return opened(lake.path()).version()


def said(ran: Ran, name: str = FLOW) -> dict[str, Any]:
    """What the one materialization of the flow itself says."""
    (event,) = ran.materializations(f"bronze/{name}")
    assert event.partition is None
    return {key: value.value for key, value in event.metadata.items()}


def with_days(root: Path, *days: str, **changes: Any) -> Lake:
    lake = new_lake(root, once={"ranges": RANGES}, **changes)
    for day in days:
        lake.export(day, orders(day))
    return lake


def table_of(*days: str, **same: Any) -> Any:
    return multiset(row for day in days for row in orders(day, **same))


def command(lake: Lake, *arguments: str) -> dict[str, Any]:
    """Run `backfill-assets once` over the lake and return its JSON."""
    result = invoked(lake, *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def invoked(lake: Lake, *arguments: str) -> Result:
    """Run `backfill-assets once` over the lake."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKEHOUSE_ROOT", str(lake.root))
        patch.setenv("DAGSTER_HOME", str(lake.root / "home"))
        patch.setitem(sys.modules, MODULE, SimpleNamespace(defs=lake.definitions))
        return CliRunner().invoke(main, ["once", ORDERS, "--definitions", MODULE, "--json", *arguments])


def states(report: dict[str, Any]) -> dict[str, str]:
    return {flow["name"]: flow["state"] for flow in report["flows"]}
