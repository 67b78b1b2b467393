"""Debezium's engine beside a database: started with what docs/databases.md says, killed, and started again."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backfill_assets.core.live.feed import FeedFile, from_lsn
from backfill_assets.core.postgres import questions
from tests.live.changes.world import World
from tests.places.servers import CLEAN, ROOT
from tests.support.killing import kill_group

PAGE = ROOT / "docs/databases.md"
WAIT_SECONDS = 90
BEATS = """
CREATE TABLE beats (id int PRIMARY KEY, at timestamptz);
ALTER TABLE beats REPLICA IDENTITY FULL;
"""


def settings_of_the_page() -> dict[str, str]:
    """Return the settings that the table of the page gives a value."""
    table = PAGE.read_text(encoding="utf-8").partition("| setting | why |")[2].partition("\n\n")[0]
    said = [cell for line in table.splitlines() for cell in line.split(" | ")[:1]]
    return dict(re.findall(r"`([a-z.]+)=([a-z_]+)`", " ".join(said)))


def code_of_the_page() -> str:
    """Return the code that lands events."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return code


@dataclass
class Debezium:
    """The engine, its files and what it has delivered.

    Args:
        world: Whose changes it brings, into the folder of its feed.
        more: Properties that the page says nothing of.
        pause_seconds: So long it rests after each batch.
    """

    world: World
    more: dict[str, str] = field(default_factory=dict)
    pause_seconds: float = 0.0
    process: subprocess.Popen[bytes] | None = None

    @property
    def scratch(self) -> Path:
        return self.world.folder.parent / "debezium"

    @property
    def properties(self) -> dict[str, str]:
        """What the page says, and where the database is."""
        said = settings_of_the_page()
        said["converter.schemas.enable"] = said.pop("schemas.enable")  # as the engine calls what it gives its converter
        beat = "INSERT INTO beats VALUES (1, now()) ON CONFLICT (id) DO UPDATE SET at = now()"
        return {
            **said, "name": "shop", "topic.prefix": "shop", "heartbeat.interval.ms": "200", "heartbeat.action.query": beat,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1", "database.port": str(self.world.server.port), "database.user": "postgres",
            "database.password": "", "database.dbname": self.world.name, "slot.name": f"debezium_{self.world.name}",
            "publication.name": f"debezium_{self.world.name}", "offset.flush.interval.ms": "0", "poll.interval.ms": "20",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(self.scratch / "offsets"), **self.more,
        }  # fmt: skip

    def __enter__(self) -> Debezium:
        """Start it, and return when it has made its slot."""
        self.scratch.mkdir(parents=True)
        self.world.folder.mkdir(parents=True, exist_ok=True)
        self.world.execute(BEATS)
        self.start()
        patience = time.monotonic() + WAIT_SECONDS
        is_there = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active"
        with self.world.server.connected(self.world.name) as connection:
            while connection.execute(is_there, (self.properties["slot.name"],)).fetchone() is None:
                self._is_well(patience)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        settings = {
            "properties": self.properties, "address": self.world.server.address(self.world.name), "code": code_of_the_page(),
            "slot": self.properties["slot.name"], "folder": str(self.world.folder), "delivered": str(self.delivered),
            "pause_seconds": self.pause_seconds,
        }  # fmt: skip
        (self.scratch / "settings.json").write_text(json.dumps(settings))
        with (self.scratch / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / "tests/places/debezium_engine.py"), str(self.scratch / "settings.json")],
                cwd=self.scratch, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                env={**CLEAN, "PYDBZ_JVM_OPTS": "-Xms64m -Xmx512m -XX:TieredStopAtLevel=1"},
            )  # fmt: skip

    def kill(self) -> None:
        if self.process:
            kill_group(self.process)
            self.process = None

    @property
    def delivered(self) -> Path:
        """The file of the places of what was delivered."""
        return self.scratch / "delivered.jsonl"

    def deliveries(self) -> Counter[str]:
        """How often each change was delivered."""
        return Counter(self.delivered.read_text().splitlines() if self.delivered.exists() else [])

    def has_landed(self) -> None:
        """Return when what the server has by now has landed."""
        with self.world.server.connected() as connection:
            until = from_lsn(connection.execute(questions.FLUSHED).fetchone()[0])
        patience = time.monotonic() + WAIT_SECONDS
        while max((file.end for file in self.files), default=0) < until:
            self._is_well(patience)

    def delivers(self) -> None:
        """Return when it has delivered something more."""
        before, patience = self.deliveries().total(), time.monotonic() + WAIT_SECONDS
        while self.deliveries().total() == before:
            self._is_well(patience)

    def _is_well(self, patience: float) -> None:
        assert self.process is not None
        is_well = self.process.poll() is None and time.monotonic() < patience
        assert is_well, (self.scratch / "log").read_text(errors="replace")[-4000:]
        time.sleep(0.05)

    @contextmanager
    def killed_now_and_then(self, seed: int, times: int) -> Iterator[None]:
        """Kill it some times while it delivers, and start it again, in the background."""
        dice, ended = random.Random(seed), threading.Event()

        def go_on() -> None:
            for _ in range(times):
                self.delivers()
                ended.wait(dice.uniform(0, 2))
                self.kill()
                self.start()

        with ThreadPoolExecutor(1) as pool:
            going = pool.submit(go_on)
            yield
            ended.set()
            going.result()

    @property
    def files(self) -> list[FeedFile]:
        """What has landed, in order."""
        return sorted(file for path in self.world.folder.iterdir() if (file := FeedFile.named(path.name)))

    def events(self) -> list[dict[str, Any]]:
        """Every event that has landed, in the order of the files and lines."""
        texts = [(self.world.folder / file.name).read_text(encoding="utf-8") for file in self.files]
        return [json.loads(line) for text in texts for line in text.splitlines()]
