"""Dagster's own commands over the shipped definitions: exit codes, messages, what is in the table and in Dagster's history."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.e2e.world import ORDERS, SALES, World, expected, new_world, shop_orders
from tests.support.launching import key_of

pytestmark = pytest.mark.e2e

DAY_1, DAY_2, DAY_3 = DAYS = ("2023-01-01", "2023-01-02", "2023-01-03")
BOTH = 'key:"bronze/orders" or key:"silver/daily_sales"'
RANGE = f"{DAY_1}...{DAY_3}"


@dataclass(frozen=True)
class Step:
    """What one command left behind."""

    ran: subprocess.CompletedProcess[str]
    content: object
    orders_shown: dict[str, str]
    sales_shown: dict[str, str]


def step(world: World, ran: subprocess.CompletedProcess[str]) -> Step:
    return Step(ran, world.content(), world.shown(*DAYS), world.shown(*DAYS, table=SALES))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, warm_server: dict[str, str]) -> World:
    return new_world(tmp_path_factory.mktemp("commands"), warm_server)


@pytest.fixture(scope="module")
def launched(world: World) -> Step:
    """Three days of both tables, by `dg launch`, which starts a Spark of its own."""
    for day in DAYS:
        world.export(day, shop_orders(day, status="old"))
    return step(world, replace(world, settings={}).dg_launch(BOTH, RANGE))


@pytest.fixture(scope="module")
def with_a_bad_day(world: World, launched: Step) -> Step:
    """All three days are corrected, one has an order without an amount; by `dagster asset materialize`."""
    for day in DAYS:
        world.export(day, shop_orders(day, status="new", **({"amount": None} if day == DAY_2 else {})))
    return step(world, world.dagster_materialize(BOTH, RANGE))


@pytest.mark.prove
def test_dg_launch_loads_a_range(launched: Step):
    """`dg launch` over a range exits with 0; both tables have every day, and every partition is green."""
    assert launched.ran.returncode == 0, launched.ran.stderr[-3000:]
    assert launched.content == expected(*DAYS, status="old")
    assert launched.orders_shown == launched.sales_shown == dict.fromkeys(DAYS, "materialized")


@pytest.mark.prove
def test_a_bad_day_exits_with_1(with_a_bad_day: Step):
    """One bad day among good ones: exit code 1, the reason on the terminal, good days published, the bad one as it was."""
    assert with_a_bad_day.ran.returncode == 1
    assert (
        f"1 of 3 partitions were refused ({DAY_2}); the table keeps what it had there. 2 were published."
        in with_a_bad_day.ran.stderr
    )
    assert "`amount`" in with_a_bad_day.ran.stderr
    assert with_a_bad_day.content == expected(DAY_1, DAY_3, status="new") + expected(DAY_2, status="old")
    assert with_a_bad_day.orders_shown == {DAY_1: "materialized", DAY_2: "failed", DAY_3: "materialized"}


def test_a_reversed_range_is_refused(tmp_path: Path):
    """The launch ends with an exit code, says what is wrong with its range, and writes nothing."""
    world = new_world(tmp_path)
    world.export(DAY_1, shop_orders(DAY_1))
    ran = world.dg_launch(f'key:"{ORDERS}"', f"{DAY_3}...{DAY_1}")
    assert ran.returncode != 0
    assert f"The range `{DAY_3}...{DAY_1}` is reversed" in ran.stderr + ran.stdout
    assert not (world.lakehouse / "tables").exists()
    with world.here() as lake:
        assert lake.instance.get_materialized_partitions(key_of(ORDERS)) == set()
