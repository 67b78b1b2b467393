"""The entry point that Dagster loads: TheWorldShop's lakehouse."""

import warnings
from importlib import import_module
from pathlib import Path

import dagster as dg

from backfill_assets.assets.lakehouse import lakehouse_definitions, load_tables


@dg.definitions
def defs() -> dg.Definitions:
    """Return all tables below `defs/`."""
    package = Path(__file__).parent
    if (package.parent / "pyproject.toml").exists():
        return lakehouse_definitions(load_tables(package))
    # installed from a wheel: the package lies in no project
    tree = dg.ComponentTree.from_module(import_module("backfill_assets.defs"), project_root=package.parent)
    with warnings.catch_warnings():  # of Dagster's own code about itself
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        tables = tree.build_defs()
    return lakehouse_definitions(tables)
