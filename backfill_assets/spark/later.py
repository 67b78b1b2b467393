"""A Spark session that starts when something is first asked of it, so that what only looks starts no JVM."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

from pyspark.sql import SparkSession


class _Later:
    """A stand-in for a session that has not started: it starts the session on first use and forwards every attribute.

    Args:
        start: Returns the session. It is called once.
        settings: The settings that the session will have.
    """

    def __init__(self, start: Callable[[], SparkSession], settings: Mapping[str, str]) -> None:
        self._start = start
        self._settings = settings
        self._session: SparkSession | None = None
        self._starting = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        with self._starting:
            if self._session is None:
                self._session = self._start()
        return getattr(self._session, name)

    def setting(self, name: str) -> str | None:
        """Return a setting that the session has, or will have."""
        return self._settings.get(name) if self._session is None else self._session.conf.get(name, None)


def later(start: Callable[[], SparkSession], settings: Mapping[str, str]) -> SparkSession:
    """Return a session that `start` makes when something is first asked of it.

    Args:
        settings: With which it will start, as far as somebody asks for them before.
    """
    return cast("SparkSession", _Later(start, settings))


def setting(spark: SparkSession, name: str) -> str | None:
    """Return a setting of a session, without starting one for that; None if it is not set."""
    return spark.setting(name) if isinstance(spark, _Later) else spark.conf.get(name, None)
