"""What all tests share: one local Spark session for each process that runs tests, and an order drawn from a seed.

Files run in a random order, and so do the tests in each, because no test may need the one before it. The files of `long` tests
come first, then those that wait for other processes, then those that need a JVM: so two workers end at nearly the same time.
`--order-seed` gives the same order again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.interpreted import AS_SHIPPED, interpreted
from tests.support.migrations import read_migrations_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROVED = pytest.StashKey[set[str]]()
"""The names of all collected tests of which `make prove` runs at least one variant, whatever is run now."""

NEEDS_A_JVM = {"lake", "live", "sources", "spark"}
"""Folders below `tests/` whose tests are all marked `spark`; elsewhere those are that ask for the session."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the seed of the order, and whether Spark compiles its queries."""
    parser.addoption("--order-seed", type=int, default=None, help="run the tests in the order of an earlier run")
    parser.addoption("--as-shipped", action="store_true", help="let Spark compile each query, as outside of the tests")


def pytest_configure(config: pytest.Config) -> None:
    """Draw the seed; a worker of pytest-xdist has it from whoever started it. Tell processes that tests start what is asked."""
    read_migrations_once()
    if config.option.as_shipped:
        os.environ[AS_SHIPPED] = "1"
    if config.option.order_seed is None:
        drawn = random.SystemRandom().randrange(10**6)
        config.option.order_seed = getattr(config, "workerinput", {}).get("order_seed", drawn)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_configure_node(node: Any) -> None:
    """Hand the seed to a worker: all must have the tests in one order."""
    node.workerinput["order_seed"] = node.config.option.order_seed


def pytest_report_header(config: pytest.Config) -> str:
    """Say how the same order is had again."""
    return f"order of the tests: --order-seed {config.option.order_seed}"


@pytest.hookimpl(tryfirst=True)  # pytest itself then brings tests of the same fixture parameter together
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs a JVM by its folder, and put files and tests in the order of the seed."""
    here = Path(__file__).parent
    for item in items:
        below = item.path.relative_to(here).parts if item.path.is_relative_to(here) else ("",)
        if below[0] in NEEDS_A_JVM or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    config.stash[PROVED] = {
        str(getattr(item, "originalname", "")) for item in items if item.get_closest_marker("prove")
    }
    dice = random.Random(config.option.order_seed)
    files = list(dict.fromkeys(item.path for item in items))
    dice.shuffle(files)
    dice.shuffle(items)
    place = {path: number for number, path in enumerate(files)}
    rank = {path: min(_rank(item) for item in items if item.path == path) for path in files}
    items.sort(key=lambda item: (rank[item.path], place[item.path]))


def _rank(item: pytest.Item) -> int:
    """Return which tests come first: the long ones, those that wait for processes, those that need a JVM, all others."""
    marks = ("long", "e2e", "spark")
    return next((rank for rank, mark in enumerate(marks) if item.get_closest_marker(mark)), len(marks))


@pytest.fixture(scope="session")
def warm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The settings with which processes borrow sessions of a Spark that runs already: for tests that are about no start."""
    import sys

    from tests.places.servers import Place, announced, free_port, running

    scratch = tmp_path_factory.mktemp("server")
    command = [sys.executable, "-m", "backfill_assets.spark.connect_server", "--port", str(free_port())]
    environment = Place("server", {"SPARK_MASTER": "local[2]"}, extra=interpreted()).environment(scratch)
    with running(command, scratch / "log", environment):
        yield announced(scratch / "log")


FOR_MANY_QUERIES = {
    "spark.sql.codegen.cache.maxEntries": "5000",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4 -XX:Tier4InvocationThreshold=80000 "
    "-XX:Tier4MinInvocationThreshold=10000 -XX:Tier4CompileThreshold=240000 -XX:Tier4BackEdgeThreshold=640000",
}
"""For a session of twenty minutes, of thousands of queries over a few rows: the planner is what is worth to be compiled
well; only what is called sixteen times as often as usual, since the compiler was four tenths of what the tests cost.
Where in Python each column was made, which Spark asks the JVM to note, are three of five calls to it."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """The one session, with the settings of the product; two cores, whatever the machine has.

    Its queries are interpreted, except with `--as-shipped`.
    """
    from backfill_assets.spark.session import classic_config, start_session
    from backfill_assets.spark.settings import SparkSettings

    extra = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    if not pytestconfig.option.as_shipped:
        extra |= {**interpreted(), **FOR_MANY_QUERIES}
    session = start_session(classic_config(SparkSettings(master="local[2]", driver_memory="2g", extra=extra)))
    yield session
    session.stop()
