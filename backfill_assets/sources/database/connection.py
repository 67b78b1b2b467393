"""Connections to a PostgreSQL database: its address from the environment, what its refusals mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from backfill_assets.core.postgres.questions import (
    LOOK_FOR_THE_CLIENT,
    TRY_LOCK,
    UNLOCK,
    VERSION_AND_STANDBY,
    import_snapshot,
)
from backfill_assets.core.words import shortened
from backfill_assets.errors import LANDED_STAYS, ConfigurationError, SourceRefusedError, SourceUnavailableError
from backfill_assets.sources.database.address import parts_of_address, psycopg_for
from backfill_assets.sources.database.lock_waits import LockWait
from backfill_assets.spark.jars import POSTGRES_DRIVER_CLASS

if TYPE_CHECKING:
    import psycopg

CONNECT_TIMEOUT_SECONDS = 15
LOCK_WAIT_SECONDS = 60.0
"""A statement that waits longer for a lock gives up. It holds up nobody meanwhile but an `ALTER TABLE`."""

_WAIT_NOTICED_AFTER_SECONDS = 3.0
OLDEST = 140_000
"""Version 14: before it, microseconds since 1970 came as floating point numbers."""

_PATIENCE = {
    "tcp_keepalives_idle": 30,
    "tcp_keepalives_interval": 10,
    "tcp_keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""After a minute without a sign of life each side takes the other for gone, and what a lost connection held is free."""

_OWN_PATIENCE = {name.replace("tcp_keepalives", "keepalives"): value for name, value in _PATIENCE.items()}
"""The same, as this side's library calls it."""

_SPARKS_OWN = ("sslmode", "sslrootcert", "sslcert", "sslkey")
"""Parts of an address that the driver for Java takes by the same names."""

_TURN = "backfill_assets: history"
"""Name of the lock of one database that whoever reads history without being asked holds."""

STATE = "This chunk was not written; what was published before stays."


@dataclass(frozen=True, slots=True)
class Database:
    """A database that an environment variable names.

    Args:
        variable: The variable's name. What it holds is shown to nobody.
        about: Key of the table that is filled, for messages.
        statement_timeout_seconds: After so long the server ends a query; None: never.
        is_capture: Whether slots and publications are made and moved; otherwise it can only be read.
        lock_wait_seconds: After so long the server ends a statement that waits for a lock.
        log: Called with one sentence when a statement waits for a lock that others hold.
    """

    variable: str
    about: str
    statement_timeout_seconds: float | None = None
    is_capture: bool = False
    lock_wait_seconds: float = LOCK_WAIT_SECONDS
    log: Callable[[str], None] = field(default=lambda _: None, compare=False)

    @classmethod
    def of_a_capture(cls, variable: str, name: str, log: Callable[[str], None] = lambda _: None) -> Database:
        """Return the database whose changes a capture of this name takes."""
        return cls(variable, f"capture {name}", is_capture=True, log=log)

    @contextmanager
    def connected(self, *, is_replica: bool = False) -> Iterator[psycopg.Connection]:
        """Open a connection, outside of any transaction, and close it at the end of the block.

        Args:
            is_replica: Whether a standby is expected.

        Raises:
            AddressMissingError: There is no such variable.
            ConfigurationError: What it holds is no address, or psycopg is missing.
            SourceUnavailableError: Nobody answered.
            SourceRefusedError: The user, the password or the database is not known there.
        """
        connection = self.connect(is_replica=is_replica)
        try:
            yield connection
        finally:
            connection.close()

    def connect(self, *, is_replica: bool = False) -> psycopg.Connection:
        """Open a connection as `connected` does; whoever calls closes it."""
        psycopg = psycopg_for(self.about)
        with self.failures_translated():
            connection = self._session()
        try:
            if self.is_capture:
                with suppress(psycopg.Error):  # a server's system may have no way to look
                    connection.execute(LOOK_FOR_THE_CLIENT)
            self._refuse_other_servers(connection, is_replica=is_replica)
        except BaseException:
            connection.close()
            raise
        return connection

    def _session(self) -> psycopg.Connection:
        psycopg = psycopg_for(self.about)
        given = parts_of_address(self.variable, self.about)
        own = {} if given.get("service") else _OWN_PATIENCE  # what a service's file says would count after it
        return psycopg.connect(
            psycopg.conninfo.make_conninfo(**{**own, **given}),
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            application_name="backfill_assets",
            client_encoding="UTF8",
            options=self._options(),
        )

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Say whether this is the only one to read the past of a table of the database now, until the block ends.

        Of whoever is killed it is free again. Launches of people do not ask: they have Dagster's pools.
        """
        with self.connected() as connection:
            has_turn: bool = self.ask(connection, TRY_LOCK, (_TURN,))[0][0]
            yield has_turn
            if has_turn:  # at once: the server notices a moment later only that the session has ended
                with suppress(SourceUnavailableError):  # of a session that is lost it is free
                    self.ask(connection, UNLOCK, (_TURN,))

    def _options(self) -> str:
        timeout = int(1000 * (self.statement_timeout_seconds or 0))
        read_only = "off" if self.is_capture else "on"
        return (
            "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=iso_8601 -c bytea_output=hex -c extra_float_digits=1 "
            f"-c default_transaction_read_only={read_only} -c row_security=off "  # what may not be seen is an error
            f"-c lock_timeout={int(1000 * self.lock_wait_seconds)} -c idle_in_transaction_session_timeout=0 "
            + " ".join(f"-c {name}={value}" for name, value in {"statement_timeout": timeout, **_PATIENCE}.items())
        )

    def _refuse_other_servers(self, connection: psycopg.Connection, *, is_replica: bool) -> None:
        """Refuse a server that is too old, or a standby where the primary should be."""
        version, is_standby = self.ask(connection, VERSION_AND_STANDBY)[0]
        if version < OLDEST:
            raise SourceRefusedError(
                f"`{self.about}`: the server of `{self.variable}` is PostgreSQL {version // 10_000}, and 14 is the "
                "oldest that is read.",
                state="Nothing was read.",
                remedy="Older servers can say instants only as floating point numbers. Upgrade it, or export files.",
            )
        if is_standby and not is_replica:
            raise SourceRefusedError(
                f"`{self.about}`: the server of `{self.variable}` is a standby.",
                state="Nothing was read.",
                remedy="`source.connection` names the primary, and `source.replica` a standby that rows are read from: "
                "which transactions were still open only the primary knows.",
            )

    def ask(self, connection: psycopg.Connection, query: str, values: Any = None) -> list[tuple[Any, ...]]:
        """Return the rows of a query.

        Raises:
            SourceUnavailableError: The connection was lost, or the server ended the query.
            SourceRefusedError: The server refused it.
        """
        return self.run(connection, query, values).fetchall()

    def run(self, connection: psycopg.Connection, statement: str, values: Any = None) -> psycopg.Cursor:
        """Run a statement. Where it waits for a lock, say who holds that: at once, and when it has waited too long.

        Raises:
            SourceUnavailableError: The connection was lost, or the server ended the statement.
            SourceRefusedError: The server refused it.
        """
        notice = min(_WAIT_NOTICED_AFTER_SECONDS, self.lock_wait_seconds / 4)
        with (
            LockWait(connection, self._session, notice, self._said) as wait,
            self.failures_translated(wait),
        ):
            return connection.execute(statement.encode(), values)  # bytes: text that `core` has quoted

    def _said(self, what: str) -> None:
        self.log(f"`{self.about}`, database of `{self.variable}`: {what}")

    @contextmanager
    def failures_translated(self, wait: LockWait | None = None) -> Iterator[None]:
        """Raise this project's errors for those of psycopg, without the address and the password in them."""
        psycopg = psycopg_for(self.about)
        try:
            yield
        except psycopg.Error as error:
            raise _in_words(str(error), error.sqlstate, self, wait) from None

    def for_spark(self, connection: psycopg.Connection, snapshot: str, fetch_rows: int) -> tuple[str, dict[str, str]]:
        """Return the address and the settings by which Spark's readers see a snapshot that a connection holds.

        Raises:
            ConfigurationError: The address is a socket's, which the driver for Java cannot reach.
        """
        info = connection.info
        if info.host.startswith("/"):
            raise ConfigurationError(
                f"`{self.about}`: the address in `{self.variable}` names no host, and Spark's readers cannot use a "
                "socket.",
                state="Nothing was read.",
                remedy="Write the host into it: `postgresql://reader@127.0.0.1:5432/shop`.",
            )
        given = info.get_parameters()
        settings = {
            "driver": POSTGRES_DRIVER_CLASS,
            "user": info.user,
            "fetchsize": str(fetch_rows),
            "sessionInitStatement": import_snapshot(snapshot, self.statement_timeout_seconds),
            "ApplicationName": "backfill_assets",
            "tcpKeepAlive": "true",
            **{name: given[name] for name in _SPARKS_OWN if given.get(name)},
            **({"password": info.password} if info.password else {}),
        }
        host = f"[{info.host}]" if ":" in info.host else info.host
        return f"jdbc:postgresql://{host}:{info.port}/{quote(info.dbname, safe='')}", settings


_OUTAGE = re.compile(r"08\w\w\w|57P0\d|53\w\w\w|40001|55006|25P0\d")
"""Connections that fail, servers that stop or are full, reads that a standby ends, slots in use."""

_LOCK, _ENDED = "55P03", "57014"
"""A lock that was waited for too long; a statement that took too long, or that somebody ended."""

_REMEDIES: Mapping[str, str] = {
    "57014": "It was the connection that counts rows and asks the catalog: its query took longer than "
    "`source.statement_timeout_seconds`, or somebody ended it. Make that longer, or chunks smaller; an index on the "
    "event time spares reading the whole table.",
    "22021": "A text is not UTF-8, which a database of encoding `SQL_ASCII` does not check: correct its row. A capture "
    "then begins anew: drop its slot, move its files away, start it again, and launch all partitions again.",
    "40001": "A standby ends queries that are in the way of what it replays: set `max_standby_streaming_delay` or "
    "`hot_standby_feedback` there, or make chunks smaller.",
    "42501": "Give the user the right to read: `GRANT USAGE ON SCHEMA ...` and `GRANT SELECT ON ... TO ...`; where "
    "policies hide rows from it, `ALTER ROLE ... BYPASSRLS`.",
    "28P01": "Correct the password, in the address, in `PGPASSWORD` or in `~/.pgpass`.",
    "28000": "Correct the user in the address, or let it in with the server's `pg_hba.conf`.",
    "3D000": "Correct the name of the database at the end of the address.",
    "42P01": "Correct `source.table`.",
}
_OF_READS = ("57014", "40001")
"""What is to be done about these is said of launches."""

_SECRETS = re.compile(r"(postgres(?:ql)?://)[^\s/]*@|password=\S+")


def _in_words(
    message: str, sqlstate: str | None, database: Database, wait: LockWait | None = None
) -> SourceUnavailableError | SourceRefusedError:
    """Return what a failure of the database means.

    | SQLSTATE | what it is | can a retry help |
    |---|---|---|
    | 55P03 | others hold a lock | yes |
    | 57014 | the server ended a statement, perhaps while others held a lock | yes |
    | 08, 57P0x, 53, 40001, 55006, 25P0x | an outage: nobody answers, or the session has ended | yes |
    | others | the server refuses a statement | no |

    Args:
        sqlstate: PostgreSQL's code; None where no server answered.
        wait: Knows who holds what the statement waited for.
    """
    state, again = (LANDED_STAYS, "start the capture") if database.is_capture else (STATE, "launch")
    said = shortened(_SECRETS.sub(r"\1(hidden)@", " ".join(message.split())), 400).rstrip(".")
    if sqlstate is None:
        sqlstate = _before_a_session(message)
    remedy = None if database.is_capture and sqlstate in _OF_READS else _REMEDIES.get(sqlstate)
    where, holders = f"`{database.about}`: the database of `{database.variable}`", wait.holders if wait else []
    if sqlstate == _LOCK or (sqlstate == _ENDED and holders):
        return SourceUnavailableError(
            f"{where} gave up a statement that waited for a lock: {said}. "
            + (f"{' and '.join(holders)} held it." if holders else "It is not known who held it."),
            state=state,
            remedy=f"See that this transaction ends, and {again} again."
            + "".join(f" {way}." for way in (wait.remedies if wait else [])),
            sqlstate=sqlstate,
            holders=holders,
        )
    if sqlstate == _ENDED or _OUTAGE.fullmatch(sqlstate):
        what = "ended a statement" if sqlstate == _ENDED else "did not answer, or ended the session"
        return SourceUnavailableError(
            f"{where} {what}: {said}.",
            state=state,
            remedy=remedy or f"See that the server runs and can be reached, and {again} again.",
            sqlstate=sqlstate,
        )
    return SourceRefusedError(
        f"{where} refused: {said}.",
        state=state,
        remedy=remedy or f"Correct what it says, and {again} again.",
        sqlstate=sqlstate,
        said=said,
    )


def _before_a_session(message: str) -> str:
    """Return the code of what is said without one. Of several hosts each says something; one may be away."""
    hosts = set(re.findall(r"- host: '([^']*)', port: '([^']*)'", message))  # as psycopg lists its attempts
    if len(hosts) > 1 and re.search(r"Connection refused|timeout expired|closed the connection", message):
        return "08006"
    return next((code for words, code in _BEFORE_A_SESSION.items() if re.search(words, message)), "08006")


_BEFORE_A_SESSION = {
    r"the database system is ": "57P03",
    r"too many connections|remaining connection slots are reserved": "53300",
    r"password authentication failed|no password supplied": "28P01",
    r"no pg_hba\.conf entry|authentication failed|role \".*\" (does not exist|is not permitted)": "28000",
    r"database \".*\" does not exist": "3D000",
    r"permission denied for database": "42501",
}
"""What is said before there is a session, and so without a code."""
