"""`_current` below the root: which version of each table readers are given. A table that anyone can read.

A switch replaces its whole content in one commit. That commit carries a number as a transaction of Delta, one more
than that of the switch before, and Delta takes none that is not higher: of two switches that were decided on the same
one, one is saved. The number is taken from the log, which never goes back; the rows do, when somebody restores them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from backfill_assets.core import sql
from backfill_assets.core.spec.versions import is_name, key_of, name_of, number_of
from backfill_assets.core.state.current_versions import (
    UNCHANGED,
    CurrentVersion,
    CurrentVersions,
    Switch,
    switched,
    without_spec,
)
from backfill_assets.errors import (
    BackfillAssetsError,
    CommitConflictError,
    ConfigurationError,
    SparkGoneError,
    VersionError,
)
from backfill_assets.lake.saving import saving
from backfill_assets.lake.small_tables import SMALL_TABLE, frame_of
from backfill_assets.spark.failures import translated
from backfill_assets.table.commit_files import file_options
from backfill_assets.table.log import CommitInfo
from backfill_assets.table.readers import log_of, open_table

COLUMNS = {
    "name": "string",
    "version": "int",
    "key": "string",
    "path": "string",
    "since": "string",
    "by": "string",
    "reason": "string",
    "retired": "array<string>",
    "generation": "bigint",
    "switch_id": "string",
}
"""`name` is what readers say, `path` the folder of the version's table, `since` an instant in ISO format."""

_TRANSACTION = "current"
_SWITCH, _NUMBER = "backfill_assets_switch", "transaction"
"""What the commit of a switch carries: its id, and its number."""

_COMMITS_LOOKED_AT = 100
"""So many of the newest; if somebody else made all of them, the newest switch is older than the oldest of these."""

_LOCK_TIMEOUT_SECONDS = 60.0


def current_path(root_uri: str) -> str:
    """Return the folder of the table."""
    return f"{root_uri}/_current"


@dataclass(frozen=True, slots=True)
class CurrentTable:
    """The current versions of a lakehouse's tables."""

    spark: SparkSession
    root_uri: str

    @property
    def path(self) -> str:
        return current_path(self.root_uri)

    def read(self) -> CurrentVersions:
        """Return the current versions, from one snapshot; nothing was ever switched where there is no table.

        Raises:
            ConfigurationError: Somebody has removed all of its rows.
            BackfillAssetsError: It cannot be read.
        """
        with translated("_current"):
            rows = log_of(self.spark, self.path).rows()
            if rows is None:
                return CurrentVersions()
            return _map_of(rows) if rows else self._with_number()[0]

    def _with_number(self) -> tuple[CurrentVersions, int]:
        """Return the current versions, and the number of the newest switch of the same version of the log.

        Raises:
            ConfigurationError: Something was switched, and there are no rows.
        """
        log = log_of(self.spark, self.path)
        infos = log.infos(newest=_COMMITS_LOOKED_AT)
        oldest = min(infos)
        numbers = {version: _number_of(one) for version, one in infos.items()}
        switches = {one: number for one, number in numbers.items() if number is not None}
        found = log.rows(version=max(infos)) or []
        if not found and (switches or oldest > 0):
            raise _no_rows(self.path, max(switches, default=None))
        now = _map_of(found)
        return now, max(*(switches.values() or [oldest]), now.generation)

    def without_spec(self, keys: Collection[str]) -> Mapping[str, BackfillAssetsError]:
        """Return, by key, what is wrong with versions that readers are given and of which a project has no spec.

        Where nobody can say which version they are given, that is what is wrong, with `_current`.

        Args:
            keys: Of every spec of the project.
        """
        try:
            now = self.read()
        except BackfillAssetsError as error:
            return {"_current": error}
        return without_spec(now, keys)

    def switch(self, switch: Switch) -> CurrentVersions:
        """Replace the whole map by what a switch makes of it; a switch that was saved already does nothing.

        Raises:
            VersionError: It was decided on other versions, or another switch came first. Nothing was changed.
            ConfigurationError: Somebody has removed all rows of the map. Nothing was changed.
            TableLockedError: Another switch is being saved. Nothing was changed.
        """
        try:
            return self._switched(switch)
        except (CommitConflictError, SparkGoneError) as error:
            is_known = isinstance(error, CommitConflictError)
            raise VersionError(
                f"The switch could not be saved: {error.what}",
                state=UNCHANGED
                if is_known
                else "It is saved as a whole, or nothing of it is: which of both is not known.",
                remedy="Repeat the command: what is switched already is left as it is.",
            ) from error

    def _switched(self, switch: Switch) -> CurrentVersions:
        with saving(self.path, "_current", timeout_seconds=_LOCK_TIMEOUT_SECONDS):
            self.spark.sql(sql.create_table(self.path, COLUMNS, properties=SMALL_TABLE))
            now, number = self._with_number()
            if now.switch_id == switch.switch_id:
                return now
            after = switched(now, switch)
            self._save(after, number + 1)
            saved = self.read()
        if saved.switch_id != switch.switch_id:
            raise VersionError(
                "Another switch was saved at the same moment.",
                state=UNCHANGED,
                remedy="Look with `backfill-assets version status`, and decide again.",
            )
        return saved

    def _save(self, after: CurrentVersions, number: int) -> None:
        rows = [
            {
                "name": one.name,
                "version": number_of(one.key),
                "key": one.key,
                "path": one.path,
                "since": one.since,
                "by": one.by,
                "reason": one.reason,
                "retired": list(one.retired),
                "generation": after.generation,
                "switch_id": after.switch_id,
            }
            for one in sorted(after.by_name.values(), key=lambda one: one.name)
        ]
        writer = frame_of(self.spark, rows, sql.column_list(COLUMNS)).write.format("delta").mode("overwrite")
        writer = writer.options(**file_options(self.spark, self.path))
        writer.option("txnAppId", _TRANSACTION).option("txnVersion", str(number)).option(
            "userMetadata", json.dumps({_SWITCH: after.switch_id, _NUMBER: number})
        ).save(self.path)


def _map_of(found: Sequence[Mapping[str, Any]]) -> CurrentVersions:
    """Return the map that rows of the table are; without any nothing was switched."""
    if not found:
        return CurrentVersions()
    by_name = {
        row["name"]: CurrentVersion(
            row["name"],
            row["key"],
            row["path"],
            row["since"],
            row["by"],
            reason=row["reason"],
            retired=tuple(row["retired"]),
        )
        for row in found
    }
    return CurrentVersions(int(found[0]["generation"]), found[0]["switch_id"], by_name)


def _number_of(commit: CommitInfo) -> int | None:
    """Return the number of a switch by what its commit carries, None if it is another commit.

    Of a switch that does not say it, its number was that of its generation, of which there are no more than commits.
    """
    try:
        said: Any = json.loads(commit.user_metadata or "null")
    except ValueError:  # somebody else's text
        return None
    return int(said.get(_NUMBER, commit.version)) if isinstance(said, dict) and _SWITCH in said else None


def _no_rows(path: str, newest_switch: int | None) -> ConfigurationError:
    """Return the error for a map that somebody has emptied: nobody knows which version is current, or retired."""
    version = "<a version that has rows>" if newest_switch is None else newest_switch
    return ConfigurationError(
        f"`{path}` says which version of each table is current, and somebody has removed all of its rows.",
        state="Nothing was read by a table's name, nothing was switched, and nothing was written.",
        remedy=f"Put them back: `RESTORE TABLE {sql.table_at(path)} TO VERSION AS OF {version}`.",
    )


def refuse_retired(current: CurrentTable, key: str) -> None:
    """Raise if a version was given up: nobody reads what is written into it.

    Raises:
        ConfigurationError: It was.
    """
    if current.read().is_retired(key):
        raise ConfigurationError(
            f"`{key}` is a version that was retired; nothing is written into it any more.",
            state="Nothing was started, and nothing was written.",
            remedy="Write the version that is current, which `backfill-assets version status` names, and remove the "
            "spec of this one.",
        )


def read_current(current: CurrentTable, names: Sequence[str], path_of: Callable[[str], str]) -> list[DataFrame]:
    """Return the rows of the current versions of some tables, all from one snapshot of what is current.

    Args:
        names: A name, or the key of one version, which is read as it is.
        path_of: Returns the folder of a version by its key.

    Raises:
        ConfigurationError: There is no such table.
    """
    now = current.read()
    found: list[DataFrame] = []
    for name in names:
        key = now.key_of(name) if is_name(name) else key_of(name_of(name), number_of(name))
        rows = open_table(current.spark, path_of(key))
        if rows is None:
            raise ConfigurationError(
                f"There is no table `{key}` at `{path_of(key)}`.",
                state="Nothing was read.",
                remedy="Names are `layer/name`, for example `bronze/orders`; a launch makes the table.",
            )
        found.append(rows)
    return found
