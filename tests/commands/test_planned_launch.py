"""What a plan takes into account before it looks at any source: no JVM."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from backfill_assets.commands.plan import launch_of
from backfill_assets.commands.project import Project
from backfill_assets.runs.check_history import RECONCILED
from tests.support.launching import ORDERS, key_of, new_lake


def test_a_plan_knows_what_a_comparison_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of whatever launch: its receipt says of such a partition that it is as it would be written, and it is not."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    failed = dg.AssetCheckEvaluation(
        asset_key=key_of(ORDERS),
        check_name=RECONCILED,
        passed=False,
        metadata={"table_rows": 3},
        partition="2024-01-02",
    )
    with dg.DagsterInstance.get() as instance:
        instance.report_runless_asset_event(failed)
    chosen = Project("here", new_lake(tmp_path / "lake").definitions).table(ORDERS)
    assert launch_of(chosen, only="missing", reason="a test").differing == {"2024-01-02"}
