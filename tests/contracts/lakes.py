"""Every implementation of `Lake` and `LiveLake` in the same clothes: a shop of a few orders over lists, and one over Delta.

A shop makes what only its own engine can make (frames of rows, another reader's view); everything else the tests of the
contracts do through the two Protocols. Tables of Delta are read back with delta-rs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.ports import Commit, Scan
from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import quoted
from backfill_assets.core.state.fence import Fence
from backfill_assets.core.state.receipts import PartitionReceipt, Receipt
from backfill_assets.core.state.surveys import NO_LATE, Late
from backfill_assets.core.state.tallies import EMPTY
from tests.support.fake_lake import FakeLake
from tests.support.fake_live import FakeLiveLake
from tests.support.fakes import HOME, PROBLEM, Row, partition_key_of, run_with
from tests.support.live_shop import live_spec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPEC = live_spec(live={"path": "events", "starts": "2024-01-05"})
DAYS = ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04")
"""History; the live stream owns what comes after it."""
LIVE_DAY = "2024-01-05"
FENCE = Fence(datetime(2024, 1, 5, tzinfo=UTC))


def spec_with(**changes: Any) -> TableSpec:
    """Return the spec with some fields changed."""
    return TableSpec.model_validate({**SPEC.model_dump(exclude_unset=True), **changes})


def parts(*days: str) -> list[Partition]:
    return [SPEC.grid.partition(day) for day in days]


def order(order_id: int | None, day: str, *, amount: str | None = "1.25", updated: str | None = "2024-02-01") -> Row:
    """Return an order of a day; a later `updated` is a later version of the same order."""
    updated_at = None if updated is None else datetime.fromisoformat(updated).replace(tzinfo=UTC)
    ordered_at = datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC).replace(hour=6)
    return {
        "order_id": order_id,
        "amount": None if amount is None else Decimal(amount),
        "ordered_at": ordered_at,
        "updated_at": updated_at,
    }


def orders(day: str, count: int = 2, *, amount: str = "1.25") -> list[Row]:
    """Return the orders of a day, numbered by it: those of 2024-01-03 are 30, 31 and so on."""
    return [order(10 * int(day[-2:]) + n, day, amount=amount) for n in range(count)]


def multiset(rows: Iterable[Row]) -> Counter[tuple[Any, ...]]:
    """Return rows without their order, each as often as it comes."""
    return Counter(tuple(row[name] for name in SPEC.columns) for row in rows)


class FakeShop:
    """A table over lists."""

    def __init__(self, spec: TableSpec = SPEC) -> None:
        self.spec = spec
        self.lake = FakeLake(spec, is_made=False)
        self.live = FakeLiveLake(self.lake)

    def with_spec(self, spec: TableSpec) -> FakeLake:
        """Return the same table as another spec sees it."""
        other = FakeLake(spec, is_made=False)
        other.versions, other.columns, other.late_rows = self.lake.versions, self.lake.columns, self.lake.late_rows
        return other

    def frame(self, rows: Iterable[Row]) -> list[Row]:
        return list(rows)

    def frame_of_files(self, files: Mapping[str, Sequence[Row]]) -> tuple[list[Row], dict[Any, str]]:
        """Return rows with the number of the file that has them; and whose partition each file is."""
        numbers = dict(enumerate(files, start=1_000))
        return [{**row, HOME: n} for n, key in numbers.items() for row in files[key]], numbers

    def quarantined(self, *lines: str) -> list[Row]:
        """Return what is no event, as a batch gives it."""
        return [{"line": line, PROBLEM: "no event"} for line in lines]

    def append_as_somebody_else(self, rows: Sequence[Row]) -> None:
        """Append rows in one commit that carries nothing of ours."""
        there = self.lake.versions[-1].rows
        keys = {str(partition_key_of(self.spec, row)) for row in rows}
        self.lake.commit_as_somebody_else(
            {key: [*there.get(key, ()), *(r for r in rows if partition_key_of(self.spec, r) == key)] for key in keys}
        )

    def clean_up(self, version: int) -> None:
        """Delete what only one version has."""
        self.lake.cleaned_up.add(version)

    def lose(self, day: str) -> None:
        """Remove the files of one partition that its newest version has."""
        self.lake.unreadable_now[day] = "its file does not exist"
        newest = max(n for n, version in enumerate(self.lake.versions) if day in version.touched)
        self.lake.lost[newest] = ["its file"]

    def forget_commits(self) -> None:
        """Delete what the log has of each commit, and keep what the table is by them."""
        self.lake.versions[:] = [replace(version, metadata=None) for version in self.lake.versions]

    # -- what another reader sees --------------------------------------------------------------------------------------

    def rows(self, version: int | None = None) -> list[Row]:
        seen = self.lake.versions[-1 if version is None else version].rows
        return [row for rows in seen.values() for row in rows]

    def late_rows(self) -> list[Row]:
        return self.lake.late_rows

    def quarantine(self) -> list[str]:
        return sorted(row["line"] for row in self.live.quarantined())

    def is_anything_there(self) -> bool:
        return bool(self.lake.versions)


class DeltaShop:
    """A table of Delta, written by Spark and read back with delta-rs."""

    def __init__(self, spark: SparkSession, path: Path, spec: TableSpec = SPEC, *, by_public_api: bool = False) -> None:
        from backfill_assets.lake.table import LakeTable
        from backfill_assets.live.live_table import LiveTable

        self.spark, self.spec, self.path = spark, spec, path
        self.lake = LakeTable(spark, spec, str(path), lock_timeout_seconds=20, by_public_api=by_public_api)
        self.live = LiveTable(self.lake)

    def with_spec(self, spec: TableSpec) -> Any:
        """Return the same table as another spec sees it."""
        return replace(self.lake, spec=spec)

    def frame(self, rows: Iterable[Row]) -> DataFrame:
        """Return rows with the partition column, as a live batch has it."""
        from backfill_assets.spark.expressions import column, partition_value

        return self._frame(rows).withColumn(
            self.spec.partition_column, partition_value(self.spec, column(self.spec.event_time))
        )

    def frame_of_files(self, files: Mapping[str, Sequence[Row]]) -> tuple[DataFrame, dict[Any, str]]:
        """Return rows with the number of the file that has them; and whose partition each file is."""
        numbers = dict(enumerate(files, start=1_000))
        rows = [{**row, HOME: n} for n, key in numbers.items() for row in files[key]]
        return self._frame(rows, {HOME: "bigint", PROBLEM: "string"}), numbers

    def quarantined(self, *lines: str) -> DataFrame:
        """Return what is no event, as a batch gives it."""
        rows = [(line, "no event", "0001.json") for line in lines]
        return self.spark.createDataFrame(rows, "line string, reason string, file string")

    def append_as_somebody_else(self, rows: Sequence[Row]) -> None:
        """Append rows in one commit that carries nothing of ours."""
        self.frame(rows).write.format("delta").mode("append").save(str(self.path))

    def clean_up(self, version: int) -> None:
        """Delete what only one version has."""
        kept = set(deltalake.DeltaTable(str(self.path)).file_uris())
        for file in set(deltalake.DeltaTable(str(self.path), version=version).file_uris()) - kept:
            Path(file).unlink()

    def lose(self, day: str) -> None:
        """Remove the files of one partition that its newest version has."""
        for file in deltalake.DeltaTable(str(self.path)).file_uris([(self.spec.partition_column, "=", day)]):
            Path(file).unlink()

    def forget_commits(self) -> None:
        """Delete what the log has of each commit, and keep what the table is by them."""
        deltalake.DeltaTable(str(self.path)).create_checkpoint()
        for commit in sorted((self.path / "_delta_log").glob("*.json"))[:-1]:  # Delta keeps the newest
            commit.unlink()

    # -- what another reader sees --------------------------------------------------------------------------------------

    def rows(self, version: int | None = None) -> list[Row]:
        return deltalake.DeltaTable(str(self.path), version=version).to_pyarrow_table().to_pylist()

    def late_rows(self) -> list[Row]:
        return deltalake.DeltaTable(f"{self.path}_late").to_pyarrow_table().to_pylist()

    def quarantine(self) -> list[str]:
        found = deltalake.DeltaTable(f"{self.path}_quarantine").to_pyarrow_table().to_pylist()
        return sorted(row["line"] for row in found)

    def is_anything_there(self) -> bool:
        return any(self.path.parent.glob(f"{self.path.name}*"))

    def _frame(self, rows: Iterable[Row], more: Mapping[str, str] | None = None) -> DataFrame:
        types = {name: column.type for name, column in self.spec.columns.items()} | dict(more or {})
        ddl = ", ".join(f"{quoted(name)} {kind}" for name, kind in types.items())
        return self.spark.createDataFrame([tuple(row.get(name) for name in types) for row in rows], ddl)


Shop = FakeShop | DeltaShop


# -- what a launch does, step by step ----------------------------------------------------------------------------------


def scan_of(shop: Shop, files: Mapping[str, Sequence[Row]]) -> Scan[Any]:
    """Return the scan of a source that keeps one file for each partition."""
    rows, partition_by_file = shop.frame_of_files(files)
    return Scan(rows, {"kind": "test"}, {}, partition_by_file)


def scan_by_time(shop: Shop, rows: Sequence[Row]) -> Scan[Any]:
    """Return the scan of a source that keeps rows by their event time alone."""
    scanned, _ = shop.frame_of_files({DAYS[0]: rows})
    return Scan(scanned, {"kind": "test"}, {})


def stage(shop: Shop, scan: Scan[Any], late: Late = NO_LATE) -> StagedChunk[Any]:
    """Stage rows as a launch does, so that they can be published."""
    lake: Any = shop.lake
    return lake.stage(scan, late, publish_after=lake.version())


def receipt_for(shop: Shop, staged: StagedChunk[Any], days: Sequence[str], **changes: Any) -> Receipt:
    """Return a receipt as a launch makes it before it overwrites."""
    version = shop.lake.version()
    receipts = {
        day: PartitionReceipt.of(
            staged.tallies.get(day, EMPTY), fingerprint="f", superseded_rows=staged.superseded_rows.get(day, 0)
        )
        for day in days
    }
    run = run_with(changes)
    return replace(Receipt(f"receipt {version}", "bronze/orders", run, version, {"kind": "test"}, receipts), **changes)


def publish(shop: Shop, files: Mapping[str, Sequence[Row]], **changes: Any) -> Commit:
    """Stage the files of some partitions and overwrite these."""
    lake: Any = shop.lake
    with stage(shop, scan_of(shop, files), lake.late(parts(*files))) as staged:
        return lake.overwrite(staged, parts(*files), receipt_for(shop, staged, list(files), **changes))
