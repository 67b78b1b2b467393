"""A table that follows its database: what each change does to which partitions, and what is refused."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backfill_assets.core.history.outcomes import Published
from backfill_assets.errors import ChangeFeedError, FeedBehindError
from backfill_assets.live.changes.table import ChangesTable
from tests.live.changes.world import DAYS, SOME_CUSTOMERS, World, new_world
from tests.support.shop import left_out, published_keys


@pytest.fixture(scope="module")
def shared(spark, tmp_path_factory: pytest.TempPathFactory) -> World:
    return launched(new_world(spark, tmp_path_factory.mktemp("shared")))


@pytest.fixture
def own(spark, tmp_path) -> World:
    """All partitions are launched; for a test that leaves something broken."""
    return launched(new_world(spark, tmp_path))


def launched(world: World) -> World:
    world.land()
    assert published_keys(world.launch()) == list(DAYS)
    assert world.content() == world.rows()
    return world


@pytest.fixture
def world(shared: World) -> World:
    """All partitions are launched, and the customers are those that were there at first, whatever a test did before."""
    shared.execute(
        "DROP TABLE IF EXISTS other",
        f"BEGIN; DELETE FROM customers; {SOME_CUSTOMERS}; COMMIT",
    )
    assert not shared.bring_up().refused
    assert shared.content() == shared.rows()
    return shared


def refreshed(world: World, *statements: str) -> list[str]:
    """Change the database, and fold it in; return the partitions that were overwritten, in how many commits."""
    before = world.lake.version()
    world.execute(*statements)
    done = world.bring_up()
    assert not done.refused
    assert world.content() == world.rows()
    assert world.lake.version() - before == len(done.published)
    assert len(done.published) <= 1
    return published_keys(done.outcomes)


@pytest.mark.prove
def test_changes_are_folded_into_what_they_touch(world):
    """Insert, update, delete, a row that moves, a key that changes, keys that are swapped: those partitions, in one commit."""
    assert refreshed(world) == []
    assert refreshed(
        world,
        f"INSERT INTO customers VALUES (1000, 'new', 1, NULL, NULL, '{DAYS[1]} 05:00Z')",
        "UPDATE customers SET balance = 7.5 WHERE id = 1000",
    ) == [DAYS[1]]
    assert refreshed(
        world,
        f"UPDATE customers SET signed_up = '{DAYS[3]} 05:00Z' WHERE id = 1000",
        "UPDATE customers SET id = 1001 WHERE id = 1000",
    ) == [DAYS[1], DAYS[3]]
    swap = (
        "BEGIN; UPDATE customers SET id = -1 WHERE id = 1; UPDATE customers SET id = 1 WHERE id = 25; "
        "UPDATE customers SET id = 25 WHERE id = -1; COMMIT"
    )
    assert refreshed(world, swap, "DELETE FROM customers WHERE id = 1001") == [DAYS[0], DAYS[1], DAYS[3]]
    again = "BEGIN; DELETE FROM customers WHERE id = 2; INSERT INTO customers (id, signed_up) VALUES (2, '2024-01-05Z'); COMMIT"
    assert refreshed(world, again, "CREATE TABLE other (id int)") == [DAYS[0], DAYS[4]]
    assert refreshed(world, f"DELETE FROM customers WHERE signed_up >= '{DAYS[4]}Z'") == [DAYS[4]]
    assert not any(row[5].day == 5 for row in world.content())


@pytest.mark.prove
def test_a_bad_value_fails_its_partition_until_it_is_good(own):
    """A NaN where the lakehouse has decimals: the day stays as it was, others are refreshed, and it is mended by itself."""
    own.execute(
        "ALTER TABLE customers ALTER balance TYPE numeric",
        "UPDATE customers SET balance = 'NaN' WHERE id = 1",
        f"INSERT INTO customers VALUES (2000, 'good', 1, NULL, NULL, '{DAYS[2]} 05:00Z')",
    )
    before, changed = own.content(), datetime.now(UTC)
    done = own.bring_up()
    assert done.lacking_since is not None, "so long the table is behind, whatever has landed since"
    assert abs(done.lacking_since - changed) < timedelta(seconds=5)
    assert {refused.verdict.partition.key for refused in done.refused} == {DAYS[0]}, (
        "once more if a day begins meanwhile"
    )
    assert "1 row cannot be read as the spec says. For example: id=1: `balance`: NaN" in str(done.refused[0].verdict)
    assert published_keys(done.outcomes) == [DAYS[2]]
    assert sum((own.content() - before).values()) == 1
    own.execute("UPDATE customers SET balance = 3 WHERE id = 1")
    mended = own.bring_up()
    assert (mended.refused, mended.lacking_since) == ([], None)
    assert own.content() == own.rows()


@pytest.mark.prove
def test_an_emptied_table_empties_its_partitions(world):
    """TRUNCATE, and rows that come after it in the same transaction and later."""
    world.execute(
        f"BEGIN; TRUNCATE customers; INSERT INTO customers VALUES (1, 'first', 1, NULL, NULL, '{DAYS[0]} 05:00Z'); COMMIT",
        f"INSERT INTO customers VALUES (2, 'second', 1, NULL, NULL, '{DAYS[1]} 05:00Z')",
    )
    world.bring_up()
    assert world.content() == world.rows()
    assert sum(world.content().values()) == 2


@pytest.mark.prove
def test_what_is_folded_is_not_stale_and_what_is_not_is(world):
    """`only: missing` asks the feed, not the database: it leaves out what is up to date, and launches what has changed."""
    assert list(left_out(world.launch(only="missing"))) == list(DAYS)
    world.execute(f"UPDATE customers SET balance = 1 WHERE signed_up < '{DAYS[1]}Z'")
    world.land()
    outcomes = world.launch(only="missing")
    assert published_keys(outcomes) == [DAYS[0]]
    assert world.content() == world.rows()
    assert list(left_out(world.launch(only="missing"))) == list(DAYS)


@pytest.mark.prove
def test_a_refresh_asks_the_database_nothing(world):
    """With the server's address taken away the feed's files are enough."""
    world.execute("UPDATE customers SET balance = 4 WHERE id = 7")
    world.land()
    address = os.environ.pop(world.spec.source.connection)
    try:
        assert len(world.refresh().once().published) == 1
    finally:
        os.environ[world.spec.source.connection] = address
    assert world.content() == world.rows()


def test_a_launch_brings_other_partitions_up_to_where_it_is(world):
    """A row that has moved out of another day is in both, or in neither, at no version."""
    world.execute(f"UPDATE customers SET signed_up = '{DAYS[2]} 12:34Z' WHERE id IN (1, 2, 3)")
    outcomes = world.launch(world.partitions[2:3])
    (published,) = [outcome for outcome in outcomes if isinstance(outcome, Published)]
    assert [p.key for p in published.partitions] == [DAYS[2], DAYS[0]]
    assert world.content() == world.rows()
    assert all(max(keys.values(), default=1) == 1 for keys in world.keys_by_version().values())


# -- feeds that do not go on -------------------------------------------------------------------------------------------


def test_a_launch_waits_for_the_feed_and_says_what_it_waits_for(spark, tmp_path):
    """Without a capture it gives up; nothing is written."""
    world = new_world(spark, tmp_path, changes={"wait_seconds": 0.5})
    with pytest.raises(FeedBehindError, match="backfill-assets capture"):
        world.launch_now()
    world.land()
    world.execute("UPDATE customers SET balance = 2 WHERE id = 1")
    with pytest.raises(FeedBehindError, match="backfill-assets capture"):
        world.launch_now()
    assert not world.lake.published()


@pytest.mark.prove
def test_a_file_that_is_missing_is_noticed(world):
    """Nothing behind the hole is folded in; the message names where it is."""
    for number in (1, 2, 3):
        world.execute(f"UPDATE customers SET balance = {number} WHERE id = 1")
        world.land()
    filled = sorted(world.folder.glob("*.jsonl"))
    before = world.content()
    text = filled[-2].read_bytes()
    filled[-2].unlink()
    refresh = world.refresh()
    with pytest.raises(ChangeFeedError, match="hole"):
        refresh.once()
    assert world.content() == before
    filled[-2].write_bytes(text)
    refresh.once()
    assert world.content() == world.rows()


@pytest.mark.prove
def test_a_new_feed_after_a_lost_slot_makes_every_partition_stale(own):
    """What happened between the two is in no feed: each partition is launched again, and is then the database's."""
    own.bring_up()
    own.execute("UPDATE customers SET balance = 5 WHERE id = 1")
    own.execute(f"SELECT pg_drop_replication_slot('{own.capture.slot}')")
    own.execute("UPDATE customers SET balance = 6 WHERE id = 30")
    for file in own.folder.iterdir():
        file.unlink()
    own.land()
    own.execute("UPDATE customers SET balance = 7 WHERE id = 50")
    own.land()
    reader = own.source.reader
    with pytest.raises(ChangeFeedError, match="hole"):
        reader.read()
    reader.read(is_new_feed=True)
    before = own.content()
    assert own.refresh().once().published == []  # what a hole has made unknown is not built upon
    assert own.content() == before
    assert published_keys(own.launch(only="missing")) == list(DAYS)
    assert own.content() == own.rows()


@pytest.mark.prove
def test_a_damaged_line_is_not_skipped(world):
    """The whole file is refused, and named."""
    world.execute("UPDATE customers SET balance = 5 WHERE id = 1")
    world.land()
    file = max(world.folder.glob("*.jsonl"))
    text = file.read_text()
    file.write_text(text[: len(text) // 2])
    with pytest.raises(ChangeFeedError, match="is no event"):
        world.refresh().once()
    file.write_text(text)
    world.refresh().once()
    assert world.content() == world.rows()


def test_each_change_is_in_the_table_of_changes_once(world):
    """Read again from the beginning by somebody who was killed, or by two at once, it is appended once."""
    world.execute(*(f"UPDATE customers SET balance = {n} WHERE id = 1" for n in range(5)))
    world.land()
    readers = [world.source.reader for _ in range(3)]
    before = ChangesTable(world.spark, world.spec, world.lake.path).rows().count()
    for reader in readers:
        reader.reach()
    for reader in readers:
        reader.read()
    assert ChangesTable(world.spark, world.spec, world.lake.path).rows().count() - before == 5


@pytest.mark.prove
def test_looking_at_a_feed_writes_nothing(world):
    """A survey, a comparison and a rehearsal read what has landed where it lies: nothing below the table changes."""
    from backfill_assets.core.history.reconcile import reconcile

    world.execute("UPDATE customers SET balance = 5 WHERE id = 1")
    world.land()
    before = everything_below(Path(world.lake.path).parent)
    first = world.source.survey(world.partitions)
    with world.capturing():
        (compared,) = reconcile(world.spec, world.partitions[:1], world.source, world.lake)
    assert compared.passed, "what the table has not folded in yet is no difference"
    assert everything_below(Path(world.lake.path).parent) == before
    world.refresh().once()
    after = world.source.survey(world.partitions)
    assert {key: s.fingerprint for key, s in first.items()} == {key: s.fingerprint for key, s in after.items()}


def everything_below(folder: Path) -> set[tuple[str, int]]:
    """Every file with its length; not the locks."""
    return {(str(f), f.stat().st_size) for f in folder.rglob("*") if f.is_file() and f.suffix != ".lock"}
