"""How much is read of a database at once: how large each query is, how many run, and how much each fetches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from backfill_assets.core.history.reconcile import reconcile
from backfill_assets.core.postgres.sql import Stretch
from backfill_assets.errors import SourceUnavailableError
from backfill_assets.sources.database.stretches import stretches
from backfill_assets.spark.failures import translate_spark_error
from tests.sources.database.world import DAYS, World, new_world, shop
from tests.support.shop import content, multiset, published_keys

A, B, C, D = (datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ([], []),
        ([((A, B), 5)], [Stretch(A, B)]),
        ([((A, B), 5), ((B, C), 5)], [Stretch(A, C)]),
        ([((A, B), 5), ((B, C), 6)], [Stretch(A, B), Stretch(B, C)]),
        ([((A, B), 5), ((C, D), 5)], [Stretch(A, B), Stretch(C, D)]),
        ([((A, B), 10)], [Stretch(A, B)]),
        ([((A, B), 11)], [Stretch(A, B, None, "(1,0)"), Stretch(A, B, "(1,0)")]),
        (
            [((A, B), 3), ((B, C), 21), ((C, D), 3)],
            [
                Stretch(A, B),
                Stretch(B, C, None, "(1,0)"),
                Stretch(B, C, "(1,0)", "(2,0)"),
                Stretch(B, C, "(2,0)"),
                Stretch(C, D),
            ],
        ),
    ],
)
def test_a_chunk_is_cut_into_stretches(partitions, expected):
    """Small partitions that follow each other are one query of ten rows at most; a large one is cut by place."""

    def cuts(_: object, pieces: int) -> list[str]:
        return [f"({n},0)" for n in range(1, pieces)]

    assert list(stretches(partitions, 10, cuts)) == expected


def test_a_place_that_comes_twice_cuts_once():
    """A piece that is a single row, or a table in parts whose files have the same places."""
    assert list(stretches([((A, B), 30)], 10, lambda *_: ["(1,0)", "(1,0)"])) == [
        Stretch(A, B, None, "(1,0)"),
        Stretch(A, B, "(1,0)"),
    ]


def test_a_table_without_a_feed_is_compared_with_what_the_database_has_now(spark, tmp_path):
    """By counts and checksums; a day with a changed row differs, and so does one with a row too many in the table."""
    world = shop(spark, tmp_path)
    world.launch()
    assert [c.passed for c in reconcile(world.spec, world.partitions, world.source, world.lake)] == [True] * 4
    world.execute(f"UPDATE orders SET amount = amount + 1 WHERE ordered_at >= '{DAYS[3]}Z'")
    world.execute(f"DELETE FROM orders WHERE customer = 'customer 1' AND ordered_at < '{DAYS[1]}Z'")
    found = list(reconcile(world.spec, world.partitions, world.source, world.lake))
    assert [c.passed for c in found] == [False, True, True, False]
    assert [(c.source_rows, c.table_rows) for c in found] == [(2, 3), (3, 3), (3, 3), (3, 3)]


SKEWED = (
    "INSERT INTO orders SELECT n, 'x', n, timestamptz '2024-01-01Z' + greatest(n - 9000, 0) * interval '1 second' "
    "FROM generate_series(0, 9999) n"
)


@pytest.mark.prove
def test_rows_are_read_by_no_more_connections_than_allowed(spark, tmp_path):
    """A day of which nine tenths are one instant: queries of a thousand rows, two at a time, in fetches of a hundred."""
    of = {"parallel_reads": 2, "rows_per_read": 1_000, "fetch_rows": 100}
    world = new_world(spark, tmp_path, of=of, key_columns=[])
    world.execute(SKEWED, "VACUUM ANALYZE orders")
    world.execute(f"ALTER DATABASE {world.name} SET log_statement = 'all'")
    before = fetches(world)
    with watched(world) as readers:
        assert published_keys(world.launch()) == list(DAYS)
    assert 100 <= fetches(world) - before <= 120
    assert max(readers) == 2
    assert sum(content(world.lake.path).values()) == 10_000
    last = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=999)
    assert world.lake.published()[DAYS[0]].partition.last_event_micros == int(last.timestamp() * 1_000_000)


def fetches(world: World) -> int:
    """How often a reader has fetched rows, by the server's log."""
    text = (world.server.data.parent / "server.log").read_text(errors="replace")
    return sum(("execute" in line and "rows_of_it" in line) for line in text.splitlines())


@contextmanager
def watched(world: World) -> Iterator[list[int]]:
    """Count the sessions that read rows, again and again."""
    seen, ended = [0], threading.Event()
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND query LIKE 'SELECT \"c0\"%%' AND state <> 'idle'"
    )

    def look() -> None:
        with psycopg.connect(world.server.address(), autocommit=True) as connection:
            while not ended.is_set():
                row = connection.execute(query, (world.name,)).fetchone()
                seen.append(row[0] if row else 0)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def test_a_timeout_says_whose_query_it_was():
    """Of the readers of rows, whom Spark speaks for: other settings help than where rows are counted."""
    error = Exception("org.postgresql.util.PSQLException: ERROR: canceling statement due to statement timeout")
    said = translate_spark_error(error, "bronze/orders")
    assert isinstance(said, SourceUnavailableError)
    assert "one of the connections that read rows" in str(said)
    assert "`source.rows_per_read` smaller" in str(said)


def test_lock_of_a_reader_is_no_outage():
    """Another session has locked the table: the server runs, and a retry helps."""
    error = Exception("org.postgresql.util.PSQLException: ERROR: canceling statement due to lock timeout")
    said = translate_spark_error(error, "bronze/orders")
    assert isinstance(said, SourceUnavailableError)
    assert said.retry_helps
    assert "Another session has locked the table" in said.remedy


@pytest.mark.prove
def test_readers_that_are_killed_while_rows_flow_are_begun_again(spark, tmp_path):
    """Two of them, in the middle of what they fetch: nothing is half, and nothing is there twice."""
    of = {"parallel_reads": 2, "rows_per_read": 5_000, "fetch_rows": 10}
    world = new_world(spark, tmp_path, of=of, key_columns=[])
    world.execute(SKEWED)
    killed: list[int] = []
    with killing(world, killed):
        assert published_keys(world.launch(world.partitions[:1])) == [DAYS[0]]
    assert killed
    assert content(world.lake.path) == multiset(world.rows())


@contextmanager
def killing(world: World, killed: list[int]) -> Iterator[None]:
    """End the first two sessions that are seen to fetch rows."""
    ended = threading.Event()
    query = (
        "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND query LIKE 'SELECT \"c0\"%%' "
        "AND state = 'idle in transaction' AND NOT pid = ANY(%s) LIMIT 1"
    )

    def look() -> None:
        with psycopg.connect(world.server.address(), autocommit=True) as connection:
            while not ended.is_set() and len(killed) < 2:
                killed.extend(row[0] for row in connection.execute(query, (world.name, killed)).fetchall())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
