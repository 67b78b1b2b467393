"""What all tests share: one local Spark session, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDS_A_JVM = {"lake", "sources", "live"}
"""Folders below `tests/` whose tests are marked `spark`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        below = item.path.relative_to(here).parts if item.path.is_relative_to(here) else ("",)
        if below[0] in NEEDS_A_JVM:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session, with exactly the settings of the product; two cores, whatever the machine has."""
    from backfill_assets.spark.session import SparkSettings, classic_config, start_session

    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    session = start_session(classic_config(SparkSettings(master="local[2]", extra=warehouse)))
    yield session
    session.stop()
