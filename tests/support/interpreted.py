"""Queries that are interpreted, by a Java that compiles once: over a few rows compiling takes longer than it saves."""

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
    once = {} if AS_SHIPPED in os.environ else {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    return ";".join(f"{name}={value}" for name, value in {**interpreted(), **once, **settings}.items())
