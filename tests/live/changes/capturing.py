"""A database with one customer's table, and its capture."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.core.live.feed import FeedFile
from backfill_assets.errors import ChangeFeedError
from backfill_assets.live.changes.capture import Capture
from backfill_assets.live.changes.landed import CaptureTable
from backfill_assets.sources.database.connection import Database
from tests.live.changes.world import CUSTOMERS
from tests.support import postgres

AT = "2024-01-01 00:00Z"


class Shop:
    """A database with one customer's table, and its capture."""

    def __init__(self, folder: Path, server: postgres.Server | None = None, make: str = CUSTOMERS) -> None:
        self.server = server or postgres.shared_server()
        self.name, self.variable = postgres.new_database()
        os.environ[self.variable] = self.server.new_database(self.name)
        self.folder = folder / self.name
        self.keys = frozenset({("id",)})
        self.execute(make)
        self.capture = self.new_capture()

    def new_capture(self, **how: Any) -> Capture:
        tables = [CaptureTable("public", "customers", keys=self.keys)]
        database = Database.of_a_capture(self.variable, self.name)
        return Capture(self.name, database, tables, self.folder, heartbeat_seconds=0.0, **how)

    def execute(self, *statements: str) -> None:
        with self.server.connected(self.name) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def land(self, **how: Any) -> None:
        self.new_capture(**how).run(once=True, pause_seconds=0.02, stop=threading.Event())

    @property
    def files(self) -> list[FeedFile]:
        found = [FeedFile.named(path.name) for path in self.folder.iterdir()]
        return sorted(file for file in found if file)

    @property
    def events(self) -> list[dict[str, Any]]:
        """Every event that has landed, in the order of the files and lines."""
        texts = [(self.folder / file.name).read_text(encoding="utf-8") for file in self.files]
        return [json.loads(line) for text in texts for line in text.splitlines()]

    def said(self) -> list[tuple[str, str | None, str | None]]:
        """Operation, and the name of the customer before and after."""
        return [(e["op"], e["before"] and e["before"]["name"], e["after"] and e["after"]["name"]) for e in self.events]


def refused(shop: Shop, kind: type[Exception] = ChangeFeedError) -> str:
    with pytest.raises(kind) as error:
        shop.land()
    return str(error.value)
