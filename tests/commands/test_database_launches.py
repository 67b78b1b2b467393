"""Kinds of backfills of a database's table: what each reads at the server, and what it leaves as it was."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.core.spec.changes import ChangeFeed
from backfill_assets.runs.resources import Lakehouse
from tests.commands.places import Place, copied, new_place
from tests.support import postgres
from tests.support.launching import ORDERS, TOTALS
from tests.support.shop import multiset, orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAYS = [f"2024-01-0{n}" for n in range(1, 5)]
MAKE = f"{postgres.ORDERS} ALTER TABLE orders ADD updated_at timestamptz NOT NULL DEFAULT '2024-02-01Z';"


@dataclass
class Shop:
    """A database with the orders of four days, published; nothing has been made of them yet."""

    place: Place
    name: str

    def execute(self, *statements: str) -> None:
        with postgres.shared_server().connected(self.name) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def rows(self) -> Counter[tuple[Any, ...]]:
        with postgres.shared_server().connected(self.name) as connection:
            return multiset(postgres.rows_of(connection))

    def ask(self, *words: str, code: int = 0) -> Any:
        result = self.place.run(*words, "--json")
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    def plan(self, *words: str) -> tuple[dict[str, Any], list[str]]:
        """Make a plan; return it, and the partitions that it is about."""
        file = self.place.home / "plan.json"
        made = self.ask("plan", ORDERS, *words, "-o", str(file))
        return made, [one["partition"] for one in made["partitions"]]

    def apply(self, code: int = 0) -> Any:
        return self.ask("apply", str(self.place.home / "plan.json"), code=code)

    @contextmanager
    def counted(self) -> Iterator[dict[str, int]]:
        """Count the rows that the server reads of the table inside the block, and the sessions that ask it anything at all."""
        found: dict[str, int] = {}
        rows, sessions = self._rows_read(), self._sessions()
        yield found
        found["sessions"] = self._sessions() - sessions
        found["rows"] = self._rows_read() - rows

    def _sessions(self) -> int:
        """How many there were, once all have ended; this one is in another database."""
        with postgres.shared_server().connected() as connection:
            while connection.execute("SELECT FROM pg_stat_activity WHERE datname = %s", (self.name,)).rowcount:
                pass
            counted = "SELECT sessions FROM pg_stat_database WHERE datname = %s"
            (row,) = connection.execute(counted, (self.name,))
            return int(row[0])

    def _rows_read(self) -> int:
        with postgres.shared_server().connected(self.name) as connection:
            (row,) = connection.execute(
                "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables"
            )
            return int(row[0])


@pytest.fixture(scope="module")
def at_first(tmp_path_factory: pytest.TempPathFactory, spark: object) -> tuple[Shop, str]:
    """The shop, and the variable that holds the address of its database."""
    name, variable = postgres.new_database()
    source = {"kind": "jdbc", "connection": variable, "table": "orders", "modified_at": "updated_at"}
    source["complete_until"] = "2024-01-05"
    made = Shop(new_place(tmp_path_factory.mktemp("shop"), source=source), name)
    made.execute(MAKE, "ALTER DATABASE " + name + " SET enable_seqscan = off")
    with postgres.shared_server().connected(name) as connection:
        postgres.insert(connection, [row for day in DAYS for row in orders(day, 50)])
    made.execute("ANALYZE orders")
    assert made.place.lake.launch(DAYS[0], DAYS[-1]).succeeded
    assert made.place.lake.content() == made.rows()
    return made, variable


@pytest.fixture
def shop(at_first: tuple[Shop, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A shop like it, with a database and a lakehouse of its own."""
    template, variable = at_first
    name, _ = postgres.new_database()
    monkeypatch.setenv(variable, postgres.shared_server().new_database(name, like=template.name))
    made = Shop(copied(template.place, tmp_path), name)
    made.execute(f"ALTER DATABASE {name} SET enable_seqscan = off")
    return made


@pytest.mark.prove
def test_what_a_feed_alone_brings_is_not_taken_back(shop):
    """A refresh would make it again, and no launch may: nothing is put back that would not stay."""
    lake, feed = shop.place.lake, ChangeFeed(capture="shop", backfill="excluded")
    (launched,), before = lake.instance.get_runs(), lake.content()
    followed = build_lakehouse_table(lake.spec.model_copy(update={"changes": feed}))
    definitions = lakehouse_definitions(followed, lakehouse=Lakehouse(root=str(lake.root)))
    told = shop.place.run("undo", launched.run_id, definitions=definitions)
    assert (told.exit_code, lake.content()) == (2, before)
    assert "which says `backfill: excluded`: what its feed has brought would be folded in again" in told.stderr


def test_a_range_reads_its_own_rows_and_the_table_is_never_dropped(shop):
    """Incremental: one day of four is read again; the others keep their files, and no version is without rows."""
    before = shop.place.lake.files()
    shop.execute("UPDATE orders SET amount = 7 WHERE ordered_at < '2024-01-02Z'")
    with shop.counted() as read:
        assert shop.place.lake.launch(DAYS[0]).succeeded
    assert 50 <= read["rows"] <= 5 * 50, "a fingerprint, a count, the rows, and a fingerprint again: of one day"
    assert read["sessions"] > 0
    after = shop.place.lake.files()
    assert {day for day in after if after[day] != before[day]} == {DAYS[0]}
    assert shop.place.lake.content() == shop.rows()


def test_what_is_made_of_it_is_made_again_without_the_database(shop):
    """Downstream only: nothing is asked at the server, not even its catalog."""
    with shop.counted() as read:
        assert shop.place.lake.launch(DAYS[0], DAYS[-1], tables=(TOTALS,)).succeeded
    assert read == {"rows": 0, "sessions": 0}


@pytest.mark.prove
def test_only_what_was_modified_is_launched(shop):
    """The plan says what it assumes, and how much of it was looked at."""
    shop.execute(
        "UPDATE orders SET amount = 7, updated_at = '2024-03-05Z' WHERE order_id % 100 = 3 AND ordered_at > '2024-01-03Z'"
    )
    made, named = shop.plan("--modified-since", "2024-03-01T00:00:00Z")
    assert named == DAYS[2:]
    assert "2 rows in 2 partitions were modified since" in " ".join(made["remarks"])
    assert "no row went from one partition to another: it would be in both" in " ".join(made["remarks"])
    assert "Held against 2 of the other partitions" in " ".join(made["remarks"])
    shop.apply()
    assert shop.place.lake.content() == shop.rows()


@pytest.mark.prove
def test_local_times_of_nowhere_say_nothing(shop):
    """A column without a zone is taken for no zone's: the spec has to say which; nothing is planned."""
    shop.execute("ALTER TABLE orders ALTER updated_at TYPE timestamp")
    result = shop.place.run("plan", ORDERS, "--modified-since", "2024-03-01T00:00:00Z")
    assert result.exit_code == 2
    assert "`updated_at` of `orders` is a local time" in result.output
    assert "source.timestamps_without_zone" in result.output


def test_times_that_do_not_tell_are_found_out(shop):
    """Something was changed without setting it: the plan is not made, and names the way that finds all."""
    shop.execute(
        "DELETE FROM orders WHERE ordered_at < '2024-01-01 03:00Z'",
        "UPDATE orders SET updated_at = now() WHERE ordered_at > '2024-01-04Z'",
    )
    result = shop.place.run("plan", ORDERS, "--modified-since", "2024-03-01T00:00:00Z")
    assert result.exit_code == 2
    assert (
        f"1 of 3 partitions that it calls unchanged have changed since they were published ({DAYS[0]})" in result.output
    )
    assert "--only missing" in result.output


def test_a_range_of_keys_changes_nothing_else(shop):
    """Of two rows that were changed in a day one was named: the day is refused, and stays; the other day is published."""
    first = shop.place.lake.content()
    keys = [min(row["order_id"] for row in orders(day)) for day in DAYS]
    shop.execute(f"UPDATE orders SET amount = 7 WHERE order_id IN ({keys[0]}, {keys[0] + 49}, {keys[2]})")
    made, named = shop.plan("--keys", f"{keys[0]}...{keys[0] + 9}")
    assert named == [DAYS[0]]
    assert made["config"]["only_keys"] == f"{keys[0]}...{keys[0] + 9}"
    failed = shop.apply(code=1)
    assert "other_keys_are_unchanged" in failed["runs"][0]["failure"] or "refused" in failed["runs"][0]["failure"]
    assert shop.place.lake.content() == first
    _, named = shop.plan("--keys", f"{keys[0]}...{keys[0] + 49}")
    assert named == [DAYS[0]]
    shop.apply()
    now = shop.place.lake.content()
    assert now != shop.rows(), "the other day was not launched"
    assert sum((shop.rows() - now).values()) == 1


def test_a_reset_reads_all_and_makes_what_is_made_of_it(shop):
    """Four days, each once, and then the totals; without its name nothing is written."""
    shop.execute("UPDATE orders SET amount = 7 WHERE order_id % 100 = 3")
    before = shop.place.lake.content()
    refused = shop.place.run("reset", ORDERS)
    assert refused.exit_code == 2
    assert f"backfill-assets reset {ORDERS} --yes {ORDERS}" in refused.output
    assert shop.place.lake.content() == before
    done = shop.ask("reset", ORDERS, "--yes", ORDERS)
    assert [(one["table"], [run["range"] for run in one["runs"]]) for one in done["tables"]] == [
        (ORDERS, [[DAYS[0], DAYS[-1]]]),
        (TOTALS, [[DAYS[0], DAYS[-1]]]),
    ]
    assert shop.place.lake.content() == shop.rows()


def test_a_reset_keeps_what_only_the_table_has(shop):
    """The source has lost rows: their day is refused and stays, unless losses are allowed."""
    shop.execute("DELETE FROM orders WHERE ordered_at > '2024-01-04 00:30Z' AND ordered_at < '2024-01-04 01:30Z'")
    before = shop.place.lake.content()
    done = shop.ask("reset", ORDERS, "--yes", ORDERS, code=1)
    assert len(done["tables"]) == 1, "what is made of it was not begun"
    assert shop.place.lake.content() == before
    shop.ask("reset", ORDERS, "--yes", ORDERS, "--allow-losses")
    assert shop.place.lake.content() == shop.rows()


def test_sizes_are_the_catalogs(shop):
    """No row is read; the time is learned from what was published, or from a speed that is given."""
    with shop.counted() as read:
        learned = shop.ask("estimate")["tables"]
        given = shop.ask("estimate", ORDERS, "--gb-per-hour", "1...5")["tables"]
    assert read["rows"] == 0
    (one,) = learned
    assert (one["table"], one["rows"], one["learned_from"]) == (ORDERS, 200, ORDERS)
    with postgres.shared_server().connected(shop.name) as connection:
        (sizes,) = connection.execute("SELECT pg_table_size('orders'), pg_indexes_size('orders')")
    assert (one["data_bytes"], one["index_bytes"]) == sizes
    assert given[0]["seconds"] == [round(sizes[0] / 5e9 * 3600, 1), round(sizes[0] / 1e9 * 3600, 1)]
    shown = shop.place.run("estimate", "--gb-per-hour", "1...5")
    assert "data MiB" in shown.output
    wrong = shop.place.run("estimate", ORDERS, "--gb-per-hour", "5...1")
    assert wrong.exit_code == 2
    assert "`5...1` says no speed" in wrong.output
    other = shop.place.run("estimate", TOTALS)
    assert "is no database" in other.output
