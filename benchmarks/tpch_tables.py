"""TPC-H's two tables of events as this project's tables: `orders` by order date, `lineitem` by ship date, monthly."""

from __future__ import annotations

from typing import Any

import dagster as dg

from backfill_assets.assets.factory import build_lakehouse_table
from backfill_assets.assets.lakehouse import lakehouse_definitions
from backfill_assets.core.spec.table import TableSpec

ORDERS = {
    "o_orderkey": "bigint not null", "o_custkey": "bigint not null", "o_orderstatus": "string not null",
    "o_totalprice": "decimal(15,2) not null", "o_orderdate": "date not null", "o_orderpriority": "string not null",
    "o_clerk": "string not null", "o_shippriority": "int not null", "o_comment": "string not null",
}  # fmt: skip
LINEITEM = {
    "l_orderkey": "bigint not null", "l_partkey": "bigint not null",
    "l_suppkey": "bigint not null", "l_linenumber": "int not null",
    "l_quantity": "decimal(15,2) not null", "l_extendedprice": "decimal(15,2) not null",
    "l_discount": "decimal(15,2) not null",
    "l_tax": "decimal(15,2) not null", "l_returnflag": "string not null", "l_linestatus": "string not null",
    "l_shipdate": "date not null", "l_commitdate": "date not null", "l_receiptdate": "date not null",
    "l_shipinstruct": "string not null", "l_shipmode": "string not null", "l_comment": "string not null",
}  # fmt: skip
FIRST_MONTH = "1992-01-01"
LAST_MONTH = {"orders": "1998-08-01", "lineitem": "1998-12-01"}
EVENT_TIME = {"orders": "o_orderdate", "lineitem": "l_shipdate"}


def spec_of(name: str) -> TableSpec:
    """Return one table: files whose names say nothing of time, cut into months."""
    facts: dict[str, Any] = {
        "key": f"tpch/{name}",
        "columns": ORDERS if name == "orders" else LINEITEM,
        "key_columns": ["o_orderkey"] if name == "orders" else ["l_orderkey", "l_linenumber"],
        "event_time": EVENT_TIME[name],
        "grain": "monthly",
        "start": FIRST_MONTH,
        "source": {
            "kind": "files",
            "path": name,
            "format": "parquet",
            "layout": "flat",
            "complete_until": "1999-01-01",
        },
    }
    return TableSpec.model_validate(facts)


@dg.definitions
def defs() -> dg.Definitions:
    """Return both tables."""
    return lakehouse_definitions(*(build_lakehouse_table(spec_of(name)) for name in EVENT_TIME))
