"""`<table>_attempts`: what launches did not publish, one row for each partition that was refused, or for the launch.

No decision rests on it: it is for people, and for `backfill-assets history`. A table for which nothing was ever refused
has none.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.state.attempts import Attempt
from backfill_assets.lake.delta_log import open_table
from backfill_assets.lake.paths import attempts_path
from backfill_assets.lake.properties import TABLE_ID, read_properties
from backfill_assets.lake.saving import saving
from backfill_assets.lake.small_tables import frame_of, small_table_options

_COLUMNS = (
    "at string, outcome string, partition string, why string, version bigint, run_id string, root_run_id string, "
    "reason string, by string, table_id string"
)
_LOCK_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class AttemptsTable:
    """What was refused of one table, and which launches of it stopped or failed."""

    spark: SparkSession
    table: str
    table_path: str

    @property
    def path(self) -> str:
        return attempts_path(self.table_path)

    @property
    def _table_id(self) -> str:
        """Which table the attempts are of: one that was deleted and made again is another."""
        return (read_properties(self.spark, self.table_path) or {}).get(TABLE_ID, "")

    def add(self, attempt: Attempt) -> None:
        """Append an attempt.

        Raises:
            TableLockedError, CommitConflictError: Another writer is there. Nothing was appended.
        """
        of_all = {
            "at": attempt.at,
            "outcome": attempt.outcome,
            "version": attempt.version,
            "run_id": attempt.run_id,
            "root_run_id": attempt.root_run_id,
            "reason": attempt.reason,
            "by": attempt.by,
            "table_id": self._table_id,
        }
        rows = [{**of_all, "partition": key, "why": why} for key, why in attempt.partitions.items()]
        with saving(self.path, self.table, timeout_seconds=_LOCK_TIMEOUT_SECONDS):
            writer = frame_of(self.spark, rows or [{**of_all, "why": attempt.why}], _COLUMNS).write
            writer.format("delta").mode("append").options(**small_table_options(self.spark, self.path)).save(self.path)

    def all(self) -> list[Attempt]:
        """Return every attempt, the oldest first."""
        rows = open_table(self.spark, self.path)
        if rows is None:
            return []
        found: dict[tuple[str, str, str], Attempt] = {}
        of_this_table = rows.where(F.col("table_id") == self._table_id)
        for row in of_this_table.orderBy("at", "run_id", "partition").collect():
            name = row["at"], row["run_id"], row["outcome"]
            known = found.get(name)
            partitions = dict(known.partitions) if known else {}
            if row["partition"] is not None:
                partitions[row["partition"]] = row["why"]
            found[name] = Attempt(
                row["at"],
                row["outcome"],
                row["version"],
                row["run_id"],
                row["root_run_id"],
                reason=row["reason"],
                by=row["by"],
                why="" if partitions else row["why"],
                partitions=partitions,
            )
        return list(found.values())
