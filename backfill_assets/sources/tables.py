"""`kind: delta`: history in other tables of the lakehouse, read at pinned versions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.calendar.windows import Grain
from backfill_assets.core.history.audit import AuditRule, Evidence, Finding
from backfill_assets.core.history.downstream import window_read
from backfill_assets.core.history.ports import Scan, Source
from backfill_assets.core.schema.compare import Observed
from backfill_assets.core.spec.source_spec import Input
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.spec.tables import TablesSpec
from backfill_assets.core.sql import inside_or_nowhere, quoted, replace_where
from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.core.state.surveys import Survey
from backfill_assets.errors import NOTHING_WRITTEN, SchemaMismatchError
from backfill_assets.sources.context import InputTable, SourceContext

Transform = Callable[..., DataFrame]
"""Takes one frame for each input table, in the spec's order, and returns rows of the spec's columns."""


def build(source: TablesSpec, context: SourceContext) -> TablesSource:
    """Return the tables that a spec names, and what its transform makes of them."""
    return TablesSource(context.spec, source, context.inputs, context.transform)


@dataclass(slots=True)
class TablesSource(Source[DataFrame]):
    """A table that is made of others by a transform; or, with one input and no transform, a copy of it.

    A partition is complete when every partition of every input that it needs has a receipt. Its fingerprint names
    those receipts, so a newer one makes it stale.
    """

    spec: TableSpec
    source: TablesSpec
    inputs: Sequence[InputTable]
    transform: Transform | None = None
    _receipts: dict[tuple[str, int], dict[str, PublishedPartition]] = field(default_factory=dict, init=False)
    _newest: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)

    def complete_until(self) -> datetime | None:
        """Return the end of the last partition for which every input has receipts, as far ahead as it looks."""
        ends: list[datetime] = []
        for table, offsets in zip(self.inputs, self.source.tables, strict=True):
            published = table.spec.grid.from_start(self._published(table)[1])
            if not published:
                return None
            end, grid = published[-1].window.end_utc, self.spec.grid
            for _ in range(offsets.end_offset):
                end = grid.previous(grid.partition_of(max(end, grid.start_utc))).window.start_utc
            ends.append(end)
        return min(*ends, datetime.now(UTC))  # what is made of a version that is followed ends with what has ended

    def check_schema(self, partitions: Sequence[Partition]) -> list[str]:
        """Hold the spec against what the transform returns for no rows."""
        if not partitions:
            return []
        have = self.columns()
        problems = [f"`{name}` is missing" for name in self.spec.columns if name not in have]
        problems += [
            f"`{name}` is `{have[name]}`, not `{column.type}`"
            for name, column in self.spec.columns.items()
            if name in have and have[name] != column.type
        ]
        if problems:
            raise SchemaMismatchError(
                f"`{self.spec.key}`: what its transform returns differs from its spec: {'; '.join(problems)}.",
                state=NOTHING_WRITTEN,
                remedy="Cast or rename in the transform, or change the columns of the spec.",
                problems=problems,
            )
        ignored = [name for name in have if name not in self.spec.columns]
        return (
            [f"`{self.spec.key}`: the transform also returns {ignored}, which the spec does not name; left out."]
            if ignored
            else []
        )

    def observed_columns(self) -> list[Observed]:
        """Return what the transform makes now; nothing while an input is not there."""
        return [Observed("", self.columns())] if all(table.exists() for table in self.inputs) else []

    def columns(self) -> dict[str, str]:
        """Return the columns, and their types, of what the transform makes of no rows."""
        frame = self._transformed([table.read().limit(0).drop(table.spec.partition_column) for table in self.inputs])
        return {field.name: field.dataType.simpleString() for field in frame.schema.fields}

    def survey(self, partitions: Sequence[Partition]) -> dict[str, Survey]:
        """Return, for each partition, the receipts of what it is made of and the versions to read them at."""
        seen = [self._published(table) for table in self.inputs]
        versions, published = tuple(version for version, _ in seen), [receipts for _, receipts in seen]
        surveys: dict[str, Survey] = {}
        for partition in partitions:
            digest = hashlib.sha256()
            for table, receipts, offsets in zip(self.inputs, published, self.source.tables, strict=True):
                for needed in self._needed(partition, table, offsets):
                    receipt = receipts.get(needed.key)
                    digest.update(
                        f"{table.spec.key}:{needed.key}:{receipt.receipt.receipt_id if receipt else ''}\n".encode()
                    )
            surveys[partition.key] = Survey(digest.hexdigest()[:16], content=versions)
        return surveys

    def scan(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Scan[DataFrame]:
        """Prepare the one read of these partitions, at the versions that were surveyed."""
        versions = surveys[partitions[0].key].content
        evidence = self._evidence(partitions, versions)
        present = [p for p in partitions if not evidence[p.key].findings]
        tables = [table.read(version) for table, version in zip(self.inputs, versions, strict=True)]
        position = {
            "kind": "delta",
            "versions": {table.spec.key: version for table, version in zip(self.inputs, versions, strict=True)},
        }
        if not present:  # a transform may make a row of nothing
            return Scan(self._made(tables, present).limit(0), position, evidence)
        if self.transform is None or not self.source.is_called_for_each:
            return Scan(self._made(tables, present), position, evidence)
        made_for = {-1 - number: p.key for number, p in enumerate(present)}  # numbers of late rows are not negative
        rows = [
            self._made(tables, [p]).withColumn("_ba_file_id", F.lit(number).cast("bigint"))
            for number, p in zip(made_for, present, strict=True)
        ]
        return Scan(_union(rows), position, evidence, made_for)

    def foretell(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Mapping[str, Evidence]:
        """Say which inputs have no receipt, and of a copy how many rows it will have."""
        return self._evidence(partitions, surveys[partitions[0].key].content)

    def makes_chunks_at_once(self) -> bool:
        """Say whether one call of the transform makes a whole chunk; a copy makes nothing."""
        return self.transform is not None and not self.source.is_called_for_each

    def _made(self, tables: Sequence[DataFrame], partitions: Sequence[Partition]) -> DataFrame:
        """Return what one call of the transform makes of what some partitions are made of: rows of these alone."""
        frames = [
            self._input_rows(table, rows, partitions, offsets)
            for table, rows, offsets in zip(self.inputs, tables, self.source.tables, strict=True)
        ]
        made = self._transformed(frames).select(*(quoted(name) for name in self.spec.columns))
        return made if self._reads_just_its_own() else made.where(inside_or_nowhere(self.spec, partitions))

    def _reads_just_its_own(self) -> bool:
        """Say whether the input partitions of one partition hold no other partition's rows."""
        fits = {self.spec.grain, Grain.HOURLY} | ({Grain.DAILY} if self.spec.grain is not Grain.HOURLY else set())
        return all(
            not source.start_offset and not source.end_offset and table.spec.grain in fits
            for table, source in zip(self.inputs, self.source.tables, strict=True)
        )

    def _published(self, table: InputTable) -> tuple[int, dict[str, PublishedPartition]]:
        """Return a version of a table and the newest receipts that it has; read once for each version.

        Raises:
            TableFactsError: The table is not what its spec says: by another grain or zone its receipts name other
                times, and only some of its rows would be looked for.
        """
        if not table.exists():
            return -1, {}
        name, found = table.spec.key, table.version()
        if self._newest.get(name, (-1, -1))[0] != found:
            table.refuse_other_facts()
            receipts = table.published()
            version = max([found, *(receipt.version for receipt in receipts.values())])  # commits may have come between
            self._receipts[name, version] = receipts
            self._newest[name] = (found, version)
        version = self._newest[name][1]
        return version, self._receipts[name, version]

    def _transformed(self, frames: list[DataFrame]) -> DataFrame:
        return frames[0] if self.transform is None else self.transform(*frames)

    def _needed(self, partition: Partition, table: InputTable, offsets: Input) -> list[Partition]:
        """Return the input's partitions that one partition is made of."""
        return table.spec.grid.covering(window_read(self.spec, partition, offsets))

    def _input_rows(
        self, table: InputTable, rows: DataFrame, partitions: Sequence[Partition], offsets: Input
    ) -> DataFrame:
        """Return those of the input's rows that some partitions are made of, in whole partitions."""
        needed = sorted({n for p in partitions for n in self._needed(p, table, offsets)})
        chosen = rows.where(replace_where(table.spec.partition_column, needed)) if needed else rows.limit(0)
        return chosen.drop(table.spec.partition_column)

    def _evidence(self, partitions: Sequence[Partition], versions: Sequence[int]) -> dict[str, Evidence]:
        """Return, for each partition, which of the partitions that it is made of had no receipt at those versions.

        For a copy the receipts also say how many rows there are.
        """
        published = [
            self._receipts[table.spec.key, version] for table, version in zip(self.inputs, versions, strict=True)
        ]
        is_copy = self.transform is None and self._reads_just_its_own()
        found: dict[str, Evidence] = {}
        for partition in partitions:
            findings: list[Finding] = []
            raw_rows = 0
            for table, receipts, offsets in zip(self.inputs, published, self.source.tables, strict=True):
                needed = self._needed(partition, table, offsets)
                lacking = [n.key for n in needed if n.key not in receipts]
                if lacking:
                    what = (
                        f"`{table.spec.key}` has no receipt for {len(lacking)} of the {len(needed)} partitions that "
                        "this one "
                        f"is made of (first `{lacking[0]}`)."
                    )
                    findings.append(Finding(AuditRule.SOURCE_IS_PRESENT, 0, what))
                raw_rows += sum(receipts[n.key].partition.rows for n in needed if n.key in receipts)
            found[partition.key] = Evidence(raw_rows if is_copy else None, tuple(findings))
        return found


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    """Put frames of the same columns into one, in a plan that is no deeper than it must be."""
    if len(frames) == 1:
        return frames[0]
    middle = len(frames) // 2
    return _union(frames[:middle]).union(_union(frames[middle:]))
