"""Dagster's UI in a real browser: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

REQUIRED = "BACKFILL_ASSETS_BROWSER_TESTS"
"""Set to `required` where a machine without chromium is an error: in the gate."""

PATIENCE_MILLISECONDS = 180_000


def chromium() -> str:
    """Return the browser's program; skip the test where there is none and none is required."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        assert os.environ.get(REQUIRED) != "required", "chromium is not installed: apt-get install chromium"
        pytest.skip("chromium is not installed (apt-get install chromium); it shows the UI to these tests")
    return found


@dataclass
class Screen:
    """One tab of the browser.

    Args:
        shots: Folder of the screenshots.
        sent: What was sent to the webserver to launch something.
    """

    page: Page
    url: str
    shots: Path
    sent: list[dict[str, Any]] = field(default_factory=list)

    def show(self, path: str) -> None:
        self.page.goto(f"{self.url}{path}")

    def shoot(self, name: str) -> None:
        """Keep what is on the screen."""
        self.page.screenshot(path=self.shots / f"{name}.png")

    @contextmanager
    def kept(self, name: str) -> Iterator[None]:
        """Keep what is on the screen at the end, also when a wait ends without what it waits for."""
        try:
            yield
        finally:
            self.shoot(name)

    @property
    def dialog(self) -> Locator:
        """The dialog in front."""
        return self.page.get_by_role("dialog").last

    def launch(self, asset: str, partitions: str, config: str | None = None) -> str:
        """Launch partitions of an asset from its page, as a person does; return the backfill's id."""
        self.show(f"/assets/{asset}?view=partitions")
        self.page.get_by_role("button", name="Materialize…").click()
        self.page.get_by_text("Show all partitions").click()
        box = self.dialog.locator("input").first
        box.fill(partitions)
        box.press("Enter")
        if config is not None:
            self._configure(config)
        self.shoot("dialog" if config is None else "dialog with config")
        self.dialog.get_by_role("button", name="Launch backfill").click()
        toast = self.page.get_by_text(re.compile(r"Created backfill \w+"))
        toast.wait_for()
        return toast.inner_text().split()[2]

    def _configure(self, config: str) -> None:
        """Write run config into the dialog's editor."""
        self.dialog.get_by_text("Config", exact=True).click()
        self.dialog.get_by_role("button", name="Add config").click()
        self.dialog.locator(".CodeMirror").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(config)
        self.dialog.get_by_role("button", name="Save config").click()
        self.dialog.get_by_text("Config saved").wait_for()

    def _saw(self, request: Any) -> None:
        if "/graphql" in request.url and "mutation" in (request.post_data or "") and "Backfill" in request.post_data:
            self.sent.append(json.loads(request.post_data)["variables"])


@contextmanager
def browsing(url: str, shots: Path) -> Iterator[Screen]:
    """Open a browser.

    Args:
        shots: Folder that keeps the screenshots, below pytest's own: the last three runs stay there.
    """
    from playwright.sync_api import sync_playwright

    program = chromium()
    shots.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE_MILLISECONDS)
        screen = Screen(page, url, shots)
        page.on("request", screen._saw)
        try:
            yield screen
        finally:
            browser.close()
