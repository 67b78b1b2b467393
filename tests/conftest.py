"""What all tests share: one local Spark session for each process that runs tests, and their order.

The order is the same in every run: the files of `long` tests first, then those that wait for other processes, then those that
need a JVM. So two workers end at nearly the same time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.interpreted import AS_SHIPPED, interpreted
from tests.support.migrations import read_migrations_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDS_A_JVM = {"lake", "live", "sources", "spark"}
"""Folders below `tests/` whose tests are all marked `spark`; elsewhere those are that ask for the session."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that lets Spark compile its queries."""
    parser.addoption("--as-shipped", action="store_true", help="let Spark compile each query, as outside of the tests")


def pytest_configure(config: pytest.Config) -> None:
    """Tell the processes that tests start whether Spark compiles its queries."""
    read_migrations_once()
    if config.option.as_shipped:
        os.environ[AS_SHIPPED] = "1"


@pytest.hookimpl(tryfirst=True)  # pytest itself then brings tests of the same fixture parameter together
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a JVM by their folder, and put the files that take longest first."""
    here = Path(__file__).parent
    for item in items:
        below = item.path.relative_to(here).parts if item.path.is_relative_to(here) else ("",)
        if below[0] in NEEDS_A_JVM or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    rank = {path: min(map(_rank, of_file)) for path, of_file in groupby(items, key=lambda item: item.path)}
    items.sort(key=lambda item: rank[item.path])


def _rank(item: pytest.Item) -> int:
    """Return 0 for a test that is long, 1 if it waits for processes, 2 if it needs a JVM, 3 for all others."""
    marks = ("long", "e2e", "spark")
    return next((rank for rank, mark in enumerate(marks) if item.get_closest_marker(mark)), len(marks))


@pytest.hookimpl(tryfirst=True)  # before fixtures of the module load definitions
def pytest_runtest_setup() -> None:
    """Let no definitions load with the store of an instance of Dagster that an earlier test had.

    Dagster leaves some contexts open until Python collects them, and then notes the instance of that time as current.
    """
    if "dagster" in sys.modules:
        from dagster._core.storage.defs_state.base import _current_storage

        _current_storage.set(None)


@pytest.fixture(scope="session")
def warm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The settings with which processes borrow sessions of a Spark that runs already: for tests that are about no start."""
    from tests.places.servers import Place, announced, free_port, running

    scratch = tmp_path_factory.mktemp("server")
    command = [sys.executable, "-m", "backfill_assets.spark.connect_server", "--port", str(free_port())]
    environment = Place("server", {"SPARK_MASTER": "local[2]"}, extra=interpreted()).environment(scratch)
    with running(command, scratch / "log", environment):
        yield announced(scratch / "log")


FOR_MANY_QUERIES = {
    "spark.sql.codegen.cache.maxEntries": "5000",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.maxPlanStringLength": "0",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4 -XX:Tier4InvocationThreshold=80000 "
    "-XX:Tier4MinInvocationThreshold=10000 -XX:Tier4CompileThreshold=240000 -XX:Tier4BackEdgeThreshold=640000 "
    "-XX:MetaspaceSize=400m -Xmn900m",
}
"""For a session of a quarter of an hour, of thousands of queries over a few rows.

Spark's planner is worth compiling well, but only what is called sixteen times as often as usual: the compiler was four tenths
of what the tests cost, and without its second stage they take a quarter longer. Where in Python each column was made, which
Spark asks the JVM to note, are three of five calls to it. Plans that change while they run, their texts, and collections of
garbage are 4 % each.
"""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """The one session, with the settings of the product; two cores, whatever the machine has.

    Its queries are interpreted, except with `--as-shipped`.
    """
    from backfill_assets.spark.session import classic_config, start_session
    from backfill_assets.spark.settings import SparkSettings

    extra = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    extra["spark.sql.sources.parallelPartitionDiscovery.parallelism"] = "2"  # VACUUM lists a table in 10,000 tasks
    if not pytestconfig.option.as_shipped:
        extra |= {**interpreted(), **FOR_MANY_QUERIES}
    session = start_session(classic_config(SparkSettings(master="local[2]", driver_memory="2g", extra=extra)))
    yield session
    session.stop()
