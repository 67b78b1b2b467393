"""Launches from Dagster's servers, and what each leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.e2e.server import Page, Server
from tests.e2e.world import ORDERS, World

DAYS = [f"2023-01-{n:02d}" for n in range(1, 11)]
Files = dict[str, set[str]]


@dataclass(frozen=True)
class Scene:
    """The lakehouse and the servers."""

    world: World
    server: Server

    def changed(self, before: Files) -> list[str]:
        """Days whose files are others than before."""
        now = self.world.files()
        return sorted(day for day in now.keys() | before.keys() if now.get(day) != before.get(day))

    def step(self, page: Page, before: Files, **more: Any) -> Step:
        """Return what is left behind by a launch that has ended."""
        return Step(page, self.changed(before), self.world.content(), self.world.shown(*DAYS), **more)


@dataclass(frozen=True)
class Step:
    """What one launch left behind: the backfill's page, and the days whose files are others now."""

    page: Page
    changed: list[str]
    content: object
    shown: dict[str, str]
    sent: dict[str, Any] = field(default_factory=dict)
    screen: str = ""

    @property
    def ranges(self) -> list[tuple[str, str]]:
        return [(first, last) for tables, first, last in self.page.ranges if ORDERS in tables]
