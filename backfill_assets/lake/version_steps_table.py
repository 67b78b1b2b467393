"""`_versions` below the root: every step of every version of a table, one row each. A table that anyone can query."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pyspark.sql import SparkSession

from backfill_assets.core.spec.versions import name_of
from backfill_assets.core.state.version_steps import VersionStep
from backfill_assets.lake.delta_log import open_table
from backfill_assets.lake.saving import saving
from backfill_assets.lake.small_tables import frame_of, small_table_options
from backfill_assets.spark.failures import translated

_COLUMNS = (
    "at string, name string, what string, key string, before string, by string, reason string, versions string, "
    "rows bigint, equal boolean, switch_id string, detail string"
)
_LOCK_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class VersionStepsTable:
    """What was done to the versions of a lakehouse's tables. No decision rests on it but what is shown."""

    spark: SparkSession
    root_uri: str

    @property
    def path(self) -> str:
        return f"{self.root_uri}/_versions"

    def add(self, *steps: VersionStep) -> None:
        """Append steps, in one commit.

        Raises:
            TableLockedError, CommitConflictError: Another writer is there. Nothing was appended.
        """
        rows = [{**asdict(one), "name": name_of(one.key), "versions": json.dumps(dict(one.versions))} for one in steps]
        with saving(self.path, "_versions", timeout_seconds=_LOCK_TIMEOUT_SECONDS):
            frame_of(self.spark, rows, _COLUMNS).write.format("delta").mode("append").options(
                **small_table_options(self.spark, self.path)
            ).save(self.path)

    def of(self, name: str) -> list[VersionStep]:
        """Return the steps of all versions of a table, the oldest first.

        Raises:
            BackfillAssetsError: They cannot be read.
        """
        with translated("_versions"):
            rows = open_table(self.spark, self.path)
            if rows is None:
                return []
            found = [row.asDict() for row in rows.orderBy("at").collect() if row["name"] == name_of(name)]
        for one in found:
            one["versions"] = json.loads(one["versions"])
            del one["name"]
        return [VersionStep(**one) for one in found]
