"""A source that serves a few readers at once, and a backfill that asks it for every day at the same time."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import Evidence
from backfill_assets.core.history.ports import Scan, Source
from backfill_assets.core.state.surveys import Survey
from examples.hazards.scene import DDL, SPEC, Case, SafeTable, Scene
from examples.hazards.shop import Order, Shop, lines_of, orders_made

MAX_READERS = 4
LOG_IN_SECONDS, QUERY_SECONDS = 0.05, 0.1
FIRST_DAY, DAYS, ORDERS_PER_DAY = date(2025, 11, 16), 40, 50
DAYS_PER_CHUNK = 20


def run(spark: SparkSession, root: Path, seed: int) -> Iterator[Case]:
    """Ask for all days at once; then the safe way."""
    days = [FIRST_DAY + timedelta(days=n) for n in range(DAYS)]
    orders = {day.isoformat(): orders_made(day, ORDERS_PER_DAY, seed) for day in days}
    yield all_at_once(Scene(spark, root / "all_at_once", Shop([])), orders)
    yield safe(Scene(spark, root / "safe", Shop([])), orders)


def all_at_once(scene: Scene, orders: dict[str, list[Order]]) -> Case:
    """One query a day, all at the same time; a day that fails is logged, and the job goes on."""
    with serving(orders) as service, ThreadPoolExecutor(max_workers=len(orders)) as pool:

        def download(day: str) -> None:
            try:
                answer = _get(f"{service.url}/{day}")
            except HTTPError:
                return  # people log a warning here
            (scene.landing / f"{day}.json").write_text(answer, encoding="utf-8")

        scene.landing.mkdir(parents=True)
        list(pool.map(download, orders))
    rows = scene.spark.read.schema(DDL).json(str(scene.landing)).withColumn("dt", F.to_date("ordered_at"))
    rows.write.format("delta").partitionBy("dt").mode("append").save(scene.table)
    facts = {"days": len(orders), "refused": service.refused, "peak": service.peak, "served_at_most": MAX_READERS}
    return Case("all_at_once", scene.wrong(_truth(orders)), facts)


def safe(scene: Scene, orders: dict[str, list[Order]]) -> Case:
    """The same days in chunks: a chunk is one Spark job, which has no more tasks at work than there are cores."""
    spec = SPEC.model_copy(update={"start": FIRST_DAY, "live": None})
    first, last = min(orders), max(orders)
    with serving(orders) as service:
        source = OrderService(scene.spark, service.url)
        SafeTable(scene, spec).launch(first, last, source, max_partitions_per_chunk=DAYS_PER_CHUNK)
    facts = {"days": len(orders), "refused": service.refused, "peak": service.peak, "served_at_most": MAX_READERS}
    return Case("safe", scene.wrong(_truth(orders)), facts)


def _truth(orders: dict[str, list[Order]]) -> list[Order]:
    return [order for made in orders.values() for order in made]


def _get(url: str) -> str:
    with urlopen(url, timeout=30) as answer:  # noqa: S310 (our own service on this machine)
        return answer.read().decode("utf-8")


# -- a source of one's own ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OrderService(Source[DataFrame]):
    """History behind a service that answers a day at a time."""

    spark: SparkSession
    url: str

    def complete_until(self) -> datetime | None:
        """Return the end of the newest day that the service has."""
        newest = max(self._counts())
        return datetime.fromisoformat(newest).replace(tzinfo=UTC) + timedelta(days=1)

    def survey(self, partitions: Sequence[Partition]) -> dict[str, Survey]:
        """Return how many orders the service says that each day has."""
        counts = self._counts()
        return {
            p.key: Survey(hashlib.sha256(f"{p.key}:{counts.get(p.key)}".encode()).hexdigest()[:16]) for p in partitions
        }

    def scan(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Scan[DataFrame]:
        """Prepare the one read of these days: a task a day, and as many at a time as Spark has cores."""
        del surveys
        counts, url = self._counts(), self.url

        def lines_of_day(day: str) -> list[str]:  # runs in Spark's workers, where a refusal fails the whole job
            from urllib.request import urlopen

            with urlopen(f"{url}/{day}", timeout=30) as answer:  # noqa: S310 (our own service on this machine)
                return answer.read().decode("utf-8").splitlines()

        read = F.udf(
            lines_of_day, "array<string>", useArrow=False
        ).asNondeterministic()  # so that it is called once a day
        days = self.spark.createDataFrame([(p.key,) for p in partitions], "day string").repartition(len(partitions))
        lines = days.select(F.explode(read("day")).alias("line"))
        rows = lines.select(F.from_json("line", DDL, {"mode": "FAILFAST"}).alias("order")).select("order.*")
        return Scan(rows, {"kind": "service", "url": url}, {p.key: Evidence(counts.get(p.key, 0)) for p in partitions})

    def _counts(self) -> dict[str, int]:
        return {day: int(rows) for day, rows in (line.split() for line in _get(f"{self.url}/").splitlines())}


# -- the service -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Service:
    """The old system's service: one day's orders a request, for a few readers at once, and a refusal for the others.

    Args:
        peak: The most readers that were there at once, the refused included.
        refused: How many were sent away.
    """

    orders: Mapping[str, list[Order]]
    url: str = ""
    peak: int = 0
    refused: int = 0
    _here: int = 0
    _seats: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MAX_READERS))
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, day: str) -> tuple[int, str]:
        """Answer one request: a day's orders, or without a day how many orders each has."""
        with self._counting:
            self._here += 1
            self.peak = max(self.peak, self._here)
        try:
            time.sleep(LOG_IN_SECONDS)  # a database too says "too many clients" only after it has greeted them
            if not self._seats.acquire(blocking=False):
                with self._counting:
                    self.refused += 1
                return 503, "too many readers\n"
            try:
                if not day:
                    return 200, "".join(f"{name} {len(made)}\n" for name, made in self.orders.items())
                time.sleep(QUERY_SECONDS)
                return 200, lines_of(self.orders[day])
            finally:
                self._seats.release()
        finally:
            with self._counting:
                self._here -= 1


@contextmanager
def serving(orders: Mapping[str, list[Order]]) -> Iterator[Service]:
    """Serve orders over HTTP on this machine for as long as the block lasts."""
    service = Service(orders)

    class Requests(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = service.answer(self.path.strip("/"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode("utf-8"))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the library's name)
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # whoever waits in front of the door is not refused yet
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Requests)
    service.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, name="service")
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
