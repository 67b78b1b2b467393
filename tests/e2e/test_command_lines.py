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


@pytest.fixture(scope="module")
def put_right(world: World, with_a_bad_day: Step) -> Step:
    """The bad day is put right and launched alone, by `dagster asset materialize`."""
    world.export(DAY_2, shop_orders(DAY_2, status="new"))
    return step(world, world.dagster_materialize(BOTH, f"{DAY_2}...{DAY_2}"))


def test_dg_launch_loads_a_range(launched: Step):
    """`dg launch` over a range exits with 0; both tables have every day, and every partition is green."""
    assert launched.ran.returncode == 0, launched.ran.stderr[-3000:]
    assert launched.content == expected(*DAYS, status="old")
    assert launched.orders_shown == launched.sales_shown == dict.fromkeys(DAYS, "materialized")


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


@pytest.mark.prove
def test_dagster_asset_materialize_loads_a_range(put_right: Step):
    """`dagster asset materialize` over a range of one exits with 0, and the table is whole again."""
    assert put_right.ran.returncode == 0, put_right.ran.stderr[-3000:]
    assert put_right.content == expected(*DAYS, status="new")
    assert put_right.orders_shown == dict.fromkeys(DAYS, "materialized")


@pytest.mark.parametrize(
    ("partition_range", "says"),
    [
        pytest.param(f"{DAY_3}...{DAY_1}", f"The range `{DAY_3}...{DAY_1}` is reversed", id="reversed"),
        pytest.param("...", "containing the passed partition key ``", id="empty"),
        pytest.param(
            f"1999-12-31...{DAY_1}", "containing the passed partition key `1999-12-31`", id="before every start"
        ),
    ],
)
def test_a_range_that_is_none_is_refused(tmp_path: Path, partition_range: str, says: str):
    """A reversed, empty or out-of-bounds range ends with an exit code, says what is wrong with it, and writes nothing."""
    world = new_world(tmp_path)
    world.export(DAY_1, shop_orders(DAY_1))
    ran = world.dg_launch(f'key:"{ORDERS}"', partition_range)
    assert ran.returncode != 0
    assert says in ran.stderr + ran.stdout
    assert not (world.lakehouse / "tables").exists()
    with world.here() as lake:
        assert lake.instance.get_materialized_partitions(key_of(ORDERS)) == set()


def test_a_range_before_the_source_begins_says_so(tmp_path: Path, warm_server: dict[str, str]):
    """A launch of days that the source does not have yet fails, says how far the source is complete, and makes no table."""
    world = new_world(tmp_path, warm_server)
    world.export(DAY_1, shop_orders(DAY_1))
    ran = world.dagster_materialize(f'key:"{ORDERS}"', f"{DAY_2}...{DAY_3}")
    assert ran.returncode == 1
    assert (
        f"the source is complete up to `{DAY_2}T00:00:00+00:00`, and the launch starts at `{DAY_2}T00:00:00+00:00`"
        in ran.stderr
    )
    assert not world.path().exists()
