"""What a launch does besides reading and writing tables: it logs, waits, looks at the clock, and asks again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from backfill_assets.errors import BackfillAssetsError, UncertainCommitError

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Effects:
    """What a launch does besides reading and writing tables.

    Args:
        log: Called with one sentence whenever a person would want to know.
        at_step: Called with what a launch does now: a chunk, and its step.
        sleep: Called with seconds before another attempt.
        clock: Seconds that only go forward.
        now: The instant that it is.
    """

    log: Callable[[str], None] = field(default=lambda _: None)
    at_step: Callable[[str], None] = field(default=lambda _: None)
    sleep: Callable[[float], None] = field(default=time.sleep)
    clock: Callable[[], float] = field(default=time.monotonic)
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))


class Waits(Protocol):
    """What waits between two attempts: `Effects`, and the live side's."""

    @property
    def log(self) -> Callable[[str], None]: ...

    @property
    def sleep(self) -> Callable[[float], None]: ...


ATTEMPTS = 5
"""So often something is tried that may succeed the next time."""


def seconds_after(attempt: int) -> float:
    """Return how long to wait after an attempt, the first of which is 1: twice as long each time, about."""
    return random.uniform(0.5, 1.5) * 2 ** (attempt - 1)  # noqa: S311 (jitter, not a secret)


def may_pass(error: BaseException) -> bool:
    """Say whether this process may try again after an error, because it left no commit and may not come again."""
    return isinstance(error, BackfillAssetsError) and error.retry_helps and not isinstance(error, UncertainCommitError)


def wait_to_repeat(error: BackfillAssetsError, attempt: int, effects: Waits) -> None:
    """Wait before the next attempt; raise the error after the last one, or if it does not pass by itself.

    Args:
        attempt: The one that failed; the first is 1.
    """
    if attempt >= ATTEMPTS or not may_pass(error):
        raise error
    seconds = seconds_after(attempt)
    effects.log(f"Attempt {attempt} of {ATTEMPTS} failed: {error.what} The next one begins in {seconds:.1f} s.")
    effects.sleep(seconds)


def repeated(
    ask: Callable[[], Answer],
    effects: Waits,
    *,
    failures: Callable[[], AbstractContextManager[None]] = nullcontext,
    unless: tuple[type[BackfillAssetsError], ...] = (),
) -> Answer:
    """Return an answer, asked for again as long as the failure may pass; what is asked must be safe to repeat.

    Args:
        failures: Turns a failure of the engine into an error of this project.
        unless: Errors that pass at once.
    """
    attempt = 1
    while True:
        try:
            with failures():
                return ask()
        except BackfillAssetsError as error:
            if isinstance(error, unless):
                raise
            wait_to_repeat(error, attempt, effects)
            attempt += 1
