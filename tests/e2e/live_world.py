"""Processes that hold a Spark session and do what they are told: write landed events, launch history, move the fence.

    python live_world.py

Orders come as JSON lines on stdin. Each point that is reached is told on stdout and waited at until a line comes back, so
whoever gives the orders (`live_drivers.py`) can kill the process group exactly there, or a moment later. Nothing in the product knows of it:
the functions at these points are replaced here.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MARK = "@ "
"""Begins each line of ours; others may print too."""

WAIT_SECONDS = 3.0
"""How long a batch waits for a fence that is being moved, by somebody who may have been killed."""


def tell(**what: Any) -> None:
    sys.stdout.write(MARK + json.dumps(what) + "\n")
    sys.stdout.flush()


def reach(point: str) -> None:
    """Tell of a point, and stand there until told to go on."""
    tell(at=point)
    sys.stdin.readline()


def stop_around(owner: Any, name: str, *, before: str | None = None, after: str | None = None) -> None:
    """Stand still before and after each call of a function."""
    original = getattr(owner, name)

    def replaced(*args: Any, **kwargs: Any) -> Any:
        if before:
            reach(before)
        result = original(*args, **kwargs)
        if after:
            reach(after)
        return result

    setattr(owner, name, replaced)


def set_points() -> None:
    from backfill_assets.core.history import audited_chunk
    from backfill_assets.core.live import fence_moves as moves
    from backfill_assets.lake import history_writer, side_tables
    from backfill_assets.lake.receipts_table import ReceiptsTable
    from backfill_assets.live import live_table as live
    from backfill_assets.live import writer as stream

    stop_around(live.LiveTable, "_append", before="before the live save", after="after the live save")
    stop_around(live.LiveTable, "append", after="after the live commit is found")
    stop_around(live.LiveTable, "append_late", before="before the late rows", after="after the late rows")
    stop_around(side_tables.LateTable, "create", after="after the late table is made")
    stop_around(live.LiveTable, "append_quarantine", before="before the quarantine", after="after the quarantine")
    stop_around(stream, "write_batch", after="after the batch, before Spark's checkpoint")
    stop_around(moves, "_close", after="after the close")
    stop_around(live.LiveTable, "store_fence", before="before the fence is stored", after="after the fence is stored")
    stop_around(audited_chunk, "audit_all", after="after the audit")
    stop_around(history_writer, "overwrite", before="before the save", after="after the save, in the lock")
    stop_around(ReceiptsTable, "fill", before="before the receipts are copied", after="after the receipts are copied")


class Workshop:
    """One Spark session, and what is done with it."""

    def __init__(self) -> None:
        from backfill_assets.spark.session import classic_config, start_session
        from backfill_assets.spark.settings import SparkSettings
        from tests.support.interpreted import interpreted

        extra = {"spark.sql.warehouse.dir": tempfile.mkdtemp(prefix="warehouse-"), **interpreted()}
        self.spark = start_session(classic_config(SparkSettings(master="local[2]", driver_memory="1g", extra=extra)))
        self.spark.range(3).repartition(2).count()
        self.started = time.monotonic()

    def do(self, root: str, do: str, **what: Any) -> Any:
        from tests.support.live_shop import NOW, Shop

        shop = Shop(self.spark, Path(root))
        shop.spec = shop.spec.model_copy(
            update={"live": shop.spec.live.model_copy(update={"max_files_per_trigger": 2})}
        )
        effects = replace(
            shop.effects,
            sleep=time.sleep,
            now=lambda: NOW + timedelta(seconds=time.monotonic() - self.started),
            wait_seconds=WAIT_SECONDS,
        )
        return {"answer": getattr(self, f"_{do}")(shop, effects, **what), "said": shop.said}

    def _write(self, shop: Any, effects: Any) -> Any:
        return shop.writer(effects=effects).run(once=True)

    def _launch(self, shop: Any, _: Any, first: str, last: str, *, only: str, chunk: int) -> Any:
        from tests.support.shop import left_out, published_keys, refusals

        try:
            outcomes = shop.launch(first, last, only=only, max_partitions_per_chunk=chunk, sleep=time.sleep)
        finally:
            shop.delta.receipts.fill()
        return {"published": published_keys(outcomes), "refused": refusals(outcomes), "left_out": left_out(outcomes)}

    def _move(self, shop: Any, effects: Any, at: str) -> Any:
        from backfill_assets.core.live.fence_moves import move_fence

        shop.delta.create()
        return move_fence(shop.spec, shop.table, datetime.fromisoformat(at), effects).after.at_utc.isoformat()


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from backfill_assets.errors import BackfillAssetsError

    workshop = Workshop()
    set_points()
    tell(done="start")
    while line := sys.stdin.readline():
        order = json.loads(line)
        try:
            tell(done=order["do"], **workshop.do(**order))
        except BackfillAssetsError as error:
            tell(done=order["do"], error=type(error).__name__, message=str(error))


if __name__ == "__main__":
    main()
