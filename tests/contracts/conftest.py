"""The implementations that every contract runs over; only those that need a JVM are marked `spark`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.contracts.lakes import DAYS, DeltaShop, FakeShop, Shop, orders, publish

WRITTEN = pytest.param("transaction", marks=pytest.mark.spark)
EVERY_KIND = ["lists", WRITTEN, pytest.param("public API", marks=pytest.mark.spark)]
"""For contracts of what is written; the others look at a table, however it was written."""
STAGED = ["lists", WRITTEN, pytest.param("public API", marks=[pytest.mark.spark, pytest.mark.prove])]
"""For contracts of what is staged: both writers read, join and tally rows in one way, and keep them in two."""


@pytest.fixture(scope="module", params=["lists", WRITTEN])
def lake_kind(request: pytest.FixtureRequest) -> str:
    """The lake, and how it writes."""
    return request.param


def shop_of(lake_kind: str, request: pytest.FixtureRequest, folder: Path) -> Shop:
    if lake_kind == "lists":
        return FakeShop()
    return DeltaShop(request.getfixturevalue("spark"), folder / "orders", by_public_api=lake_kind == "public API")


@pytest.fixture
def unmade(lake_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    """A shop whose table was never made."""
    return shop_of(lake_kind, request, tmp_path)


@pytest.fixture(scope="module")
def made(lake_kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A shop whose table was just made, to be copied."""
    made = shop_of(lake_kind, request, tmp_path_factory.mktemp("made"))
    made.lake.create()
    return made


@pytest.fixture
def shop(unmade: Shop, made: Shop) -> Shop:
    """A shop whose table was just made."""
    if isinstance(made, DeltaShop) and isinstance(unmade, DeltaShop):
        shutil.copytree(made.path, unmade.path)
    else:
        unmade.lake.create()
    return unmade


@pytest.fixture(scope="module")
def filled(lake_kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A shop for tests that only look. What its versions wrote:

    1. 2024-01-01 to 2024-01-03, two orders each; 2. 2024-01-02 again, with other amounts; 3. one more order of 2024-01-03,
    by somebody else; 4. 2024-01-04, without any rows.
    """
    made = shop_of(lake_kind, request, tmp_path_factory.mktemp("filled"))
    made.lake.create()
    publish(made, {day: orders(day) for day in DAYS[:3]})
    publish(made, {DAYS[1]: orders(DAYS[1], amount="2.50")})
    made.append_as_somebody_else(orders(DAYS[2], 3)[2:])
    publish(made, {DAYS[3]: []})
    return made
