"""A Spark Connect server on this machine, kept warm: each launch borrows a session of it instead of starting a JVM.

    python -m backfill_assets.spark.connect_server -- dg dev

starts the server with this project's settings, runs the command with SPARK_REMOTE set, and ends the server when the
command ends. However this process ends, the server ends with it: its JVM reads our pipe, and stops when that closes.

    python -m backfill_assets.spark.connect_server --inside -- backfill-assets live bronze/orders

runs a command whose own Spark is the server: a stream and the launches beside it share one JVM.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from backfill_assets.errors import BackfillAssetsError, SparkUnavailableError
from backfill_assets.spark.connect import CONNECT_PORT
from backfill_assets.spark.local_disk import MACHINE, this_machine
from backfill_assets.spark.session import classic_config, end, start_session
from backfill_assets.spark.settings import SparkSettings, settings_from_environment

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 (the name of PySpark's variable)
HOST = "localhost"
"""The one name for which PySpark sends a token without TLS."""

END_SECONDS = 30
"""How long the JVM is given to end before it is killed."""

USAGE = "Usage: python -m backfill_assets.spark.connect_server [--port N] [[--inside] -- command ...]\n"


@contextmanager
def connect_server(settings: SparkSettings, port: int = CONNECT_PORT) -> Iterator[dict[str, str]]:
    """Run a Connect server on the loopback interface; yield the environment in which processes use it.

    Nobody else on the machine may: the server asks for a token that is new each time.

    Raises:
        SparkUnavailableError: The port is taken, or Spark cannot be started.
    """
    _refuse_taken(port)
    # Nothing of ours may look like a client of another server; PySpark reads both.
    for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        os.environ.pop(name, None)
    os.environ[TOKEN] = secrets.token_urlsafe(32)  # for the JVM, which does not show it as it would an argument
    named = {"spark.app.name": "backfill_assets connect server"}
    session = start_session(classic_config(settings) | named | _serving(port))
    try:
        yield _exported(settings, port)
    finally:
        with suppress(subprocess.TimeoutExpired):  # whoever stops this process finds no JVM of it afterwards
            end(session, timeout_seconds=END_SECONDS)


def _serving(port: int) -> dict[str, str]:
    """Return the settings that make a classic session's JVM a server too."""
    return {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        MACHINE: this_machine(),
    }


def _exported(settings: SparkSettings, port: int) -> dict[str, str]:
    return {"SPARK_REMOTE": f"sc://{HOST}:{port}", TOKEN: os.environ[TOKEN], "SPARK_MASTER": settings.master}


def run_inside(command: Sequence[str], settings: SparkSettings, port: int) -> NoReturn:
    """Become a command whose own driver is the server; say first what other processes export.

    They can use it once the command has started Spark.

    Raises:
        SparkUnavailableError: The port is taken.
    """
    _refuse_taken(port)
    os.environ[TOKEN] = secrets.token_urlsafe(32)
    own = os.environ.get("SPARK_EXTRA_CONF", "").rstrip(";")
    os.environ["SPARK_EXTRA_CONF"] = ";".join(
        [*([own] if own else []), *(f"{name}={value}" for name, value in _serving(port).items())]
    )
    _say_exports(_exported(settings, port))
    os.execvp(command[0], [*command])  # noqa: S606 (what the user asked for)


def _refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise SparkUnavailableError(
                f"Port {port} of this machine is taken, so no Spark Connect server can be started there: "
                f"{error.strerror}.",
                state="Nothing was started.",
                remedy="End what listens there (`ss -ltnp` names it), or name another port with `--port`.",
            ) from error


def run_with_server(command: Sequence[str], settings: SparkSettings, port: int) -> int:
    """Run a command beside a server, or only the server if there is none; return the command's exit code."""
    asked_to_stop = threading.Event()
    child: list[subprocess.Popen[bytes]] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        asked_to_stop.set()
        if child and number != signal.SIGINT:  # Ctrl-C reaches the command by itself
            child[0].send_signal(number)

    with connect_server(settings, port) as environment:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, stop)
        if not command:
            _say(
                f"A Spark Connect server is at {environment['SPARK_REMOTE']} until this process ends. For other "
                "processes:"
            )
            _say_exports(environment)
            asked_to_stop.wait()
            return 0
        _say(
            f"A Spark Connect server is at {environment['SPARK_REMOTE']} for as long as this runs: {' '.join(command)}"
        )
        child.append(subprocess.Popen(command, env=_environment(environment)))  # noqa: S603 (what the user asked for)
        return child[0].wait()


def _environment(server: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **server}


def _say_exports(environment: Mapping[str, str]) -> None:
    _say("".join(f"  export {name}={value}\n" for name, value in environment.items()))


def _say(text: str) -> None:
    sys.stderr.write(text.rstrip("\n") + "\n")


def main(arguments: Sequence[str]) -> int:
    """Read `[--port N] [[--inside] -- command ...]` and run it."""
    ours, command = list(arguments), []
    if "--" in ours:
        at = ours.index("--")
        ours, command = ours[:at], ours[at + 1 :]
    port = CONNECT_PORT
    is_inside = bool(command) and ours[-1:] == ["--inside"]
    match ours[:-1] if is_inside else ours:
        case []:
            pass
        case ["--port", number] if number.isdigit():
            port = int(number)
        case _:
            sys.stderr.write(USAGE)
            return 2
    try:
        settings = settings_from_environment(os.environ)
        return run_inside(command, settings, port) if is_inside else run_with_server(command, settings, port)
    except BackfillAssetsError as error:
        _say(f"{type(error).__name__}: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
