"""The lakehouse as a Dagster resource: where it lies, and the Spark session that reads and writes it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, overload

import dagster as dg
from pydantic import Field, PrivateAttr

from backfill_assets.core.spec.fields import WHERE_SECRETS_GO, is_uri, path_without_password, without_dots
from backfill_assets.core.spec.live import LiveStream
from backfill_assets.core.spec.paths import shared_folders
from backfill_assets.core.spec.sources import kind_of
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.spec.versions import name_of
from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError, SameTableError
from backfill_assets.runs.seen import Seen
from backfill_assets.runs.waiting import say_what_takes_long

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from backfill_assets.core.history.ports import Source
    from backfill_assets.core.spec.changes import ChangeFeed
    from backfill_assets.core.state.version_steps import VersionStep
    from backfill_assets.lake.current_table import CurrentTable
    from backfill_assets.lake.history_table import HistoryTable
    from backfill_assets.lake.table import LakeTable
    from backfill_assets.live.changes.moments import FollowedDatabase
    from backfill_assets.live.live_table import LiveTable
    from backfill_assets.live.writer import LiveWriter

DEFAULT_ROOT = ".lakehouse"


class Lakehouse(dg.ConfigurableResource["Lakehouse"]):
    """Everything below one root: tables in `tables/<layer>/<name>`, the shop's source data in `landing/`.

    The session starts when it is first used, never while definitions load.
    """

    root: str = ""
    """Folder or URI. Empty: the environment's `LAKEHOUSE_ROOT`, else `.lakehouse` in the working directory."""

    project: str = Field(default="", pattern=r"^([a-z][a-z0-9_]*)?$")
    """Name of the project, for a Dagster that several projects share; empty if it has one."""

    _spark: SparkSession | None = PrivateAttr(default=None)
    _later: SparkSession | None = PrivateAttr(default=None)
    _is_looked_at: bool = PrivateAttr(default=False)
    _seen: dict[tuple[str, str], Seen] = PrivateAttr(default_factory=dict[tuple[str, str], Seen])

    def own_name(self, name: str) -> str:
        """Return the name in Dagster of something that each project has once, such as the page with its status."""
        return f"{self.project}_{name}" if self.project else name

    @property
    def root_uri(self) -> str:
        """The root, absolute."""
        root = self.root or os.environ.get("LAKEHOUSE_ROOT") or DEFAULT_ROOT
        _refuse_password(root)
        return root.rstrip("/") if is_uri(root) else os.path.abspath(_one_slash(root))  # noqa: PTH100 (a str, and no links resolved)

    def start_spark_when_asked(self) -> None:
        """Start Spark on first use instead of with the first table, for commands that may need no rows.

        A writer needs the session first, because PySpark builds no expression without one.
        """
        self._is_looked_at = True

    @property
    def session(self) -> SparkSession:
        """The session that tables and sources get."""
        if self._spark is not None or not self._is_looked_at:
            return self.spark
        if self._later is None:
            from backfill_assets.spark.later import later
            from backfill_assets.spark.settings import settings_from_environment

            settings = settings_from_environment(os.environ)
            if settings.remote:
                return self.spark
            self._later = later(lambda: self.spark, settings.extra)
        return self._later

    @property
    def spark(self) -> SparkSession:
        """The session, started.

        Raises:
            SparkUnavailableError: Java, a jar, or the Connect server is missing.
        """
        if self._spark is None:
            from backfill_assets.spark import session
            from backfill_assets.spark.connect import connect
            from backfill_assets.spark.settings import settings_from_environment

            settings = settings_from_environment(os.environ)
            say_what_takes_long("Starting Spark, to read rows: usually 5 to 20 s.")
            if settings.remote:
                self._spark = connect(settings)
            else:
                config = session.classic_config(settings)
                session.start_jvm(config)
                self._spark = _classic_session(config)
        assert self._spark is not None  # noqa: S101 (for the type checker)
        return self._spark

    def seen(self, run_id: str, key: str) -> Seen:
        """Return what a run has seen of a table, which its launch adds to; of earlier runs nothing is kept."""
        self._seen = {of: seen for of, seen in self._seen.items() if of[0] == run_id}
        return self._seen.setdefault((run_id, key), Seen())

    def table_path(self, key: str) -> str:
        """Return the folder of a table."""
        return f"{self.root_uri}/tables/{key}"

    def checkpoint_path(self, key: str) -> str:
        """Return the folder of a live stream's checkpoint, unless the writer is told another one."""
        return f"{self.root_uri}/checkpoints/{key}"

    def table(self, spec: TableSpec, log: Callable[[str], None]) -> LakeTable:
        """Return a table of this lakehouse."""
        from backfill_assets.lake.table import LakeTable

        return LakeTable(self.session, spec, self.table_path(spec.key), log)

    def current_table(self) -> CurrentTable:
        """Return which version of each table readers are given."""
        from backfill_assets.lake.current_table import CurrentTable

        return CurrentTable(self.session, self.root_uri)

    def version_steps(self, key: str) -> list[VersionStep]:
        """Return what was done to the versions of a table, the oldest first.

        Raises:
            ReceiptError: That cannot be read.
        """
        return self._history_of(key).steps()

    def add_version_steps(self, steps: Sequence[VersionStep]) -> None:
        """Note what was done to versions, in one commit for each table.

        Raises:
            TableLockedError, CommitConflictError: Another writer is there.
        """
        names = {step.key: name_of(step.key) for step in steps}
        for name in dict.fromkeys(names.values()):
            self._history_of(name).add_steps([step for step in steps if names[step.key] == name])

    def _history_of(self, key: str) -> HistoryTable:
        """Return the history that all versions of a table share."""
        from backfill_assets.lake.history_table import HistoryTable
        from backfill_assets.table.readers import log_of

        return HistoryTable(self.session, name_of(key), log_of(self.session, self.table_path(name_of(key))))

    @overload
    def read(self, names: str) -> DataFrame: ...
    @overload
    def read(self, names: list[str] | tuple[str, ...]) -> list[DataFrame]: ...
    def read(self, names: str | list[str] | tuple[str, ...]) -> DataFrame | list[DataFrame]:
        """Return the rows of the current version of a table; of several, from one look at what is current.

        What is joined is read together: name by name, a switch might come between.

        Args:
            names: `bronze/orders`; with a version's number, `bronze/orders__v2`, that version.

        Raises:
            ConfigurationError: There is no such table.
        """
        from backfill_assets.lake.current_table import read_current

        wanted = [names] if isinstance(names, str) else list(names)
        found = read_current(self.current_table(), wanted, self.table_path)
        return found[0] if isinstance(names, str) else found

    def live_table(self, spec: TableSpec, log: Callable[[str], None]) -> LiveTable:
        """Return the live side of a table of this lakehouse."""
        from backfill_assets.live.live_table import LiveTable

        return LiveTable(self.table(spec, log))

    def live_writer(
        self,
        spec: TableSpec,
        live: LiveStream,
        log: Callable[[str], None],
        *,
        tables: Mapping[str, TableSpec] | None = None,
        checkpoint: str | None = None,
    ) -> LiveWriter:
        """Return the writer of a table's live stream.

        Args:
            tables: Specs of all tables of the project, by key.
            checkpoint: Folder of Spark's checkpoint; `checkpoints/<layer>/<name>` below the root if not given.

        Raises:
            ConfigurationError: Spark runs on a Connect server.
            SameTableError: The stream shares its folder with another stream or with a history.
        """
        from backfill_assets.core.live.ports import Effects
        from backfill_assets.lake.current_table import refuse_retired
        from backfill_assets.live.writer import LiveWriter
        from backfill_assets.spark.connect import shown_address

        if remote := os.environ.get("SPARK_REMOTE"):
            if "SPARK_MASTER" not in os.environ or self._spark is not None:
                raise ConfigurationError(
                    f"`{spec.key}`: the live writer needs a Spark driver of its own, and SPARK_REMOTE is "
                    f"`{shown_address(remote)}`.",
                    state="Nothing was started.",
                    remedy="Unset SPARK_REMOTE for the live writer, or say in SPARK_MASTER where its own driver "
                    "runs; launch it in a run "
                    "of its own.",
                )
            del os.environ["SPARK_REMOTE"]  # for this process alone
        self._refuse_shared_folders(spec, tables or {})
        where = checkpoint or self.checkpoint_path(spec.key)
        table, folder = self.live_table(spec, log), self.landing_path(live.path)
        refuse = partial(refuse_retired, self.current_table(), spec.key)
        return LiveWriter(table, live, folder, where, effects=Effects(log=log), refuse=refuse)

    def source(
        self,
        spec: TableSpec,
        tables: Mapping[str, TableSpec],
        transform: Callable[..., DataFrame] | None,
        log: Callable[[str], None],
    ) -> Source[DataFrame]:
        """Return where a table's history is read from.

        Args:
            tables: Specs of the tables it may be made of, by key.

        Raises:
            SameTableError: A stream, or a change feed, reads the folder of this history, or shares its own.
        """
        from backfill_assets.live.changed_files import ask_checkpoint
        from backfill_assets.sources.context import SourceContext

        self._refuse_shared_folders(spec, tables)
        inputs = [self.table(tables[needed.table], log) for needed in spec.inputs]
        context = SourceContext(spec, self.session, self.landing_path, inputs, transform, log=log)
        source = kind_of(spec.source).builder()(spec.source, context)
        ask_checkpoint(source, self.checkpoint_path)
        return self.changed_source(spec, spec.changes, source, log) if spec.changes else source

    def changed_source(
        self, spec: TableSpec, feed: ChangeFeed, database: Source[DataFrame], log: Callable[[str], None]
    ) -> FollowedDatabase:
        """Return a database's table together with its change feed.

        Raises:
            ConfigurationError: The capture's files would not lie on this machine's disk.
        """
        from backfill_assets.live.changes.feed import FeedReader
        from backfill_assets.live.changes.moments import FollowedDatabase
        from backfill_assets.live.changes.table import ChangesTable
        from backfill_assets.sources.database.source import DatabaseSource

        assert isinstance(database, DatabaseSource), "a spec's `changes` go with `kind: jdbc` alone"  # noqa: S101 (a spec is checked)
        table = ChangesTable(self.session, spec, self.table_path(spec.key))
        reader = FeedReader(table, database, self.capture_folder(feed.capture))
        return FollowedDatabase(spec, feed, database, reader, self.table(spec, log), log=log)

    def capture_folder(self, capture: str) -> Path:
        """Return the folder in which a capture lands its files.

        Raises:
            ConfigurationError: It is not on this machine's disk.
        """
        from backfill_assets.spark.local_disk import local_path

        folder = local_path(self.landing_path(f"changes/{capture}"))
        if folder is None:
            raise ConfigurationError(
                f"The capture `{capture}` would land its files below `{self.root_uri}`, which is no disk of this "
                "machine.",
                state="Nothing was read.",
                remedy="Its files are synced one by one, which only a disk can promise; run it where the root is one.",
            )
        return folder

    def landing_path(self, path: str) -> str:
        """Return a source's folder: absolute paths and URIs as they are, others below `landing/`.

        Raises:
            SameTableError: There are tables in it, or it lies in one.
        """
        from backfill_assets.lake.paths import lies_below

        folder, tables = self._folder(path), self.table_path("").rstrip("/")
        if lies_below(folder, tables) or lies_below(tables, folder):
            raise SameTableError(
                f"`{folder}` is to be read as a source, and the tables of this lakehouse lie in `{tables}`: a table "
                "would be made from its own files, or from those of another one.",
                state=NOTHING_WRITTEN,
                remedy="Name the folder in which the exports, or the events, lie. A table that is made of other tables "
                "says `kind: delta`.",
                path=folder,
            )
        return folder

    def _folder(self, path: str) -> str:
        is_absolute = path.startswith("/") or is_uri(path)
        if is_absolute:
            _refuse_password(path)
        return without_dots(_one_slash(path) if is_absolute else f"{self.root_uri}/landing/{path}")

    def _refuse_shared_folders(self, spec: TableSpec, tables: Mapping[str, TableSpec]) -> None:
        """Raise if a stream or a change feed shares a folder with this table, by its name or by a link."""
        from backfill_assets.lake.paths import real_place

        for shared in shared_folders({**tables, spec.key: spec}, lambda path: real_place(self._folder(path))):
            if spec.key in (shared.reader.key, shared.other.key):
                raise SameTableError(
                    f"`{shared.reader.key}`: {shared.reader.field}: {str(shared).partition('. ')[0]}.",
                    state=NOTHING_WRITTEN,
                    remedy="Name a folder of its own for each in the specs. If their names differ, look for a link.",
                    path=shared.reader.path,
                )


def _one_slash(path: str) -> str:
    """Return a path whose two slashes in front, which Hadoop would take for a host's name, are one."""
    return re.sub(r"^/{2,}", "/", path)


def _refuse_password(uri: str) -> None:
    """Raise for a URI that has a password in it: where data lies is shown in events, logs and errors."""
    try:
        path_without_password(uri)
    except ValueError as error:
        raise ConfigurationError(
            f"A root or a path: {error}.", state="Nothing was read.", remedy=WHERE_SECRETS_GO
        ) from None


def _classic_session(config: dict[str, str]) -> SparkSession:
    """Start a classic session through dagster-pyspark; PySpark's own handler of Ctrl-C does not replace Dagster's."""
    import signal
    import threading

    from dagster_pyspark import LazyPySparkResource

    handler = signal.getsignal(signal.SIGINT)
    try:
        started: SparkSession = LazyPySparkResource(spark_config=config).spark_session
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)
    return started
