"""A table joins a capture that has begun: it has every change from then on, and the others need nothing."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace

import psycopg
import pytest

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.commands.capture import capture_of
from backfill_assets.commands.project import Project
from backfill_assets.errors import ChangeFeedError
from backfill_assets.lake.table import LakeTable
from backfill_assets.live.changes.events import Events
from backfill_assets.live.changes.joining import TABLES, begins_at, noted_tables, table_state
from backfill_assets.live.changes.landed import CaptureTable
from tests.live.changes.capturing import AT, Shop
from tests.live.changes.world import COLUMNS, CUSTOMERS, DAYS, World, customers_spec, new_world
from tests.support.shop import published_keys

VISITS = CUSTOMERS.replace("customers", "visits")
BOTH = [CaptureTable("public", "customers"), CaptureTable("public", "visits")]


def land_both(shop: Shop) -> None:
    both = shop.new_capture()
    both.tables = BOTH
    both.run(once=True, pause_seconds=0.02, stop=threading.Event())


@pytest.fixture
def shop(tmp_path) -> Shop:
    shop = Shop(tmp_path)
    shop.land()
    shop.execute(VISITS)
    return shop


def test_a_table_joins_when_what_was_open_has_ended(shop):
    """It is added to the publication; what an open transaction has written of it before may be in no file, so it waits for that."""
    with psycopg.connect(os.environ[shop.variable]) as slow:
        slow.execute("INSERT INTO visits VALUES (1, 'before', 1, NULL, true, %s)", (AT,))
        land_both(shop)
        assert noted_tables(shop.folder) == {"public.customers": 0}
        slow.commit()
    land_both(shop)
    begins = begins_at(shop.folder, BOTH[1])
    assert begins is not None
    assert begins in {file.end for file in shop.files}
    shop.execute(f"INSERT INTO visits VALUES (2, 'after', 1, NULL, true, '{AT}')")
    land_both(shop)
    texts = [(shop.folder / file.name).read_text() for file in shop.files if file.start >= begins]
    events = [json.loads(line) for text in texts for line in text.splitlines()]
    assert [(e["source"]["table"], e["after"]["name"]) for e in events] == [("visits", "after")]
    assert [file.start for file in shop.files][1:] == [file.end for file in shop.files][:-1]


@pytest.mark.prove
def test_events_of_each_table_are_numbered_from_one(shop, spark):
    """Also of a transaction in whose midst a table is published, of one that empties both, and after a restart."""
    with psycopg.connect(os.environ[shop.variable]) as slow:
        slow.execute("INSERT INTO visits VALUES (1, 'before', 1, NULL, true, %s)", (AT,))
        shop.execute(f"ALTER PUBLICATION {shop.capture.slot} ADD TABLE visits")
        for table, key in (("customers", 1), ("visits", 2), ("visits", 3), ("customers", 2)):
            slow.execute(f"INSERT INTO {table} VALUES (%s, 'after', 1, NULL, true, %s)".encode(), (key, AT))
        slow.execute("TRUNCATE visits, customers")
        slow.commit()
    land_both(shop)
    shop.execute(f"INSERT INTO visits VALUES (4, 'later', 1, NULL, true, '{AT}')")
    land_both(shop)
    numbers = [
        (e["source"]["table"], e["transaction"]["total_order"], e["transaction"]["data_collection_order"])
        for e in shop.events
    ]
    *long, last = numbers
    assert [number for _, number, _ in long] == list(range(1, len(long) + 1))
    for table, least in (("customers", 3), ("visits", 1)):
        found = [number for name, _, number in long if name == table]
        assert len(found) >= least
        assert found == list(range(1, len(found) + 1))
    assert last == ("visits", 1, 1)
    spec = customers_spec(shop.variable, shop.name)
    source = spec.source.model_copy(update={"table": "visits"})
    files = [shop.folder / file.name for file in shop.files if not file.is_idle]
    events = Events(spark, spec, source, ())
    assert events.without_wrong(events.of(files), files).count() == len([n for n in numbers if n[0] == "visits"])


def test_what_began_while_a_table_was_published_is_waited_for(shop):
    """It is newer than whatever has ended, and what it had written by then is in no file."""
    with psycopg.connect(os.environ[shop.variable]) as publishes, psycopg.connect(os.environ[shop.variable]) as slow:
        publishes.execute(f"ALTER PUBLICATION {shop.capture.slot} ADD TABLE visits".encode())
        slow.execute("INSERT INTO visits VALUES (1, 'before', 1, NULL, true, %s)", (AT,))
        publishes.commit()
        land_both(shop)
        assert begins_at(shop.folder, BOTH[1]) is None
        slow.commit()
    land_both(shop)
    assert begins_at(shop.folder, BOTH[1])


def test_a_table_that_was_left_out_for_a_while_joins_again(shop):
    """What happened to it meanwhile is in no file: it begins later than it did. One that others took out is still refused."""
    land_both(shop)
    first = begins_at(shop.folder, BOTH[1])
    shop.execute(f"INSERT INTO visits VALUES (1, 'seen', 1, NULL, true, '{AT}')")
    shop.land()
    assert begins_at(shop.folder, BOTH[1]) is None
    assert [table_state(shop.folder, table).has_table for table in BOTH] == [True, False]
    assert table_state(shop.folder, BOTH[1]).landed_at is None, "nobody knows"
    land_both(shop)
    assert table_state(shop.folder, BOTH[1]).landed_at
    again = begins_at(shop.folder, BOTH[1])
    assert first is not None
    assert again is not None
    assert again > first
    shop.execute(f"ALTER PUBLICATION {shop.capture.slot} DROP TABLE visits")
    with pytest.raises(ChangeFeedError, match="`public.visits` is not in the publication"):
        land_both(shop)


@pytest.mark.prove
@pytest.mark.parametrize(
    ("statements", "is_anew"),
    [
        (["ALTER TABLE visits ALTER balance TYPE numeric(18,2) USING balance * 100"], True),
        (["ALTER TABLE visits DROP COLUMN note", "ALTER TABLE visits ADD COLUMN note text DEFAULT 'same'"], True),
        (["ALTER TABLE visits RENAME note TO kept", "ALTER TABLE visits RENAME name TO note"], True),
        (["VACUUM FULL visits"], False),
        (["ALTER TABLE visits DROP COLUMN note"], False),
        (["ALTER TYPE mood RENAME VALUE 'good' TO 'fine'"], True),
        (["ALTER TABLE visits ADD tier text DEFAULT 'gold'"], True),
    ],
)
def test_a_table_whose_rows_get_other_values_without_a_change_joins_again(shop, statements, is_anew):
    """No event tells of what `ALTER TABLE` writes: whoever has read so far has a hole before it. The other table goes on."""
    shop.execute(f"INSERT INTO visits VALUES (1, 'seen', 1, NULL, true, '{AT}')")
    shop.execute(
        "ALTER TABLE visits ADD since int DEFAULT 5",  # with no row written: `VACUUM FULL` does that
        "CREATE TYPE mood AS ENUM ('good', 'bad')",
        "ALTER TABLE visits ADD feels mood",
    )
    land_both(shop)
    begins, end, said = begins_at(shop.folder, BOTH[1]), shop.files[-1].end, list[str]()
    both = shop.new_capture(log=said.append)
    both.tables = [BOTH[0], replace(BOTH[1], optional=frozenset({"tier"}))]
    shop.execute(*statements, f"INSERT INTO customers VALUES (1, 'a', 1, NULL, true, '{AT}')")
    both.run(once=True, pause_seconds=0.02, stop=threading.Event())
    land_both(shop)
    again = begins_at(shop.folder, BOTH[1])
    assert begins is not None
    assert again is not None
    assert again > end if is_anew else again == begins, said
    assert any("`public.visits` was altered" in text for text in said) == is_anew
    assert begins_at(shop.folder, BOTH[0]) == 0


@pytest.fixture
def world(spark, tmp_path) -> World:
    """Customers are launched; visits are in the database, and in no capture."""
    made = new_world(spark, tmp_path)
    made.land()
    assert published_keys(made.launch()) == list(DAYS)
    made.execute(VISITS, "INSERT INTO visits SELECT * FROM customers")
    return made


def test_only_the_table_that_joins_is_loaded(world):
    """The others go on where they were. The new one loads its history by itself, and follows."""
    spec = customers_spec(world.spec.source.connection, world.name)
    changes = spec.changes.model_copy(update={"backfill": "automatic"})
    spec = spec.model_copy(
        update={"changes": changes, "source": spec.source.model_copy(update={"table": "visits"}), "start": spec.start}
    )
    lake = LakeTable(world.spark, spec, f"{world.lake.path}_visits")
    visits = replace(world, spec=spec, lake=lake)
    assert visits.source.reader.read() is None, "the files have nothing of it, and are not taken for its feed"
    world.capture.tables = BOTH
    refresh = visits.refresh()
    refresh.source.now = refresh.now = lambda: world.spec.grid.partition(DAYS[-1]).window.end_utc
    with world.capturing():
        while not (done := refresh.once()).launched:  # until it has joined, and a file behind that has landed
            time.sleep(0.05)
        assert set(published_keys(done.outcomes)) >= set(DAYS)
    world.execute("UPDATE visits SET balance = 5 WHERE id = 1", "UPDATE customers SET balance = 6 WHERE id = 1")
    world.land()
    assert published_keys(refresh.once().outcomes) == [DAYS[0]]
    before = world.lake.version()
    assert published_keys(world.refresh().once().outcomes) == [DAYS[0]]
    assert world.lake.version() == before + 1
    assert world.content() == world.rows()
    assert visits.content() == world.rows("visits")


def test_files_that_others_land_have_every_table_from_the_beginning(tmp_path):
    """Who lands them notes nothing."""
    assert begins_at(tmp_path, BOTH[1]) == 0
    (tmp_path / TABLES).write_text('{"public.customers": 7}')
    assert [begins_at(tmp_path, table) for table in BOTH] == [7, None]


def test_a_capture_knows_which_columns_are_optional(monkeypatch):
    """Of any table of the lakehouse that follows the same one of the database."""
    monkeypatch.setenv("SHOP_DATABASE", "postgresql://nobody@127.0.0.1:1/shop")
    optional = {name: {"type": kind, "optional": True} for name, kind in (("tier", "string"), ("rank", "int"))}
    specs = [
        customers_spec("SHOP_DATABASE", "shop", key=f"bronze/{name}", columns={**COLUMNS, name: kind})
        for name, kind in optional.items()
    ]
    definitions = lakehouse_definitions(*map(build_lakehouse_table, specs))
    with Project("shop.defs", definitions) as project:
        (table,) = capture_of(project, "shop", print).tables
    assert (table, table.optional) == (BOTH[0], frozenset({"tier", "rank"}))
