"""A session of a Spark Connect server, for a process that starts no JVM."""

from __future__ import annotations

import logging
import re
import socket
from typing import Any

from backfill_assets.errors import NOTHING_WRITTEN, SparkUnavailableError
from backfill_assets.spark.redaction import SHORTEST_SECRET, is_secret, redacted, secrets_in
from backfill_assets.spark.settings import (
    CLASS_PATH,
    JARS,
    JAVA_OPTIONS,
    SESSION_SETTINGS,
    SPARK_VERSION,
    SparkSettings,
)

CONNECT_TIMEOUT_SECONDS = 10.0
CONNECT_PORT = 15002


CONNECT_SETTINGS = {"spark.sql.pyspark.jvmStacktrace.enabled": "true"}
"""The cause of a failure is in the trace, as in a classic session."""

RETRIES: dict[str, Any] = {"max_retries": 6, "max_backoff": 5_000}
"""A server that is gone is given up after some 15 seconds, not after ten minutes."""


def connect(settings: SparkSettings) -> Any:
    """Return a session of a Spark Connect server, with this project's settings.

    Raises:
        SparkUnavailableError: The server does not answer, or was started with settings that a session cannot change.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    _look_for(settings.remote or "")
    try:
        import delta.connect  # noqa: F401 (tells PySpark which conflicts there are)
        from pyspark.sql.connect.client.retries import DefaultPolicy

        session = SparkSession.builder.remote(settings.remote or "").getOrCreate()
        session.client.set_retry_policies([DefaultPolicy(**RETRIES)])  # type: ignore[attr-defined] (of Connect alone)
        for name, value in {**SESSION_SETTINGS, **CONNECT_SETTINGS}.items():
            session.conf.set(name, value)
        wrong = [problem for name, value in settings.extra.items() if (problem := _not_set(session, name, value))]
    except ImportError as error:
        raise SparkUnavailableError(
            f"Spark Connect needs packages that are not installed: {error}",
            state=NOTHING_WRITTEN,
            remedy=f"pip install 'pyspark[connect]=={SPARK_VERSION}', or unset `SPARK_REMOTE` to run Spark in this "
            "process.",
        ) from error
    except PySparkException as error:
        raise SparkUnavailableError(
            f"The Spark Connect server `{shown_address(settings.remote)}` does not answer: "
            f"{redacted(str(error), [*_parameters(settings.remote), *secrets_in(settings.extra)])}",
            state=NOTHING_WRITTEN,
            remedy="Start it, or unset `SPARK_REMOTE` to run Spark in this process.",
        ) from None  # its own words may have the address with all that follows it
    if wrong:
        raise SparkUnavailableError(
            f"The Spark Connect server `{shown_address(settings.remote)}` has other settings than SPARK_EXTRA_CONF, "
            f"and a session cannot change them: {'; '.join(wrong)}.",
            state=NOTHING_WRITTEN,
            remedy="Start the server with them, or take them out of SPARK_EXTRA_CONF.",
        )
    logging.getLogger("pyspark.sql.connect.logging").setLevel(
        logging.CRITICAL
    )  # it prints errors that we expect and handle
    return session


def _not_set(session: Any, name: str, value: str) -> str | None:
    """Set a user's setting; say what the server has instead where it is the server's to set."""
    if session.conf.isModifiable(name):
        session.conf.set(name, value)
        return None
    found = session.conf.get(name, None)
    joined = name in (CLASS_PATH, JARS, JAVA_OPTIONS) and value in (found or "")
    same = found in (value, f"file:{value}", f"file://{value}")  # Spark gives a path its scheme
    if joined or same:
        return None
    hidden = is_secret(name) or secrets_in({name: value}) or secrets_in({name: found or ""})
    return f"`{name}` has another value" if hidden else f"`{name}` is `{found}`, not `{value}`"


_ADDRESS = re.compile(r"sc://(\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::(\d+))?(?=/|$)")


def shown_address(remote: str | None) -> str:
    """Return the host and the port of a server's address; what stands before or after them may be a token."""
    named = re.match(r"([a-z]+://)(?:[^/@]*@)?(\[[0-9a-fA-F:.]+\](?::\d+)?|[\w.-]+(?::\d+)?)", remote or "")
    return named[1] + named[2] if named else "(no address)"


def _parameters(remote: str | None) -> list[str]:
    """Return what follows the address of a server: where a token is."""
    named = _ADDRESS.match(remote or "")
    parts = re.split(r"[/;=?&#]", (remote or "")[named.end() if named else 0 :])
    return [part for part in parts if len(part) >= SHORTEST_SECRET]


def _look_for(remote: str) -> None:
    """Raise if nobody listens where a Connect server should be; its client would try for ten minutes."""
    named = _ADDRESS.match(remote)
    try:
        if named is None:
            raise ValueError("it has the form `sc://host:port`, and `/;name=value` after it")
        socket.create_connection(
            (named[1].strip("[]"), int(named[2] or CONNECT_PORT)), timeout=CONNECT_TIMEOUT_SECONDS
        ).close()
    except (OSError, ValueError) as error:
        raise SparkUnavailableError(
            f"The Spark Connect server `{shown_address(remote)}` does not answer: {error}.",
            state=NOTHING_WRITTEN,
            remedy="Start it, or unset `SPARK_REMOTE` to run Spark in this process.",
        ) from error
