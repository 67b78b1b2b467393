"""A table held against its source, or against its receipts, inside a run."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.comparison import Comparison, compare, read_back
from backfill_assets.core.history.reconcile import reconcile
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.partition_status import Known, lost_at_source
from backfill_assets.core.state.receipts import audited_contents, has_other_columns
from backfill_assets.core.state.tallies import EMPTY, Tally
from backfill_assets.errors import SourceIncompleteError
from backfill_assets.runs.partitions import to_be_judged
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.table import Table

if TYPE_CHECKING:
    from backfill_assets.lake.table import LakeTable


def reconcile_table(
    table: "Table", specs: Mapping[str, TableSpec], lakehouse: Lakehouse, wanted: Sequence[Partition], log: Any
) -> Iterator[Comparison]:
    """Read source and table afresh and compare them, partition by partition.

    Raises:
        SourceIncompleteError: The source is complete for none of them.
        SameTableError: The source lies among the lakehouse's tables.
        SchemaMismatchError: The table has other columns than its spec.
    """
    delta = lakehouse.table(table.spec, log)
    delta.refuse_another_schema()
    source = lakehouse.source(table.spec, specs, table.transform() if table.transform else None, log)
    yield from reconcile(table.spec, wanted, source, delta, code_version=table.code_version, log=log)


def complete_partitions(
    table: "Table", specs: Mapping[str, TableSpec], lakehouse: Lakehouse, log: Any
) -> list[Partition]:
    """Return all partitions that are to be compared: history for which the source is complete, or was.

    Raises:
        SourceIncompleteError: It is complete for none.
    """
    source, delta = lakehouse.source(table.spec, specs, None, log), lakehouse.table(table.spec, log)
    until, published = source.complete_until(), delta.published()
    bounds = Known(published, fence=delta.fence(), complete_until=until, is_source_known=True)
    complete = to_be_judged(table.spec, bounds, datetime.now(UTC))
    if table.spec.changes and table.spec.changes.backfill == "excluded":
        surveys = source.survey(complete)
        complete = [partition for partition in complete if surveys[partition.key].is_expected]
    lost = lost_at_source(table.spec.grid.from_start(published), bounds)
    if not complete and not lost:
        raise SourceIncompleteError(
            f"`{table.spec.key}`: its source has nothing yet.",
            state="Nothing was compared.",
            remedy="Run it again when the source has a whole partition.",
        )
    return sorted([*complete, *(status.partition for status in lost)])


def compare_with_receipts(
    wanted: Sequence[Partition],
    delta: "LakeTable",
    code_version: str,
    read: Mapping[str, tuple[int, Tally]] | None = None,
) -> tuple[list[Comparison], list[Partition]]:
    """Read partitions of the table back and hold them against their receipts, both as of one version of the table.

    Args:
        code_version: Of the code that reads. What was published with other columns is held against its receipt by
            count alone.
        read: What this run has read already, by partition key, each with a version after which it was; it counts if
            nobody has written the partition since.

    Returns:
        The comparisons; and the partitions with which nothing is to be compared: those without a receipt, and those
        that were put back as the receipt says, since nobody has held such rows against the source.
    """
    if not wanted:
        return [], []
    version = delta.version()
    published = delta.published(until=version)
    present = [partition for partition in wanted if partition.key in published]
    tallies = _still_so(delta, present, read or {}, version)
    unread = [partition for partition in present if partition.key not in tallies]
    unique = audited_contents(published, unread, delta.spec, code_version)
    found, unreadable = read_back(delta, unread, version=version, unique=unique) if unread else ({}, {})
    if known := [partition for partition in present if partition.key in tallies]:
        unreadable = {**unreadable, **delta.unreadable(known, version=version, reads=False)}
    tallies |= found
    schema_problems = delta.schema_problems() if present else []
    compared = [
        compare(
            partition,
            table=tallies.get(partition.key, EMPTY),
            source=published[partition.key].partition,
            schema_problems=schema_problems,
            has_other_columns=has_other_columns(published[partition.key].receipt, delta.spec),
            unreadable=unreadable.get(partition.key, ""),
        )
        for partition in present
    ]
    known = {c.partition for c in compared if c.failures or published[c.partition.key].receipt.kind != "put_back"}
    return [c for c in compared if c.partition in known], [p for p in wanted if p not in known]


def _still_so(
    delta: "LakeTable", partitions: Sequence[Partition], read: Mapping[str, tuple[int, Tally]], version: int
) -> dict[str, Tally]:
    """Return of what was read before what has the same files, of the same columns, at a version.

    A commit that says that it changes no data may be wrong, and a column can be dropped and added again.
    """
    since = {partition: read[partition.key][0] for partition in partitions if partition.key in read}
    return {partition.key: read[partition.key][1] for partition in delta.left_alone(since, until=version)}
