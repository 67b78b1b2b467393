"""Backfills for a lakehouse that are safe by construction.

`type: backfill_assets.LakehouseTable` in a `defs.yaml` is a table; `build_lakehouse_table` is the same in Python;
`Lakehouse` is where the tables lie. All are looked up on first use, so that importing a part of the package does not
import Dagster.
"""

# pyright: reportUnsupportedDunderAll=false
# (the names are looked up on first use)

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from backfill_assets.runs.resources import Lakehouse

_PUBLIC = {
    "Lakehouse": "backfill_assets.runs.resources",
    "LakehouseTable": "backfill_assets.assets.component",
    "TableSpec": "backfill_assets.core.spec.table",
    "build_lakehouse_table": "backfill_assets.assets.factory",
    "lakehouse_definitions": "backfill_assets.assets.lakehouse",
    "load_tables": "backfill_assets.assets.lakehouse",
    # for a kind of source of one's own, see docs/sources.md
    "AuditRule": "backfill_assets.core.history.audit",
    "Evidence": "backfill_assets.core.history.audit",
    "Finding": "backfill_assets.core.history.audit",
    "Partition": "backfill_assets.core.calendar.partitions",
    "Scan": "backfill_assets.core.history.ports",
    "Source": "backfill_assets.core.history.ports",
    "SourceContext": "backfill_assets.sources.context",
    "SourceSpec": "backfill_assets.core.spec.source_spec",
    "Survey": "backfill_assets.core.state.surveys",
    "register_source": "backfill_assets.core.spec.sources",
}
__all__ = [
    "AuditRule",
    "Evidence",
    "Finding",
    "Lakehouse",
    "LakehouseTable",
    "Partition",
    "Scan",
    "Source",
    "SourceContext",
    "SourceSpec",
    "Survey",
    "TableSpec",
    "build_lakehouse_table",
    "lakehouse_definitions",
    "load_tables",
    "read",
    "register_source",
]


@overload
def read(names: str, *, lakehouse: Lakehouse | None = None) -> DataFrame: ...
@overload
def read(names: list[str] | tuple[str, ...], *, lakehouse: Lakehouse | None = None) -> list[DataFrame]: ...
def read(names: str | list[str] | tuple[str, ...], *, lakehouse: Lakehouse | None = None) -> Any:
    """Return the rows of a table's current version as a Spark frame; of several tables, all as they are at one moment.

    Args:
        names: `bronze/orders`, or a list of such names, which a switch never parts.
        lakehouse: Where the tables lie; the environment's `LAKEHOUSE_ROOT` if not given.

    Raises:
        ConfigurationError: There is no such table.

    Example:
        >>> orders, sales = backfill_assets.read(["bronze/orders", "silver/daily_sales"])
    """
    from backfill_assets.runs.resources import Lakehouse

    return (lakehouse or Lakehouse()).read(names)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
