"""A table whose database is never read: it has what the feed has brought, and can take all that it brings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.core.history.reconcile import reconcile
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import SourceRefusedError
from backfill_assets.lake.evolution import evolve
from backfill_assets.lake.table import LakeTable
from tests.live.changes.test_modes import as_rows
from tests.live.changes.world import COLUMNS, DAYS, World, customers_spec, new_world
from tests.support.shop import multiset, opened, published_keys

EXCLUDED = {"backfill": "excluded"}


def with_city(world: World, **changes: Any) -> World:
    """The world whose table has one column more, which the database may have or not."""
    columns = {**COLUMNS, "city": "string", **changes}
    spec = customers_spec(world.spec.source.connection, world.name, columns=columns, changes=EXCLUDED)
    grown = replace(world, spec=spec, lake=LakeTable(world.spark, spec, world.lake.path, world.log.append))
    if grown.lake.version() >= 0:
        evolve(grown.lake)
    return grown


def customer(number: int, day: str, *more: str) -> str:
    values = ", ".join(f"'{value}'" for value in more)
    return f"INSERT INTO customers VALUES ({number}, 'n', 1, NULL, true, '{day} 05:00Z'{', ' if more else ''}{values})"


def cities(world: World) -> dict[int, str | None]:
    found = opened(world.lake.path).to_pyarrow_table(columns=["id", "city"]).to_pylist()
    return {row["id"]: row["city"] for row in found}


@pytest.mark.prove
def test_a_table_that_only_follows_may_get_a_new_column(spark, tmp_path):
    """Its history is never read from the database: what the feed has brought by then has it, if it was there already."""
    world = new_world(spark, tmp_path, changes=EXCLUDED)
    world.land()
    world.execute(f"INSERT INTO customers VALUES (900, 'n', 1, NULL, true, '{DAYS[0]} 05:00Z')")
    world.bring_up()
    world.execute("ALTER TABLE customers ADD COLUMN city text")
    world.execute(
        f"INSERT INTO customers SELECT 902 + n, 'n', 1, NULL, true, date '{DAYS[0]}' + n, 'Oslo' FROM generate_series(0, 1) n"
    )
    assert published_keys(world.bring_up().outcomes) == [DAYS[0], DAYS[1]]
    grown = with_city(world)
    grown.execute(f"INSERT INTO customers VALUES (901, 'n', 1, NULL, true, '{DAYS[0]} 05:00Z', 'Rome')")
    done = grown.bring_up()
    assert (done.refused, published_keys(done.outcomes)) == ([], [DAYS[0], DAYS[1]])
    assert cities(grown) == {900: None, 901: "Rome", 902: "Oslo", 903: "Oslo"}
    assert all(c.passed for c in reconcile(grown.spec, grown.partitions, grown.source, grown.lake))
    assert grown.bring_up().outcomes == []


def test_excluded_has_what_the_feed_has_brought(spark, tmp_path):
    """No row from before it, and a launch is refused: its database is not read."""
    world = new_world(spark, tmp_path, changes=EXCLUDED)
    world.land()
    world.execute(f"INSERT INTO customers VALUES (5000, 'seen', 1, NULL, NULL, '{DAYS[1]} 05:00Z')")
    with pytest.raises(SourceRefusedError, match="excluded"):
        world.launch()
    assert published_keys(world.bring_up().outcomes) == [DAYS[1]]
    surveys = world.source.survey(world.partitions)
    assert [key for key in surveys if surveys[key].is_expected] == [DAYS[1]], "the others are not missing"
    world.execute("UPDATE customers SET balance = 2 WHERE id = 5000", "UPDATE customers SET balance = 2 WHERE id = 1")
    world.bring_up()
    assert sorted(row[0] for row in world.content()) == [1, 5000]


def test_an_excluded_table_needs_no_source():
    """Its feed says whose changes they are, which is as if its source did."""
    feed = {"backfill": "excluded", "connection": "SHOP", "table": "public.customers"}
    spec = customers_spec("SHOP", "shop", source=None, changes=feed)
    assert spec == customers_spec("SHOP", "shop", source=spec.source, changes={"backfill": "excluded"})
    assert spec.source.description == "`public.customers` in the database of `SHOP`"
    assert TableSpec(**spec.model_dump(exclude_unset=True)) == spec


@pytest.mark.prove
def test_what_other_code_has_folded_is_folded_again(spark, tmp_path):
    """No launch makes it new; and whoever only looks finds all that there is."""
    world = new_world(spark, tmp_path, changes=EXCLUDED)
    world.land()
    world.execute(customer(900, DAYS[0]), customer(901, DAYS[1]))
    world.bring_up()
    refresh = world.refresh()
    refresh.source.code_version = "other"
    assert published_keys(refresh.once().outcomes) == [DAYS[0], DAYS[1]]
    assert {known.receipt.run.code_version for known in world.lake.published().values()} == {"other"}
    assert refresh.once().outcomes == []
    assert sorted(row[0] for row in world.content()) == [900, 901]


@pytest.mark.prove
def test_what_somebody_else_wrote_is_rebuilt_from_the_feed(spark, tmp_path):
    """No launch may come; so the table is moved away, and all that its feed has brought is folded into a new one."""
    world = new_world(spark, tmp_path, changes=EXCLUDED)
    world.land()
    world.execute("UPDATE customers SET balance = 7 WHERE id < 100", customer(900, DAYS[2]))
    world.bring_up()
    opened(world.lake.path).update(predicate="id = 5", updates={"name": "'by hand'"})
    world.execute("UPDATE customers SET balance = 8 WHERE id = 5", "DELETE FROM customers WHERE id = 6")
    done = world.bring_up()
    assert (done.published, done.lacking_since is None) == ([], False)
    assert "docs/databases.md says how it is rebuilt" in world.log[-1]
    world.lake.history.fill()
    (tmp_path / "away").mkdir()
    for path in Path(world.lake.path).parent.iterdir():
        if not path.name.startswith("customers_changes"):
            path.rename(tmp_path / "away" / path.name)
    assert world.refresh().once().lacking_since is None
    assert world.content() == multiset([row for row in as_rows(world) if row["id"] < 100 or row["id"] == 900], COLUMNS)
