"""Who holds what a session waits for. PostgreSQL tells it only while the session waits: another one asks meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from backfill_assets.core.postgres.questions import HOLDERS

if TYPE_CHECKING:
    import psycopg

_LOOK_AGAIN_SECONDS = 1.0


class LockWait:
    """Looks at a statement of a session from beside it, once that has taken a while, until it has ended.

    Args:
        connection: The session's.
        open_session: Opens the session that looks.
        after_seconds: A statement that takes less is not looked at.
        log: Called with one sentence when others hold what the statement waits for.
    """

    def __init__(
        self,
        connection: psycopg.Connection,
        open_session: Callable[[], AbstractContextManager[psycopg.Connection]],
        after_seconds: float,
        log: Callable[[str], None],
    ) -> None:
        self.holders: list[str] = []
        self.remedies: list[str] = []
        self._connection, self._open_session = connection, open_session
        self._after_seconds, self._log = after_seconds, log
        self._has_ended = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._look, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()

    def _look(self) -> None:
        if self._has_ended.wait(self._after_seconds):
            return
        with suppress(Exception), self._open_session() as other:  # a look that fails hides no failure of the statement
            pid = self._connection.info.backend_pid
            while not self._has_ended.is_set():
                found = other.execute(HOLDERS.encode(), {"pid": pid}).fetchall()
                if self._has_ended.is_set():
                    return
                named = [_in_words(*row) for row in found]
                if named and named != self.holders:
                    self._log(f"It waits for a lock that {' and '.join(named)} holds.")
                self.holders, self.remedies = named, [_remedy(*row) for row in found]
                self._has_ended.wait(_LOOK_AGAIN_SECONDS)


def _in_words(pid: int | None, name: str, since: datetime | None, database: str | None) -> str:
    """Name a session, or a prepared transaction, which has no session."""
    began = f", since {since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if since else ""
    if pid is None:
        return f"the prepared transaction `{name}` of the database `{database}`{began}"
    application = f"application `{name}`" if name else "no application name"
    return f"the session {pid} ({application}{began})"


def _remedy(pid: int | None, name: str, *_: Any) -> str:
    if pid is None:
        quoted = name.replace("'", "''")
        return f"`ROLLBACK PREPARED '{quoted}';` or `COMMIT PREPARED '{quoted}';` ends it, in its database"
    return f"`SELECT pg_terminate_backend({pid});` ends it"
