"""The start of a table that follows a database moves forward: what was published before it is no part of it any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.live.changes.world import COLUMNS, DAYS, new_world
from tests.support import postgres
from tests.support.shop import multiset, published_keys, rows_in


@pytest.mark.prove
def test_what_changes_before_the_start_stops_nothing(spark, tmp_path: Path):
    """A row of a day that the table had, another one that moves out of it, and all of them at once."""
    world = new_world(spark, tmp_path)
    world.land()
    assert published_keys(world.launch(world.partitions[:2])) == list(DAYS[:2])
    spec = type(world.spec).model_validate({**world.spec.model_dump(exclude_unset=True), "start": DAYS[1]})
    later = replace(world, spec=spec, lake=replace(world.lake, spec=spec))
    world.execute(
        "UPDATE customers SET balance = 7 WHERE id IN (1, 30)",
        f"UPDATE customers SET signed_up = '{DAYS[1]} 03:00Z' WHERE id = 2",
    )
    later.land()
    with later.capturing():
        later.refresh().once()
    assert published_keys(later.launch(later.spec.grid.between(DAYS[1], DAYS[1]))) == [DAYS[1]]
    here = [row for row in rows_in(world.lake.path) if str(row["dt"]) == DAYS[1]]
    with world.server.connected(world.name) as connection:
        all_there = postgres.rows_of(connection, "customers")
    assert multiset(here, COLUMNS) == multiset(
        (row for row in all_there if f"{row['signed_up']:%F}" == DAYS[1]), COLUMNS
    )
    world.execute("TRUNCATE customers")
    later.bring_up()
    assert [row for row in rows_in(world.lake.path) if str(row["dt"]) == DAYS[1]] == []
