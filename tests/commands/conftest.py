"""A project of its own for the tests of `init` and `schema`, and the shop for those of versions."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from backfill_assets.demo.orders import write_orders
from tests.commands.places import Place, copied, new_place
from tests.commands.schema_project import DAYS, DEFINITIONS, FIRST, Project
from tests.commands.versions import DAYS as DAYS_OF_ORDERS
from tests.commands.versions import V2, run
from tests.support.launching import ORDERS, TOTALS
from tests.support.shop import orders


@pytest.fixture(scope="module")
def project(spark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    root = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        (root / "pyproject.toml").write_text(
            '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "shop_of_schemas"\nregistry_modules = ["backfill_assets"]\n'
        )
        for name, text in (("__init__.py", ""), ("defs/__init__.py", ""), ("definitions.py", DEFINITIONS)):
            (root / "shop_of_schemas/defs").mkdir(parents=True, exist_ok=True)
            (root / "shop_of_schemas" / name).write_text(text)
        patch.syspath_prepend(root)
        patch.chdir(root)
        patch.setenv("LAKEHOUSE_ROOT", f"{root}/lakehouse")
        patch.setenv("DAGSTER_HOME", f"{root}/home")
        write_orders(root / "lakehouse/landing/orders", first_day=FIRST, days=DAYS, orders_per_day=40, seed=1)
        yield Project(root, spark)
    for name in [name for name in sys.modules if name.split(".")[0] == "shop_of_schemas"]:
        del sys.modules[name]


@pytest.fixture(scope="session")
def shop_with_totals(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Place:
    """Four published days in two months, with their totals. It is copied, and never changed."""
    place = new_place(tmp_path_factory.mktemp("place"))
    for day in DAYS_OF_ORDERS:
        place.lake.export(day, orders(day, 4))
    assert place.lake.launch(DAYS_OF_ORDERS[0], DAYS_OF_ORDERS[-1], tables=(ORDERS, TOTALS)).succeeded
    return place


@pytest.fixture(scope="session")
def shop_brought_up(shop_with_totals: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The second versions are made, and hold what the first do. It is copied, and never changed."""
    place = copied(shop_with_totals, tmp_path_factory.mktemp("copied"))
    run(place, "deploy", V2)
    return place
