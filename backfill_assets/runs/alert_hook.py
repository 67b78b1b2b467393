"""Alerts on their way: each a JSON object, posted to a URL, tried again where that can help."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from urllib.parse import urlsplit

from backfill_assets.errors import AlertError, ConfigurationError

ALERTS_URL = "LAKEHOUSE_ALERTS_URL"
"""Environment variable with the URL. Such URLs are secrets: only its host is ever shown."""

ATTEMPTS, TIMEOUT_SECONDS = 3, 10.0
_TRY_AGAIN = (408, 425, 429)


def checked_url(url: str) -> str:
    """Return the URL, or refuse it.

    Raises:
        ConfigurationError: It is none of `http` or `https`.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(
            f"{ALERTS_URL} is no URL that begins with `https://` or `http://`, and has a host.",
            state="Nobody was told of anything.",
            remedy="Correct it; it is not shown here, since such URLs are secrets.",
        )
    return url


def post(url: str, body: Mapping[str, object], *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Post one alert, up to three times. Its `Idempotency-Key` is its id: a receiver may get it twice, with one key.

    Raises:
        AlertError: Nobody took it.
    """
    request = urllib.request.Request(  # noqa: S310 (`checked_url` lets http and https through)
        checked_url(url),
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Idempotency-Key": str(body["id"])},
    )
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):  # noqa: S310
                return
        except urllib.error.HTTPError as error:
            why, helps = f"it answered {error.code}", error.code >= 500 or error.code in _TRY_AGAIN
            error.close()
        except (OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            why, helps = f"{type(reason).__name__}", True
        if attempt == ATTEMPTS or not helps:
            raise AlertError(
                f"`{urlsplit(url).hostname}` did not take an alert: {why}, at attempt {attempt}.",
                state="It counts as not told, and is told again at the next look.",
                remedy=f"Look at what {ALERTS_URL} names.",
            )
        sleep(2.0 ** (attempt - 1))
