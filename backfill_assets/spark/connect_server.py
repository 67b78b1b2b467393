"""A Spark Connect server on this machine, kept warm: each launch borrows a session of it instead of starting a JVM.

    python -m backfill_assets.spark.connect_server -- dg dev

starts the server with this project's settings, runs the command with SPARK_REMOTE set, and ends the server when the
command ends. However this process ends, the server ends with it: its JVM reads our pipe, and stops when that closes.
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

USAGE = "Usage: python -m backfill_assets.spark.connect_server [--port N] [-- command ...]\n"


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
    config = classic_config(settings, is_long=True) | {
        "spark.app.name": "backfill_assets connect server",
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        MACHINE: this_machine(),
    }
    session = start_session(config)
    try:
        yield {"SPARK_REMOTE": f"sc://{HOST}:{port}", TOKEN: os.environ[TOKEN], "SPARK_MASTER": settings.master}
    finally:
        with suppress(subprocess.TimeoutExpired):  # whoever stops this process finds no JVM of it afterwards
            end(session, timeout_seconds=END_SECONDS)


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
            _say("".join(f"  export {name}={value}\n" for name, value in environment.items()))
            asked_to_stop.wait()
            return 0
        _say(
            f"A Spark Connect server is at {environment['SPARK_REMOTE']} for as long as this runs: {' '.join(command)}"
        )
        child.append(subprocess.Popen(command, env=_environment(environment)))  # noqa: S603 (what the user asked for)
        return child[0].wait()


def _environment(server: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **server}


def _say(text: str) -> None:
    sys.stderr.write(text.rstrip("\n") + "\n")


def main(arguments: Sequence[str]) -> int:
    """Read `[--port N] [-- command ...]` and run it."""
    ours, command = list(arguments), []
    if "--" in ours:
        at = ours.index("--")
        ours, command = ours[:at], ours[at + 1 :]
    port = CONNECT_PORT
    match ours:
        case []:
            pass
        case ["--port", number] if number.isdigit():
            port = int(number)
        case _:
            sys.stderr.write(USAGE)
            return 2
    try:
        return run_with_server(command, settings_from_environment(os.environ), port)
    except BackfillAssetsError as error:
        _say(f"{type(error).__name__}: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
