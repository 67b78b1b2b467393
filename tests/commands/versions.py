"""The shop with second versions of its orders, and of what is made of them, for the tests of `version`."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import deltalake

from backfill_assets import TableSpec, build_lakehouse_table, lakehouse_definitions
from backfill_assets.runs.resources import Lakehouse
from tests.commands.places import Place, new_place
from tests.live.test_version_of_a_stream import second_spec
from tests.support.launching import ORDERS, TOTALS, TOTALS_SPEC, daily_totals
from tests.support.live_shop import Shop, event, live_spec
from tests.support.shop import COLUMNS

V2, TOTALS_V2 = f"{ORDERS}__v2", f"{TOTALS}__v2"
DAYS = ["2024-01-30", "2024-01-31", "2024-02-01", "2024-02-02"]
WIDER = {**COLUMNS, "amount": "decimal(20,4)"}


def second(**changes: Any) -> TableSpec:
    """Orders by month, with amounts of four digits, copied from the first version."""
    facts: dict[str, Any] = {
        "key": V2,
        "columns": WIDER,
        "key_columns": ["order_id"],
        "event_time": "ordered_at",
        "grain": "monthly",
        "start": "2024-01-01",
        "source": {"kind": "version", "table": ORDERS},
        "version_of": {"table": ORDERS, "cast": ["amount"]},
    }
    return TableSpec.model_validate({**facts, **changes})


def independent(**changes: Any) -> TableSpec:
    """Orders by day as in the first version, of the same files, whatever becomes of that."""
    files = {"kind": "files", "path": "orders", "format": "parquet", "gaps": "allowed"}
    facts = {"grain": "daily", "start": DAYS[0], "source": files, "columns": COLUMNS, "version_of": {"table": ORDERS}}
    return second(**{**facts, **changes})


def totals(**changes: Any) -> TableSpec:
    facts = TOTALS_SPEC.model_dump(mode="json", exclude_unset=True)
    facts |= {"key": TOTALS_V2, "source": {"kind": "delta", "tables": [V2]}, "version_of": {"table": TOTALS}}
    return TableSpec.model_validate({**facts, **changes})


def both(place: Place, *tables: dg.Definitions, orders_v2: TableSpec | None = None) -> dg.Definitions:
    """The shop with a second version of its orders, and of what is made of them."""
    spec = orders_v2 or second()
    return lakehouse_definitions(
        build_lakehouse_table(place.lake.spec),
        build_lakehouse_table(TOTALS_SPEC, daily_totals, inputs={ORDERS: place.lake.spec}),
        build_lakehouse_table(spec, inputs={ORDERS: place.lake.spec}),
        *(tables or (build_lakehouse_table(totals(), daily_totals, inputs={V2: spec, TOTALS: TOTALS_SPEC}),)),
        lakehouse=Lakehouse(root=str(place.lake.root)),
    )


def without_first_totals(place: Place, orders_v2: TableSpec) -> dg.Definitions:
    """The shop after the first version of what is made of its orders was retired, and its spec removed, as `retire` advises."""
    later = totals(version_of={"table": TOTALS, "retired": True})
    return lakehouse_definitions(
        build_lakehouse_table(place.lake.spec),
        build_lakehouse_table(orders_v2, inputs={ORDERS: place.lake.spec}),
        build_lakehouse_table(later, daily_totals, inputs={V2: orders_v2}),
        lakehouse=Lakehouse(root=str(place.lake.root)),
    )


def run(place: Place, *arguments: str, code: int | None = 0, definitions: dg.Definitions | None = None) -> Any:
    words = arguments if arguments[0] == "views" else ("version", *arguments, "--json")
    result = place.run(*words, definitions=definitions or both(place))
    assert code in (None, result.exit_code), (result.output, result.exception)
    if "--json" in words and result.stdout:
        return json.loads(result.stdout)
    return result.stdout if words[0] == "views" else result.stderr + result.stdout


def copy_all(place: Place, definitions: dg.Definitions) -> None:
    assert not any(one["failure"] for one in run(place, "deploy", V2, definitions=definitions)["runs"])


def amounts(place: Place, key: str) -> list[Decimal]:
    rows = deltalake.DeltaTable(f"{place.lake.root}/tables/{key}").to_pyarrow_table().to_pylist()
    return sorted(row["amount"] for row in rows)


def current(place: Place) -> dict[str, str]:
    """What a reader without Spark finds."""
    rows = deltalake.DeltaTable(f"{place.lake.root}/_current").to_pyarrow_table().to_pylist()
    assert {row["path"] for row in rows} == {f"{place.lake.root}/tables/{row['key']}" for row in rows}
    return {row["name"]: row["key"] for row in rows}


def steps(place: Place) -> list[dict[str, Any]]:
    """What was done to versions, of all tables, in order."""
    tables = [deltalake.DeltaTable(str(path)) for path in place.lake.root.glob("tables/*/*_history")]
    rows = [row for table in tables for row in table.to_pyarrow_table().to_pylist() if row["what"] == "step"]
    return sorted((json.loads(row["detail"]) for row in rows), key=lambda step: step["at"])


T = "2024-02-01"
"""Where the stream of a second version begins."""


def streamed(spark: Any, root: Path) -> tuple[Place, Shop, dg.Definitions]:
    """The orders of a stream, two days of history published, and a second version by months that is not made yet."""
    place = new_place(root)
    shop = Shop(spark, place.lake.root)
    (place.lake.root / "landing/events_v2").mkdir()
    for day in ("2024-01-02", "2024-01-03"):
        shop.export(day, event(int(day[-1]), f"{day}T10:00:00"))
    assert shop.launch("2024-01-02", "2024-01-03")
    definitions = lakehouse_definitions(
        build_lakehouse_table(live_spec()),
        build_lakehouse_table(second_spec(time_zone="UTC"), inputs={ORDERS: live_spec()}),
        lakehouse=Lakehouse(root=str(place.lake.root)),
    )
    return place, shop, definitions


def stream(place: Place, key: str, definitions: dg.Definitions) -> None:
    """Write all that has landed for one version."""
    done = place.run("live", key, "--once", definitions=definitions)
    assert done.exit_code == 0, done.output
