"""Which settings are secrets, and texts without them: others read logs, errors and lists of processes too."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from backfill_assets.errors import NOTHING_WRITTEN, SparkUnavailableError
from backfill_assets.spark.settings import JAVA_OPTIONS

SECRET_NAMES = r"(?i)secret|passw|token|credential|(access|account|private|encryption)[._-]?key"  # noqa: S105 (a rule for names)
"""Spark's own rule for names, and what clouds call their keys. Spark is given it too, for what it shows itself."""

_SECRET = re.compile(SECRET_NAMES)
SHORTEST_SECRET = 6
"""Letters of the shortest value that is hidden wherever it stands: `256` or `true` would be found in every text."""


def is_secret(name: str) -> bool:
    """Say whether a setting's value must not be shown."""
    return _SECRET.search(name) is not None


def secrets_in(config: Mapping[str, str]) -> frozenset[str]:
    """Return the values that must not be shown: those of secret settings, and of Java's properties with such names."""
    pairs = list(config.items())
    for option in split_java_options(config.get(JAVA_OPTIONS, "")):
        name, _, value = option.removeprefix("-D").partition("=")
        pairs.append((name, value))
    return frozenset(value for name, value in pairs if is_secret(name) and len(value) >= SHORTEST_SECRET)


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return a text with each secret in it replaced."""
    for secret in sorted(secrets, key=len, reverse=True):  # one may be a part of another
        text = text.replace(secret, "(hidden)")
    return text


def split_java_options(text: str) -> list[str]:
    """Return the options in one text, as Spark takes it apart.

    Raises:
        SparkUnavailableError: A quotation mark has no partner; the message does not show the options.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise SparkUnavailableError(
            f"`{JAVA_OPTIONS}` cannot be taken apart: {str(error)[:1].lower()}{str(error)[1:]}.",
            state=NOTHING_WRITTEN,
            remedy="Give each quotation mark in it a partner.",
        ) from None
