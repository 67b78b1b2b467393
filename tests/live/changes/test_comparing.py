"""A table held against the database that it follows, both as of one moment of the database."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backfill_assets.core.history.comparison import Comparison
from backfill_assets.core.history.reconcile import reconcile
from backfill_assets.core.spec.checks import Checks, Tolerance
from tests.live.changes.world import COLUMNS, CUSTOMERS, DAYS, SOME_CUSTOMERS, World, new_world
from tests.support.shop import opened, published_keys, refusals


@pytest.fixture
def world(spark, tmp_path: Path) -> World:
    """All days are launched."""
    made = new_world(spark, tmp_path)
    made.land()
    assert published_keys(made.launch()) == list(DAYS)
    return made


def compared(world: World, days: slice = slice(None)) -> dict[str, Comparison]:
    with world.capturing():
        found = list(reconcile(world.spec, world.partitions[days], world.source, world.lake))
    return {comparison.partition.key: comparison for comparison in found}


def passed(world: World, days: slice = slice(None)) -> dict[str, bool]:
    return {key: comparison.passed for key, comparison in compared(world, days).items()}


@pytest.mark.prove
def test_row_that_the_database_cannot_read_fails_its_day(spark, tmp_path):
    """An invalid byte of a database without an encoding: launch and comparison name it, and the other days are equal."""
    world = new_world(spark, tmp_path)
    with world.server.connected() as connection:
        connection.execute(f"DROP DATABASE {world.name} WITH (FORCE)".encode())
        connection.execute(
            f"CREATE DATABASE {world.name} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0".encode()
        )
    broken = f"INSERT INTO customers VALUES (999, E'Caf\\351', 1, NULL, true, '{DAYS[1]} 10:00Z')"
    world.execute(CUSTOMERS, SOME_CUSTOMERS, broken)
    world.land()
    outcomes = world.launch()
    others = [day for day in DAYS if day != DAYS[1]]
    assert published_keys(outcomes) == others
    ((day, said),) = refusals(outcomes).items()
    assert day == DAYS[1]
    assert "SQLSTATE 22021" in str(said)
    assert "id=999, in `name`" in str(said)
    found = compared(world)
    assert {key: c.passed for key, c in found.items()} == {day: day in others for day in DAYS}
    assert "id=999, in `name`" in str(found[DAYS[1]])


def test_comparison_is_exact_unless_a_tolerance_is_declared(spark, tmp_path):
    """A change that waits to be folded in is no difference. A row that somebody deleted is one, unless one may differ."""
    world, day = new_world(spark, tmp_path), slice(1)
    world.land()
    world.launch(world.partitions[day])
    world.execute("UPDATE customers SET balance = 8 WHERE id = 1")
    assert passed(world, day) == {DAYS[0]: True}
    world.bring_up()
    opened(world.lake.path).delete("id = 2")
    assert passed(world, day) == {DAYS[0]: False}
    world.spec = world.spec.model_copy(update={"checks": Checks(tolerance=Tolerance(rows=1))})
    found = compared(world, day)[DAYS[0]]
    assert (found.passed, "`checks.tolerance` allows 1 rows" in found.tolerated) == (True, True)
    opened(world.lake.path).delete("id = 1")
    assert passed(world, day) == {DAYS[0]: False}, "two rows differ"


@pytest.mark.prove
def test_only_what_differs_at_the_moment_is_a_difference(world):
    """Changes that wait are none; rows twice are one, and so are a value that cannot be read and a day never launched."""
    world.execute(
        f"UPDATE customers SET signed_up = '{DAYS[1]} 05:00Z' WHERE id IN (1, 2)",
        f"DELETE FROM customers WHERE signed_up >= '{DAYS[4]}Z'",
        "INSERT INTO customers VALUES (3000, E'é\\t漢', -0.01, '', NULL, '2024-01-03 23:59:59.999999Z')",
    )
    found = compared(world)
    assert {key: c.passed for key, c in found.items()} == dict.fromkeys(DAYS, True)
    assert [c.source_rows for c in found.values()] == [46, 50, 49, 48, 0]
    assert all(c.source_checksum == c.table_checksum for c in found.values())
    world.refresh().once()
    assert world.content() == world.rows()

    world.execute(
        "ALTER TABLE customers ALTER balance TYPE numeric",
        "UPDATE customers SET balance = 'NaN' WHERE id = 3000",
    )
    one = world.spark.read.format("delta").load(world.lake.path).where("id = 3")
    one.select(*COLUMNS, "dt").write.format("delta").mode("append").save(world.lake.path)
    found = compared(world)
    assert {key: c.passed for key, c in found.items()} == {day: day not in (DAYS[0], DAYS[2]) for day in DAYS}
    assert "id=3000" in str(found[DAYS[2]])
    assert "2 in the table" in str(found[DAYS[0]])


@pytest.mark.prove
def test_a_day_that_somebody_else_wrote_is_held_as_it_is(world):
    """No refresh brings it up to the feed: a change that would bring the lost row back is not counted as if it did."""
    opened(world.lake.path).delete("id = 3")
    assert not passed(world)[DAYS[0]]
    changed = datetime.now(UTC)
    world.execute("UPDATE customers SET balance = 33 WHERE id = 3")
    done = world.bring_up()
    assert published_keys(done.outcomes) == []
    assert done.lacking_since is not None, "so long the table is behind, until it is launched"
    assert abs(done.lacking_since - changed) < timedelta(seconds=5)
    assert passed(world) == {**dict.fromkeys(DAYS, True), DAYS[0]: False}
    world.launch(world.partitions[:1])
    assert passed(world) == dict.fromkeys(DAYS, True)
    assert world.bring_up().lacking_since is None


@pytest.mark.prove
def test_since_when_a_change_waits_is_known(world):
    """The oldest one that a day lacks, by when it was committed; nothing waits for the others."""
    began = datetime.now(UTC)
    world.execute(f"UPDATE customers SET balance = 8 WHERE signed_up < '{DAYS[1]}Z'")
    between = datetime.now(UTC)
    world.land()
    world.execute("UPDATE customers SET balance = 9 WHERE id = 1")
    world.land()
    since = {key: survey.changed_utc for key, survey in world.source.survey(world.partitions).items()}
    assert began <= since.pop(DAYS[0]) <= between
    assert set(since.values()) == {None}
    world.refresh().once()
    assert {survey.changed_utc for survey in world.source.survey(world.partitions).values()} == {None}
    world.execute("TRUNCATE customers")
    world.land()
    assert all(survey.changed_utc for survey in world.source.survey(world.partitions).values())


@pytest.mark.prove
def test_an_excluded_table_is_held_against_its_feed_alone(spark, tmp_path):
    """The database has rows from before the feed that the table never gets, and is not asked."""
    world = new_world(spark, tmp_path, changes={"backfill": "excluded"})
    world.land()
    world.execute(f"INSERT INTO customers VALUES (5000, 'seen', 1, NULL, NULL, '{DAYS[1]} 05:00Z')")
    world.bring_up()
    world.execute("UPDATE customers SET balance = 2 WHERE id IN (1, 5000)")
    world.land()
    address = os.environ.pop(world.spec.source.connection)
    try:
        found = {c.partition.key: c for c in reconcile(world.spec, world.partitions, world.source, world.lake)}
    finally:
        os.environ[world.spec.source.connection] = address
    assert [c.passed for c in found.values()] == [True] * 5
    assert [c.source_rows for c in found.values()] == [1, 1, 0, 0, 0]
    world.refresh().once()
    world.spark.sql(f"UPDATE delta.`{world.lake.path}` SET name = 'flipped' WHERE id = 5000")
    assert passed(world) == {day: day != DAYS[1] for day in DAYS}
