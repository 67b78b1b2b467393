"""A backfill of the whole history, again and again, beside a stream of hundreds of events a second: `make soak`.

The stream's trigger is one second. A writer, launches of the whole range one after the other, and a reader that is not
Spark work on one
table. In the end every row is held against the files that landed and the export. The last lines are `name: number`; the
exit code is 1 if
a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import TableNotFoundError

from backfill_assets.demo.events import EventStream
from backfill_assets.demo.orders import COLUMNS, file_of, write_orders
from backfill_assets.spark.jars import delta_jars
from backfill_assets.spark.settings import settings_from_environment

REPOSITORY = Path(__file__).resolve().parent.parent
FIRST_DAY, LIVE_FROM = date(2023, 1, 1), "2026-01-01"
TABLE = "bronze/orders"
ALLOWANCE_SECONDS = 2.0
"""A batch may be so much later than the longest publish that it had to wait for."""

RECENT_DAYS = 12
"""Days of history that every read looks at, with all that is live; every so often it is the whole table."""

MODULE = "soak_definitions"
DEFINITIONS = f"""
from pathlib import Path

import yaml

import backfill_assets
from backfill_assets import TableSpec, build_lakehouse_table, lakehouse_definitions

text = (Path(backfill_assets.__file__).parent / "defs/{TABLE}/defs.yaml").read_text(encoding="utf-8")
facts = yaml.safe_load(text)["attributes"]
facts["live"] = facts["live"] | {{"starts": "{LIVE_FROM}", "trigger_seconds": 1}}
defs = lakehouse_definitions(build_lakehouse_table(TableSpec.model_validate(facts)))
"""
"""The shop's own table with another trigger."""

OWN_SETTINGS = ("SPARK_MASTER", "SPARK_REMOTE", "SPARK_DRIVER_MEMORY", "SPARK_EXTRA_CONF", "DAGSTER_EVENT_BATCH_SIZE")
BATCH = re.compile(
    r"batch (\d+): ([\d,]+) rows(?:, ([\d,]+) late)?(?:, ([\d,]+) quarantined)?.*?(?:([\d.]+) s behind)?$"
)
SAVE = re.compile(r"Chunk \d+ of .* save ([\d.]+)")
CONFLICT = re.compile(r"overtaken|is tried again|Tried again")

Row = tuple[Any, ...]


# -- the processes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Soak:
    """Where everything lies."""

    folder: Path
    days: int
    orders_per_day: int

    @property
    def root(self) -> Path:
        return self.folder / "lakehouse"

    @property
    def table(self) -> Path:
        return self.root / "tables" / TABLE

    @property
    def export(self) -> Path:
        return self.root / "landing" / "orders"

    @property
    def events(self) -> Path:
        return self.root / "landing" / "order_events"

    @property
    def last_day(self) -> date:
        return FIRST_DAY + timedelta(days=self.days - 1)

    def prepare(self) -> None:
        write_orders(self.export, first_day=FIRST_DAY, days=self.days, orders_per_day=self.orders_per_day, seed=1)
        self.events.mkdir(parents=True)
        home = self.folder / "dagster_home"
        home.mkdir()
        shutil.copy(REPOSITORY / "dagster.yaml", home)
        (self.folder / f"{MODULE}.py").write_text(DEFINITIONS, encoding="utf-8")

    def start(self, name: str, *arguments: str) -> Process:
        environment = {name: value for name, value in os.environ.items() if name not in OWN_SETTINGS}
        environment |= {
            "PYTHONPATH": f"{self.folder}{os.pathsep}{REPOSITORY}",
            "LAKEHOUSE_ROOT": str(self.root),
            "DAGSTER_HOME": str(self.folder / "dagster_home"),
            "COLUMNS": "200",
            "PYTHONUNBUFFERED": "1",
        }
        log = self.folder / f"{name}.log"
        with log.open("w", encoding="utf-8") as out:
            command = [sys.executable, "-m", *arguments]
            process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=out, stderr=out, start_new_session=True
            )
        return Process(name, process, log)

    def writer(self) -> Process:
        return self.start("writer", "backfill_assets.cli", "live", TABLE, "--definitions", MODULE)

    def launch(self, number: int, only: str) -> Process:
        config = json.dumps({"ops": {TABLE.replace("/", "__"): {"config": {"only": only}}}})
        whole = ("--partition-range", f"{FIRST_DAY}...{self.last_day}", "--config-json", config)
        return self.start(
            f"launch {number}", "dagster", "asset", "materialize", "-m", MODULE, "--select", f'key:"{TABLE}"', *whole
        )


@dataclass(frozen=True)
class Process:
    """One process that runs, and its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def lines(self) -> list[str]:
        return self.log.read_text(encoding="utf-8", errors="replace").splitlines()

    def conflicts(self) -> list[str]:
        return [line for line in self.lines() if CONFLICT.search(line)]

    def must_end(self) -> None:
        if code := self.process.wait():
            tail = "\n".join(self.lines()[-40:])
            sys.exit(f"{tail}\n\n{self.name} ended with exit code {code}.")

    def wait_until(self, what: Callable[[], bool], seconds: float = 300) -> None:
        until = time.monotonic() + seconds
        while not what():
            if self.process.poll() is not None or time.monotonic() > until:
                sys.exit("\n".join(self.lines()[-40:]) + f"\n\n{self.name} does not get further.")
            time.sleep(0.2)


@dataclass(frozen=True)
class Batch:
    """What the writer said of one batch."""

    live: int
    late: int
    quarantined: int
    behind_seconds: float

    @property
    def rows(self) -> int:
        return self.live + self.late + self.quarantined


def batches_of(lines: Iterable[str]) -> dict[int, Batch]:
    found = [match for line in lines if (match := BATCH.search(line))]
    count = lambda text: int((text or "0").replace(",", ""))  # noqa: E731 (three uses, one line)
    return {int(m[1]): Batch(count(m[2]), count(m[3]), count(m[4]), float(m[5] or 0)) for m in found}


# -- the reader beside it ----------------------------------------------------------------------------------------------


@dataclass
class Reader:
    """Reads keys with delta-rs while everything runs, and counts those that come twice."""

    path: Path
    recent_from: date
    whole_every_seconds: float = 30.0
    reads: int = 0
    duplicates: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        whole_at = time.monotonic() + self.whole_every_seconds
        while not self.ended.wait(1.0):
            whole = time.monotonic() >= whole_at
            try:
                self.read(whole=whole)
            except TableNotFoundError:  # the writer has not made it yet
                continue
            if whole:
                whole_at = time.monotonic() + self.whole_every_seconds

    def read(self, *, whole: bool) -> None:
        wanted = None if whole else [("dt", ">=", self.recent_from)]
        keys = deltalake.DeltaTable(str(self.path)).to_pyarrow_table(columns=["order_id"], filters=wanted)["order_id"]
        self.duplicates += len(keys) - pc.count_distinct(keys).as_py()
        self.reads += 1


# -- what must be there in the end -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Landed:
    """What the landed files hold.

    Args:
        late: From before the fence, by day.
        wrong: Lines that are no event.
    """

    live: Counter[Row]
    late: dict[date, list[Row]]
    wrong: int

    @classmethod
    def read(cls, folder: Path) -> Landed:
        fence = datetime.fromisoformat(LIVE_FROM).replace(tzinfo=UTC)
        live, late, wrong = Counter[Row](), dict[date, list[Row]](), 0
        for file in folder.glob("*.json"):
            for line in file.read_text(encoding="utf-8").splitlines():
                row = row_of(line)
                if row is None:
                    wrong += 1
                elif (at := row[COLUMNS.names.index("ordered_at")]) >= fence:
                    live[row] += 1
                else:
                    late.setdefault(at.date(), []).append(row)
        return cls(live, late, wrong)


def row_of(line: str) -> Row | None:
    """Return the row that an event's line holds; None if it is no event."""
    try:
        fields = json.loads(line)
        made = {
            **fields,
            "amount": Decimal(fields["amount"]),
            "ordered_at": datetime.fromisoformat(fields["ordered_at"]),
            "updated_at": datetime.fromisoformat(fields["updated_at"]),
        }
        return tuple(made[name] for name in COLUMNS.names)
    except (ValueError, KeyError, TypeError):
        return None


def wrong_rows(soak: Soak, landed: Landed) -> int:
    """Count the rows of the table that are lacking, or too many, or other than what was exported and landed."""
    table = deltalake.DeltaTable(str(soak.table)).to_pyarrow_table()
    by_day: dict[date, pa.Table] = {}
    table = table.sort_by([("dt", "ascending"), ("order_id", "ascending")])
    offset = 0
    for day, count in sorted((each["values"], each["counts"]) for each in table["dt"].value_counts().to_pylist()):
        by_day[day] = table.slice(offset, count).select(COLUMNS.names)
        offset += count
    wrong = 0
    for number in range(soak.days):
        day = FIRST_DAY + timedelta(days=number)
        exported = pq.read_table(file_of(soak.export, day), partitioning=None).select(COLUMNS.names).sort_by("order_id")
        found = by_day.pop(day, None)
        if found is not None and day not in landed.late and found.cast(exported.schema).equals(exported):
            continue
        wrong += differing([] if found is None else rows_of(found), [*rows_of(exported), *landed.late.get(day, [])])
    there = Counter(row for rows in by_day.values() for row in rows_of(rows))  # what is left is live
    return wrong + (there - landed.live).total() + (landed.live - there).total()


def differing(found: Iterable[Row], known: Iterable[Row]) -> int:
    """Count what is not the newest row of each order. Of several changed at the same moment any may win."""
    order_id, updated_at = COLUMNS.names.index("order_id"), COLUMNS.names.index("updated_at")
    newest: dict[int, set[Row]] = {}
    for row in known:
        rows = newest.setdefault(row[order_id], {row})
        latest = next(iter(rows))[updated_at]
        if row[updated_at] > latest:
            newest[row[order_id]] = {row}
        elif row[updated_at] == latest:
            rows.add(row)
    wrong = 0
    for row in found:
        wrong += row not in newest.pop(row[order_id], ())
    return wrong + len(newest)


def rows_of(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


# -- ten minutes -------------------------------------------------------------------------------------------------------


def soak_for(soak: Soak, minutes: float, rate: float) -> tuple[dict[str, float], list[str]]:
    """Let everything run; return the figures, and what was promised and not kept."""
    soak.prepare()
    stream = EventStream(soak.events, soak.last_day, orders_per_day=soak.orders_per_day, seed=1)
    reader = Reader(soak.table, soak.last_day - timedelta(days=RECENT_DAYS))
    stop = threading.Event()

    def land() -> None:
        for _ in stream.run(rate=rate):
            if stop.is_set():
                return

    writer, launches = soak.writer(), list[Process]()
    threads = [threading.Thread(target=reader.run, daemon=True), threading.Thread(target=land, daemon=True)]
    try:
        stream.land(
            stream.events(1, np.random.default_rng(1))
        )  # the first batch waits for Spark to start, and is not measured
        writer.wait_until(lambda: bool(batches_of(writer.lines())))
        tell(f"the writer has started, {rate:,.0f} events a second from now on")
        for thread in threads:
            thread.start()
        started = time.monotonic()
        ends_at = started + 60 * minutes
        while time.monotonic() < ends_at:
            launches.append(soak.launch(len(launches), "MISSING" if len(launches) % 3 == 2 else "ALL"))
            launches[-1].must_end()
            newest = list(batches_of(writer.lines()).values())[-1]
            tell(
                f"{launches[-1].name} has ended; {stream.landed:,} events landed, the newest batch was "
                f"{newest.behind_seconds:.1f} s behind"
            )
        stop.set()
        threads[1].join()
        seconds = time.monotonic() - started
        writer.wait_until(lambda: sum(batch.rows for batch in batches_of(writer.lines()).values()) >= stream.landed)
        launches.append(soak.launch(len(launches), "MISSING"))  # folds the last late rows
        launches[-1].must_end()
        writer.process.send_signal(signal.SIGINT)
        writer.must_end()
        reader.ended.set()
        threads[0].join()
        reader.read(whole=True)
    finally:
        for process in (writer, *launches):
            if process.process.poll() is None:
                os.killpg(process.process.pid, signal.SIGKILL)
    return figures_of(soak, stream.landed, seconds, writer, launches, reader)


def figures_of(
    soak: Soak, lines: int, seconds: float, writer: Process, launches: list[Process], reader: Reader
) -> tuple[dict[str, float], list[str]]:
    """Hold what happened against what was promised."""
    batches = batches_of(writer.lines())
    behind = sorted(batch.behind_seconds for number, batch in batches.items() if number)
    p50, p99 = (behind[min(len(behind) - 1, int(share * len(behind)))] for share in (0.5, 0.99))
    saves = [float(match[1]) for launch in launches for line in launch.lines() if (match := SAVE.search(line))]
    conflicts = [line for process in (writer, *launches) for line in process.conflicts()]
    landed = Landed.read(soak.events)
    figures: dict[str, float] = {
        "minutes": seconds / 60,
        "launches": len(launches),
        "publishes": len(saves),
        "events landed": lines,
        "events a second": lines / seconds,
        "rows live": sum(batch.live for batch in batches.values()),
        "rows late": sum(batch.late for batch in batches.values()),
        "rows quarantined": sum(batch.quarantined for batch in batches.values()),
        "batches": len(batches),
        "batch delay p50, seconds": p50,
        "batch delay p99, seconds": p99,
        "batch delay max, seconds": behind[-1],
        "longest publish, seconds": max(saves),
        "conflicts": len(conflicts),
        "reads": reader.reads,
        "duplicates seen": reader.duplicates,
        "rows wrong": wrong_rows(soak, landed),
    }
    limit = figures["longest publish, seconds"] + ALLOWANCE_SECONDS
    counted = (figures["rows live"], figures["rows late"], figures["rows quarantined"])
    promises: Mapping[str, bool] = {
        f"p99 <= longest publish + {ALLOWANCE_SECONDS:g} s ({p99:.1f} <= {limit:.1f})": p99 <= limit,
        "no conflicts": not conflicts,
        "the reader never saw a key twice": not reader.duplicates,
        "every event is live, late or quarantined, once": counted
        == (landed.live.total(), sum(map(len, landed.late.values())), landed.wrong),
        "every row is as exported and landed": not figures["rows wrong"],
    }
    for line in conflicts[:10]:
        tell(line)
    for promise, is_kept in promises.items():
        print(f"promise {promise}: {'kept' if is_kept else 'BROKEN'}")
    return figures, [promise for promise, is_kept in promises.items() if not is_kept]


def tell(what: str) -> None:
    """Say on the error stream how far it is; the result goes to the other one."""
    print(what, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="after the writer has started (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=300, help="events a second (default: %(default)s)")
    parser.add_argument("--days", type=int, default=1_096, help="of history (default: %(default)s)")
    parser.add_argument("--orders-per-day", type=int, default=300, help="average (default: %(default)s)")
    options = parser.parse_args()
    delta_jars(settings_from_environment(os.environ))  # fetched before anything is measured
    with tempfile.TemporaryDirectory(prefix="backfill_assets-soak-") as folder:
        figures, broken = soak_for(
            Soak(Path(folder), options.days, options.orders_per_day), options.minutes, options.rate
        )
    print()
    for name, figure in figures.items():
        print(f"{name}: {figure:g}" if isinstance(figure, int) else f"{name}: {figure:.2f}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
