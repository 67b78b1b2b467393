"""Debezium's engine as a process of its own, whose events are landed by the code of docs/databases.md.

    python tests/places/debezium_engine.py SETTINGS.json

`SETTINGS.json` has the engine's `properties`, `address` of the database, `slot`, `folder` of the feed, the page's
`code`, `delivered`, a file to which each change that Debezium delivers is noted as a line of its place, and
`pause_seconds`, for which it rests after each batch.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import jpype
import psycopg
from pydbzengine.engine.jvm import ensure_jvm_started

CHANGES = ("c", "u", "d", "t")


class Landing:
    """Lands what is delivered, and says up to where that need not be delivered again.

    Args:
        settings: As above.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings, self.folder = settings, Path(settings["folder"])
        page: dict[str, Any] = {}
        exec(settings["code"], page)
        self.land = page["land"]
        self.began, self.start = -1, -1
        self.waiting: list[tuple[Any, dict[str, Any]]] = []

    def take(self, records: list[Any]) -> Any:
        """Take what is delivered; return the record up to which all has landed, if there is one."""
        if self.began < 0:
            self.began = self._first_position()
            ends = [int(path.stem.partition("-")[2], 16) for path in self.folder.glob("*.jsonl")]
            self.start = max(ends, default=self.began)
        new = [(record, json.loads(str(record.value())) if record.value() is not None else {}) for record in records]
        self.waiting += new
        with Path(self.settings["delivered"]).open("a", encoding="utf-8") as noted:
            for _, event in new:
                if event.get("op") in CHANGES:
                    place = event["source"]["sequence"], event["transaction"]["total_order"], event["source"]["txId"]
                    noted.write(json.dumps(place) + "\n")
        start = self.land((event for _, event in self.waiting), self.folder, self.began, self.start)
        return self._landed(start) if start > self.start else None

    def _landed(self, start: int) -> Any:
        """Return the end of the newest transaction that has landed; keep what follows it."""
        self.start = start
        newest = max(number for number, (_, event) in enumerate(self.waiting) if event.get("op") in CHANGES)
        ends = [n for n, (_, event) in enumerate(self.waiting[:newest]) if event.get("status") == "END"]
        if not ends:
            return None
        record, self.waiting = self.waiting[ends[-1]][0], self.waiting[ends[-1] + 1 :]
        return record

    def _first_position(self) -> int:
        """Return where the slot began: asked when Debezium has just made it, and kept."""
        kept = self.folder.parent / "slot.txt"
        if not kept.exists():
            with psycopg.connect(self.settings["address"]) as connection:
                asked = "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = %s"
                found = connection.execute(asked, (self.settings["slot"],)).fetchone()
            assert found is not None
            kept.write_text(str(found[0]))
        return int(kept.read_text())


def run(settings: dict[str, Any]) -> None:
    """Run the engine until it is killed."""
    ensure_jvm_started()
    properties = jpype.JClass("java.util.Properties")()
    for name, value in settings["properties"].items():
        properties.setProperty(name, value)
    landing = Landing(settings)

    @jpype.JImplements("io.debezium.engine.DebeziumEngine$ChangeConsumer")
    class Consumer:
        """What the engine calls with each batch."""

        @jpype.JOverride
        def handleBatch(self, records: Any, committer: Any) -> None:  # noqa: N802 (Java's name)
            try:
                if landed := landing.take(list(records)):
                    committer.markProcessed(landed)
                    committer.markBatchFinished()
                time.sleep(settings["pause_seconds"])
            except BaseException as error:  # noqa: BLE001 (Java would take it for one of its own, and try again)
                sys.stderr.write(f"{error!r}\n")
                os._exit(3)

        @jpype.JOverride
        def supportsTombstoneEvents(self) -> bool:  # noqa: N802 (Java's name)
            return True

    engine = jpype.JClass("io.debezium.engine.DebeziumEngine")
    json_format = jpype.JClass("io.debezium.engine.format.Json")
    engine.create(json_format).using(properties).notifying(Consumer()).build().run()


if __name__ == "__main__":
    run(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
