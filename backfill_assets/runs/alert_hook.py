"""Alerts on their way: each a JSON object, posted to a URL, tried again where that can help."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from backfill_assets.errors import AlertError, ConfigurationError

ALERTS_URL = "LAKEHOUSE_ALERTS_URL"
"""Environment variable with the URL. Such URLs are secrets: only its host is ever shown."""

ATTEMPTS, TIMEOUT_SECONDS = 3, 4.0
_TRY_AGAIN = (408, 425, 429)


def checked_url(url: str) -> str:
    """Return the URL, or refuse it.

    Raises:
        ConfigurationError: It is none of `http` or `https`, has no host, or a user's name.
    """
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc and url.isascii()
    except ValueError:
        is_right = False
    if not is_right:
        raise ConfigurationError(
            f"{ALERTS_URL} is no URL that begins with `https://` or `http://`, has a host and no user's name.",
            state="Nobody was told of anything.",
            remedy="Correct it; it is not shown here, since such URLs are secrets.",
        )
    return url


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A post that is sent elsewhere would become a GET without a body, and whatever answers would seem to take it."""

    def http_error_302(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any) -> None:
        """Leave it to be an error."""

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def post(url: str, body: Mapping[str, object], *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Post one alert, up to three times. Its `Idempotency-Key` is its id: a receiver may get it twice, with one key.

    Raises:
        AlertError: It was not taken. `facts["is_away"]` says whether others would not be either.
    """
    request = urllib.request.Request(  # noqa: S310 (`checked_url` lets http and https through)
        checked_url(url),
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Idempotency-Key": str(body["id"])},
    )
    for attempt in range(1, ATTEMPTS + 1):
        code = _answer(request)
        if isinstance(code, int) and code < 300:
            return
        helps = not isinstance(code, int) or code >= 500 or code in _TRY_AGAIN
        if attempt == ATTEMPTS or not helps:
            why = f"it answered {code}" if isinstance(code, int) else code
            raise AlertError(
                f"`{urlsplit(url).hostname}` did not take an alert: {why}, at attempt {attempt}.",
                state="It counts as not told, and is told again at the next look.",
                remedy=f"Look at what {ALERTS_URL} names.",
                is_away=helps,
            )
        sleep(2.0 ** (attempt - 1))


def _answer(request: urllib.request.Request) -> int | str:
    """Return the status of the answer, or why there is none. Whoever answers letter by letter is not waited for."""
    answers: list[int | str] = []

    def ask() -> None:
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT_SECONDS) as answer:
                answers.append(answer.status)
        except urllib.error.HTTPError as error:
            answers.append(error.code)
            error.close()
        except (OSError, HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            answers.append(type(reason).__name__)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(2 * TIMEOUT_SECONDS)
    return answers[0] if answers else "TimeoutError"
