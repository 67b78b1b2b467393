"""Processes in threads of their own, each of which runs only while it is stepped."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.support.fakes import Script


class Killed(BaseException):
    """What a crash is to the code: nothing that it could catch."""


class Abandoned(BaseException):
    """The schedule is over; the thread ends."""


class Actor:
    """A process in a thread of its own, which runs only while it is stepped. After a crash it starts again.

    Args:
        process: Returns whether it has nothing more to do; if not, it starts again too.
    """

    def __init__(self, name: str, process: Callable[[], bool]) -> None:
        self.name, self.stands_at, self.ended = name, "start", False
        self.failure: BaseException | None = None
        self._process = process
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._meets: BaseException | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def step(self, meets: BaseException | None = None) -> None:
        """Let it run to its next point, after it met what is at this one."""
        self._meets = meets
        self._go.release()
        self._back.acquire()

    def pause(self, point: str) -> None:
        """Stand at a point until stepped; called in its own thread."""
        self.stands_at = point
        self._back.release()
        self._go.acquire()
        if self._meets is not None:
            raise self._meets

    def _run(self) -> None:
        self._go.acquire()
        try:
            if isinstance(self._meets, Abandoned):
                return
            while not self._start():
                self.pause("start")
        except Abandoned:
            pass
        except BaseException as error:  # noqa: BLE001 (told by whoever steps)
            self.failure = error
        finally:
            self.stands_at, self.ended = "end", True
            self._back.release()

    def _start(self) -> bool:
        try:
            return self._process()
        except Killed:
            return False


class Steps(Script):
    """A script at whose points the actor that runs stands still."""

    actor: Actor | None = None

    def reach(self, point: str) -> None:
        if self.actor is not None:
            self.actor.pause(point)
