"""Backfills for a lakehouse that are safe by construction.

`type: backfill_assets.LakehouseTable` in a `defs.yaml` is a table; `build_lakehouse_table` is the same in Python. Both
are looked up on first use, so that importing a part of the package does not import Dagster.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PUBLIC = {
    "LakehouseTable": "backfill_assets.assets.component",
    "TableSpec": "backfill_assets.core.spec.table",
    "build_lakehouse_table": "backfill_assets.assets.factory",
    "lakehouse_definitions": "backfill_assets.assets.lakehouse",
}
__all__ = ["LakehouseTable", "TableSpec", "build_lakehouse_table", "lakehouse_definitions"]  # pyright: ignore[reportUnsupportedDunderAll] (looked up on first use)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
