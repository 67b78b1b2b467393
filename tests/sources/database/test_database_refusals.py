"""What a database does not let be read: each ends before anything is written, in words that say what to do."""

from __future__ import annotations

import os
from dataclasses import replace

import psycopg
import pytest

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import (
    BackfillAssetsError,
    ConfigurationError,
    SchemaMismatchError,
    SourceMissingError,
    SourceRefusedError,
    SourceUnavailableError,
)
from backfill_assets.sources.database.address import parts_of_address
from tests.sources.database.world import DAYS, World, new_world, shop
from tests.support.shop import content, orders_spec, published_keys


@pytest.fixture(scope="module")
def world(spark, tmp_path_factory: pytest.TempPathFactory) -> World:
    return shop(spark, tmp_path_factory.mktemp("shop"))


def refused(world: World, kind: type[BackfillAssetsError], **source: object) -> str:
    """Launch with another `source`; return what is said. Nothing is written."""
    spec = world.spec.model_copy(update={"source": world.spec.source.model_copy(update=source)})
    with pytest.raises(kind) as error:
        replace(world, spec=spec).launch()
    assert not world.lake.exists()
    return str(error.value)


def test_an_address_that_is_not_set(world, monkeypatch):
    """The message names the variable, and an example of what it holds."""
    assert "`NOWHERE`" in refused(world, ConfigurationError, connection="NOWHERE")
    monkeypatch.setenv("NOWHERE", " ")
    assert "`NOWHERE`" in refused(world, ConfigurationError, connection="NOWHERE")


def test_nobody_answers(world, monkeypatch):
    """A port that is closed, a host that is not there; the password in the address is not in the message."""
    for address in (
        "postgresql://reader:hunter2hunter2@127.0.0.1:1/shop",
        "postgresql://r:hunter2hunter2@nowhere.invalid/x",
    ):
        monkeypatch.setenv("AWAY", address)
        said = refused(world, SourceUnavailableError, connection="AWAY")
        assert "`AWAY` did not answer" in said
        assert "hunter2" not in said


@pytest.mark.parametrize(
    "address",
    [
        "hunter2hunter2 is no address",
        "postgresql://reader:p@hunter2@127.0.0.1:1/shop",
        "postgresql://reader:12/hunter2@127.0.0.1:1/shop",
        "host=a@hunter2 dbname=shop",
    ],
)
def test_what_is_not_an_address(world, monkeypatch, address):
    """Not shown either: it may hold a password, or a part of one may be taken for the host."""
    monkeypatch.setenv("ODD", address)
    said = refused(world, ConfigurationError, connection="ODD")
    assert "`ODD`" in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://",
        "postgresql:///shop?host=/tmp",
        "postgresql://reader@/shop?host=/tmp&application_name=a@b",
        "postgresql://reader:a%40b@one:1,two:2/shop?application_name=a@b",
        "postgresql://[::1]:5432/shop",
        "host=one,two port=1,2 password=a@b://c@d",
        "service=shop",
    ],
)
def test_addresses_of_every_form_are_taken(monkeypatch, address):
    """Several hosts, a socket's folder, an escaped letter, key and value, a service; nothing at all, where PGHOST and the like say it."""
    monkeypatch.setenv("ODD", address)
    assert parts_of_address("ODD", "bronze/orders") == psycopg.conninfo.conninfo_to_dict(address)


def test_a_table_that_is_not_there_or_is_none(world):
    """A name, a schema, a view."""
    assert "no table `order`" in refused(world, SourceMissingError, table="order")
    assert "no table `sales.orders`" in refused(world, SourceMissingError, table="sales.orders")
    world.execute("CREATE VIEW seen AS SELECT * FROM orders")
    assert "is not a table of its own" in refused(world, SourceRefusedError, table="seen")


def test_a_user_without_the_right_to_read(world, monkeypatch):
    """The message has the statements that would give it."""
    world.execute("DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN")
    monkeypatch.setenv("READER", world.server.address(world.name, "reader"))
    assert "GRANT SELECT ON public.orders TO reader" in refused(world, SourceRefusedError, connection="READER")


def test_a_user_with_too_many_connections(world, monkeypatch):
    """One may become free: it is no wrong user, and a launch asks again."""
    crowded = f"{world.name}_crowded"
    world.execute(f"CREATE ROLE {crowded} LOGIN CONNECTION LIMIT 0")
    monkeypatch.setenv("CROWDED", world.server.address(world.name, crowded))
    said = refused(world, SourceUnavailableError, connection="CROWDED")
    assert "too many connections" in said
    assert "Correct the user" not in said
    monkeypatch.setenv("CROWDED", world.server.address(world.name, f"{crowded}_unknown"))
    assert "Correct the user" in refused(world, SourceRefusedError, connection="CROWDED")
    two = f"postgresql://{crowded}_unknown@127.0.0.1:1,localhost:{world.server.port}/{world.name}"
    monkeypatch.setenv("CROWDED", two)
    assert "Correct" not in refused(world, SourceUnavailableError, connection="CROWDED"), "one of them is away"
    monkeypatch.setenv("CROWDED", world.server.address("unknown"))
    assert "Correct the name of the database" in refused(world, SourceRefusedError, connection="CROWDED")


@pytest.mark.prove
def test_a_user_from_whom_policies_hide_rows(spark, tmp_path, monkeypatch):
    """Some rows would be taken for all, by launches and comparisons alike: nothing is read until the user sees every row."""
    world = shop(spark, tmp_path)
    tenant = f"{world.name}_tenant"
    world.execute(
        f"CREATE ROLE {tenant} LOGIN", f"GRANT SELECT ON orders TO {tenant}",
        "ALTER TABLE orders ENABLE ROW LEVEL SECURITY", "CREATE POLICY own ON orders USING (order_id % 2 = 0)",
    )  # fmt: skip
    monkeypatch.setenv(world.variable, world.server.address(world.name, tenant))
    assert "BYPASSRLS" in refused(world, SourceRefusedError)
    world.execute(f"ALTER ROLE {tenant} BYPASSRLS")
    assert published_keys(world.launch()) == list(DAYS)
    assert sum(content(world.lake.path).values()) == len(world.rows())


@pytest.mark.prove
def test_the_least_right_is_enough(spark, tmp_path, monkeypatch):
    """USAGE on the schema and SELECT on the table: nothing else is asked for."""
    world = shop(spark, tmp_path)
    world.execute(
        "CREATE SCHEMA private", "ALTER TABLE orders SET SCHEMA private", "DROP ROLE IF EXISTS least",
        "CREATE ROLE least LOGIN", "REVOKE ALL ON SCHEMA public FROM public", "GRANT USAGE ON SCHEMA private TO least",
        "GRANT SELECT ON private.orders TO least",
    )  # fmt: skip
    monkeypatch.setenv(world.variable, world.server.address(world.name, "least"))
    spec = world.spec.model_copy(update={"source": world.spec.source.model_copy(update={"table": "private.orders"})})
    assert published_keys(replace(world, spec=spec).launch()) == list(DAYS)


def test_rows_without_an_event_time(spark, tmp_path):
    """They lie in no partition: no launch begins, unless the spec says that they are left out; then it is said how many."""
    loose = "CREATE TABLE orders (order_id bigint, customer text, amount numeric(18,2), ordered_at timestamptz)"
    world = new_world(spark, tmp_path, make=loose)
    world.execute("INSERT INTO orders VALUES (1, 'a', 1, '2024-01-01Z'), (2, 'b', 1, NULL), (3, 'c', 1, NULL)")
    assert "2 rows of `orders` lie in no partition: they have no `ordered_at` of the years 1 to 9999" in refused(
        world, SchemaMismatchError
    )
    source = world.spec.source.model_copy(update={"without_event_time": "ignored"})
    ignoring = replace(world, spec=world.spec.model_copy(update={"source": source}))
    log: list[str] = []
    ignoring.launch(log=log.append)
    assert [row[0] for row in content(world.lake.path)] == [1]
    assert any("2 rows without `ordered_at` of the years 1 to 9999 are left out" in line for line in log)
    assert any("no index of `orders` starts with `ordered_at`" in line for line in log)


@pytest.mark.prove
def test_rows_whose_event_time_is_no_instant_of_ours(spark, tmp_path):
    """They lie in no partition either, though the column may not be NULL: no launch begins while they are there."""
    world = shop(spark, tmp_path)
    world.execute(
        "ALTER TABLE orders ALTER ordered_at SET NOT NULL", "INSERT INTO orders VALUES (9, 'a', 1, '-infinity')"
    )
    assert "1 rows of `orders` lie in no partition: they have no `ordered_at` of the years" in refused(
        world, SchemaMismatchError
    )
    world.execute("DELETE FROM orders WHERE order_id = 9")
    assert published_keys(world.launch()) == list(DAYS)


@pytest.mark.prove
def test_a_table_that_changes_its_columns(spark, tmp_path):
    """A column that is dropped or renamed is named, and nothing changes; one that gets wider than the spec too; a new one is left out."""
    world = shop(spark, tmp_path)
    world.launch()
    before = content(world.lake.path)
    for change, back, what in (
        ("RENAME customer TO client", "RENAME client TO customer", "it has no column `customer`"),
        ("ALTER amount TYPE float8", "ALTER amount TYPE numeric", "`amount` is `double precision`"),
    ):
        world.execute(f"ALTER TABLE orders {change}")
        with pytest.raises(SchemaMismatchError, match=what):
            world.launch()
        world.execute(f"ALTER TABLE orders {back}")
        assert content(world.lake.path) == before
    world.execute("ALTER TABLE orders ADD note text DEFAULT 'x'")
    log: list[str] = []
    world.launch(log=log.append)
    assert any("['note'], which the spec does not name" in line for line in log)
    assert content(world.lake.path) == before


def test_an_address_has_no_place_in_a_spec():
    """A file that others read holds the name of a variable; what is written there instead is not shown."""
    with pytest.raises(ValueError, match="name the environment variable") as error:
        orders_spec(source={"kind": "jdbc", "connection": "postgresql://me:hunter2hunter2@host/shop", "table": "t"})
    assert "hunter2" not in str(error.value)


def test_where_the_database_is_does_not_make_rows_others():
    """The address, the replica, and how fast it is read are no part of what the rows are; the table is."""

    def rows_of(**source: object) -> TableSpec:
        return orders_spec(source={"kind": "jdbc", "connection": "A", "table": "t", **source})

    same = rows_of().source.for_rows()
    assert same == rows_of(connection="B", replica="C", parallel_reads=9, complete_until="2025-01-01").source.for_rows()
    assert same != rows_of(table="u").source.for_rows()
    assert same != rows_of(timestamps_without_zone="UTC").source.for_rows()


def test_no_password_comes_out(spark, tmp_path, monkeypatch, capfd):
    """A server that asks for one: it is in no log, no error, no receipt, no process's arguments, and the launch works."""
    world = shop(spark, tmp_path)
    canary = "canary-9f3b7c21-pass"
    hba = world.server.data / "pg_hba.conf"
    before = hba.read_text()
    world.execute(
        f"CREATE ROLE \"{world.name}\" LOGIN PASSWORD '{canary}'", f'GRANT SELECT ON orders TO "{world.name}"'
    )
    hba.write_text(f"host all {world.name} 127.0.0.1/32 scram-sha-256\n{before}")
    world.execute("SELECT pg_reload_conf()")
    log: list[str] = []
    try:
        wrong = f"postgresql://{world.name}:{canary}x@127.0.0.1:{world.server.port}/{world.name}"
        monkeypatch.setenv(world.variable, wrong)
        said = refused(world, SourceRefusedError)
        assert "Correct the password" in said
        monkeypatch.setenv(world.variable, wrong.replace(f"{canary}x", canary))
        assert published_keys(world.launch(log=log.append)) == list(DAYS)
        world.execute("ALTER TABLE orders ALTER amount TYPE text")
        with pytest.raises(SchemaMismatchError) as misfit:
            world.launch()
        said += str(misfit.value)
    finally:
        hba.write_text(before)
        world.execute("SELECT pg_reload_conf()")
    said += "".join(log) + "".join(capfd.readouterr())
    said += "".join(file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file())
    for process in os.listdir("/proc"):  # noqa: PTH208 (processes end while they are listed)
        if process.isdigit():
            try:
                with open(f"/proc/{process}/cmdline", "rb") as arguments:  # noqa: PTH123 (bytes, and it may end meanwhile)
                    said += arguments.read().decode(errors="replace")
            except OSError:
                continue
    assert canary not in said
