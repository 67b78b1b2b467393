"""A project of its own for the tests of `init` and `schema`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from backfill_assets.demo.orders import write_orders
from tests.commands.schema_project import DAYS, DEFINITIONS, FIRST, Project


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
