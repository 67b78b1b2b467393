"""`kind: version`: history in an earlier version of the same table, read at a pinned version."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import AuditRule, Evidence, Finding
from backfill_assets.core.history.ports import Scan, Source
from backfill_assets.core.spec.history import history_of
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.spec.version_source import VersionSpec
from backfill_assets.core.sql import inside_or_nowhere, instant_literal, replace_where
from backfill_assets.core.state.fence import Fence
from backfill_assets.core.state.surveys import Survey
from backfill_assets.core.state.tallies import Tally
from backfill_assets.sources.context import InputTable, SourceContext
from backfill_assets.sources.files.listing import newest_change
from backfill_assets.sources.files.text_values import is_row
from backfill_assets.spark.expressions import collected, column, is_no_partition
from backfill_assets.spark.storage import literal_path
from backfill_assets.spark.version_rows import PROBLEM, rows_as

EXAMPLES = 3
_AN_INSTANT = timedelta(microseconds=1)


class EarlierVersion(InputTable, Protocol):
    """What is needed of the version before."""

    def fence(self) -> Fence | None:
        """Return where history ends and the live stream begins; None for a table without a stream."""
        ...

    def landed_until(self) -> datetime | None:
        """Return when the newest file landed that its stream has written; None where it has written nothing."""
        ...


def build(source: VersionSpec, context: SourceContext) -> VersionSource | RetiredSource:
    """Return the earlier version that a spec names."""
    if not context.inputs:
        return RetiredSource()
    (before,) = context.inputs
    live = before.spec.live
    return VersionSource(context, cast("EarlierVersion", before), context.landing_path(live.path) if live else "")


class RetiredSource(Source[DataFrame]):
    """An earlier version that is given up: there is nothing any more, and what was copied from it stays as it is."""

    def complete_until(self) -> datetime | None:
        """There is nothing at all."""
        return None

    def survey(self, partitions: Sequence[Partition]) -> dict[str, Survey]:
        """Return that there is nothing of any partition."""
        return {partition.key: Survey("", files=0) for partition in partitions}

    def scan(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Scan[DataFrame]:
        """Nothing is ever complete, so nothing is read."""
        raise AssertionError("what is not complete is not launched")


@dataclass(slots=True)
class VersionSource(Source[DataFrame]):
    """A new version of a table, made of the rows that the version before has.

    | the new version has | the source is complete until |
    |---|---|
    | a stream of its own | the version before has its history, and its stream has drained what landed until then |
    | none | now: the newest partition is copied as it is, and is stale as soon as the version before writes it again |

    A partition's fingerprint names the files in which the version before keeps its rows. So a live batch, a launch and
    an undo there all make it stale here, and one more launch makes it right: nothing has to be followed commit by
    commit, and nothing can be missed or come twice.

    Args:
        landing: Folder of the events of the version before; empty if it has no stream.
        now: The clock.
        drained_until: Given the clock, returns the instant such that the version before has all that landed earlier, by
            what its stream has listed; None where that is not known.
    """

    context: SourceContext
    before: EarlierVersion
    landing: str
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    drained_until: Callable[[Callable[[], datetime]], datetime | None] = field(default=lambda _: None)

    @property
    def _spec(self) -> TableSpec:
        return self.context.spec

    def complete_until(self) -> datetime | None:
        """Return the instant up to which the version before has all that it will have; None where it has nothing."""
        if not self.before.exists():
            return None
        self.before.refuse_other_facts()
        if self._spec.live is None:
            newest = self._newest_end()
            start = self._spec.grid.start_utc
            return newest and self._spec.grid.partition_of(max(newest - _AN_INSTANT, start)).window.end_utc
        fence, published = self.before.fence(), self._published()
        if fence is None or (drained := self.landed_until()) <= fence.at_utc:
            return published[-1].window.end_utc if published else None
        return drained

    def survey(self, partitions: Sequence[Partition]) -> dict[str, Survey]:
        """Return, for each partition, the files in which the version before has its rows, and the version to read."""
        if not partitions:  # so it is while the version before was never made: then it has no files to tell of
            return {}
        version = self.before.version()
        here = column(self.before.spec.partition_column).alias("value")
        file = F.struct(F.col("_metadata.file_path").alias("path"), F.col("_metadata.file_size").alias("size_bytes"))
        files = self.before.read(version).select(here, file.alias("file")).distinct()
        named = files.groupBy(F.col("value").cast("string").alias("value")).agg(
            F.sort_array(F.collect_list("file")).alias("files")
        )
        by_value: dict[str, list[Any]] = {row["value"]: row["files"] for row in collected(named)}
        surveys: dict[str, Survey] = {}
        there = self._is_there(partitions)
        for partition in partitions:
            digest, count, size_bytes = hashlib.sha256(), 0, 0.0
            for needed in self._needed([partition]):
                for file in by_value.get(str(needed.value), []):
                    digest.update(f"{needed.key}:{file['path']}\n".encode())
                    count += 1
                    size_bytes += file["size_bytes"] * needed.window.share_in(partition.window)
            is_expected = there[partition.key] or count > 0  # rows that no launch has published are rows all the same
            surveys[partition.key] = Survey(
                digest.hexdigest()[:16], int(size_bytes), content=version, files=count, is_expected=is_expected
            )
        return surveys

    def scan(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Scan[DataFrame]:
        """Prepare the one read of these partitions, at the version that was surveyed."""
        version: int = surveys[partitions[0].key].content
        position: dict[str, Any] = {"kind": "version", "versions": {self.before.spec.key: version}}
        return Scan(self._rows(partitions, version), position, self._evidence(partitions), is_of_one_moment=True)

    def foretell(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Mapping[str, Evidence]:
        """Say which partitions the version before has not published."""
        del surveys
        return self._evidence(partitions)

    def check_schema(self, partitions: Sequence[Partition]) -> list[str]:
        """Hold what `version_of` says against the columns that the version before has."""
        if partitions and self.before.exists():
            rows_as(self._spec, self.before.spec, self.before.read().limit(0))
        return []

    def makes_chunks_at_once(self) -> bool:
        """Say whether rows are computed, by expressions that might look at other rows of a chunk."""
        return bool(self._spec.version_of and self._spec.version_of.computed)

    def examine(self, suspects: Mapping[str, Tally], surveys: Mapping[str, Survey]) -> dict[str, list[Finding]]:
        """Name the values that the new types cannot hold."""
        found: dict[str, list[Finding]] = {}
        for key in (key for key, tally in suspects.items() if tally.unreadable_rows):
            bad = self._rows([self._spec.grid.partition(key)], surveys[key].content).where(F.col(PROBLEM).isNotNull())
            named = bad.groupBy(PROBLEM).agg(F.count(F.lit(1)).alias("n")).orderBy(F.desc("n")).limit(EXAMPLES)
            what = "; ".join(f"{row['n']:,} rows: {row[PROBLEM]}" for row in collected(named))
            rows = suspects[key].unreadable_rows
            said = f"of `{self.before.spec.key}` {what}; see `version_of`."
            found[key] = [Finding(AuditRule.VALUES_FIT_THEIR_TYPES, rows, said)]
        return found

    def _rows(self, partitions: Sequence[Partition], version: int) -> DataFrame:
        needed = self._needed(partitions)
        rows = self.before.read(version)
        rows = rows.where(replace_where(self.before.spec.partition_column, needed)) if needed else rows.limit(0)
        return rows_as(self._spec, self.before.spec, rows).where(inside_or_nowhere(self._spec, partitions))

    def _needed(self, partitions: Sequence[Partition]) -> list[Partition]:
        """Return the partitions of the version before in which rows of some partitions are."""
        grid = self.before.spec.grid
        return sorted({needed for partition in partitions for needed in grid.covering(partition.window)})

    def _evidence(self, partitions: Sequence[Partition]) -> dict[str, Evidence]:
        """Refuse partitions of which the version before has published nothing at all; what it has of others is all."""
        what = f"`{self.before.spec.key}` has published nothing of it."
        none = Evidence(None, (Finding(AuditRule.SOURCE_IS_PRESENT, 0, what),))
        return {key: Evidence(None) if known else none for key, known in self._is_there(partitions).items()}

    def _is_there(self, partitions: Sequence[Partition]) -> dict[str, bool]:
        """Say of which partitions the version before has published anything: what it has of them is all.

        So it is of those before the beginning of its history: nothing is published there, and nothing will be.
        """
        published, fence = self.before.published(), self.before.fence()
        begin_utc = history_of(self.before.spec).start_utc

        def is_there(needed: Partition) -> bool:
            window = needed.window
            is_streamed = fence is not None and window.end_utc > fence.at_utc
            return needed.key in published or window.end_utc <= begin_utc or is_streamed

        return {partition.key: any(map(is_there, self._needed([partition]))) for partition in partitions}

    def _published(self) -> list[Partition]:
        return self.before.spec.grid.from_start(self.before.published())

    def _newest_end(self) -> datetime | None:
        """Return the end of the newest partition that the version before has rows of, or has published.

        Somebody may have written rows of days that are no partition of it, and lie beyond every one.
        """
        newest = F.max(column(self.before.spec.partition_column)).cast("string")
        (row,) = self.before.read().where(~is_no_partition(self.before.spec)).agg(newest.alias("value")).collect()
        grid, published = self.before.spec.grid, self._published()
        ends = [published[-1].window.end_utc] if published else []
        ends += [grid.partition(grid.key_of(row["value"])).window.end_utc] if row["value"] else []
        return max(ends, default=None)

    def landed_until(self) -> datetime:
        """Return the instant such that all that landed before it is in the version before: now, if nothing waits.

        Where nobody knows which files its stream has listed, their times decide.
        """
        if (known := self.drained_until(self.now)) is not None:
            return known
        now = self.now()
        written = self.before.landed_until()
        newest = newest_change(self.context.spark, self.landing)
        if newest is None or (written is not None and newest <= written):
            return now
        since = written or datetime.min.replace(tzinfo=UTC)
        return since if self._has_lines_since(since) else now

    def _has_lines_since(self, since: datetime) -> bool:
        """Say whether what landed after an instant is more than white space, of which no batch tells when it landed."""
        reader = self.context.spark.read.format("text").option("recursiveFileLookup", "true")
        lines = reader.load(literal_path(self.landing))
        is_later = F.col("_metadata.file_modification_time") > F.expr(instant_literal(since))
        return bool(lines.where(is_later & is_row("value")).head(1))
