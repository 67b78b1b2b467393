"""The entry point that Dagster loads: TheWorldShop's lakehouse."""

from pathlib import Path

import dagster as dg

from backfill_assets.assets.lakehouse import lakehouse_definitions, load_tables


@dg.definitions
def defs() -> dg.Definitions:
    """Return all tables below `defs/`."""
    return lakehouse_definitions(load_tables(Path(__file__).parent))
