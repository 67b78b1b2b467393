"""Queries that are interpreted: over a few rows a query takes longer to compile than to run."""

from __future__ import annotations

import os
from collections.abc import Mapping

AS_SHIPPED = "BACKFILL_ASSETS_TESTS_AS_SHIPPED"
"""In the environment of tests that let Spark compile each query, as outside of the tests (`--as-shipped`)."""


def interpreted() -> dict[str, str]:
    """Return the settings of Spark with which it compiles no query; none at all in tests that run as shipped."""
    if AS_SHIPPED in os.environ:
        return {}
    return {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def extra_conf(settings: Mapping[str, str]) -> str:
    """Return `SPARK_EXTRA_CONF` of a process that interprets its queries, and has more settings of Spark's."""
    return ";".join(f"{name}={value}" for name, value in {**interpreted(), **settings}.items())
