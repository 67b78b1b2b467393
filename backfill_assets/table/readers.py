"""The two readers of a table's log: delta-rs, which needs no JVM, and Spark for what delta-rs cannot read."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import unquote, urlparse

import deltalake
import pyarrow.fs as arrow_fs
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core import sql
from backfill_assets.errors import EngineFailedError
from backfill_assets.spark.failures import is_below, says_no_table, translated
from backfill_assets.spark.later import setting
from backfill_assets.spark.local_disk import seen_as_spark_does
from backfill_assets.spark.storage import literal_path
from backfill_assets.table.commit_files import file_options
from backfill_assets.table.log import LoggedFile, Snapshot, TableLog

_COMMIT = re.compile(r"\d{20}\.json")

_AT_ONCE = 16
"""The number of commits that are read at once if each is a request to a server."""

_S3 = {
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
    "session.token": "AWS_SESSION_TOKEN",
    "endpoint": "AWS_ENDPOINT_URL",
    "endpoint.region": "AWS_REGION",
}
"""The names that delta-rs gives to settings of Hadoop's `s3a`."""

_PATIENCE = {"timeout": "30s", "connect_timeout": "5s", "max_retries": "3", "retry_timeout": "10s"}
"""delta-rs alone would retry for minutes. Spark reads what delta-rs cannot."""


def log_of(spark: SparkSession, path: str, said: Callable[[str], None] = lambda _: None) -> TableLog:
    """Return the log of the table at a path.

    Args:
        spark: Reads the log only if delta-rs cannot, or if this process may not see the storage that Spark sees.
        said: Called with one sentence that explains why Spark reads the log.
    """
    by_spark = SparkReader(spark, path)
    if (folder := seen_as_spark_does(spark, path)) is not None:
        files: arrow_fs.FileSystem = arrow_fs.LocalFileSystem()
        return TableLog(path, DeltaRsReader(str(folder), f"{folder}/_delta_log", files, {}, by_spark, said))
    if options := storage_options(path, partial(setting, spark)):
        if not (why := _reached(path, options)):
            files = arrow_fs.PyFileSystem(DeltaStorageHandler(path, options))
            return TableLog(path, DeltaRsReader(path, "_delta_log", files, options, by_spark, said, is_far=True))
        said(f"Spark reads the log of `{path}`, because delta-rs cannot reach it: {why}.")
    else:
        said(f"Spark reads the log of `{path}`, because this process may not see the same storage.")
    return TableLog(path, by_spark)


_why_out_of_reach = dict[str, tuple[float, str]]()
"""By bucket, when this process last tried to read it, and the error. Spark may have other credentials."""

_TRIED_AGAIN_SECONDS = 60.0


def _reached(path: str, options: dict[str, str]) -> str:
    """Return why this process cannot read the bucket of a table; empty if it can. It tries again after a minute."""
    bucket = urlparse(path).netloc
    tried, why = _why_out_of_reach.get(bucket, (-_TRIED_AGAIN_SECONDS, "it was not tried"))
    if why and time.monotonic() - tried >= _TRIED_AGAIN_SECONDS:
        try:
            arrow_fs.PyFileSystem(DeltaStorageHandler(path, options)).get_file_info("_delta_log")
            why = ""
        except (OSError, DeltaError, ValueError) as error:
            why = in_words(error)
        _why_out_of_reach[bucket] = time.monotonic(), why
    return why


def open_table(spark: SparkSession, path: str, version: int | None = None) -> DataFrame | None:
    """Return the rows of a table, at a version or the newest; None if the table was not made.

    Args:
        version: One that the table is known to have.
    """
    if version is None and log_of(spark, path).reader.is_absent():
        return None
    return SparkReader(spark, path).frame(version)


def delta_table(spark: SparkSession, path: str) -> deltalake.DeltaTable:
    """Return a table as delta-rs reads it."""
    return deltalake.DeltaTable(path, storage_options=storage_options(path, partial(setting, spark)))


def storage_options(uri: str, setting_of: Callable[[str], str | None]) -> dict[str, str]:
    """Return the options with which delta-rs reads a bucket, from Spark's settings. Environment variables win.

    Args:
        setting_of: Returns a setting of Spark's by its name, None if it is not set.

    Returns:
        No options for any other storage.
    """
    if urlparse(uri).scheme not in ("s3", "s3a"):
        return {}
    bucket = urlparse(uri).netloc

    def told(name: str) -> str | None:
        of_bucket = setting_of(f"spark.hadoop.fs.s3a.bucket.{bucket}.{name}")
        return of_bucket or setting_of(f"spark.hadoop.fs.s3a.{name}")

    found = {theirs: value for name, theirs in _S3.items() if (value := told(name))}
    is_plain = (told("connection.ssl.enabled") or "true").lower() == "false"
    if (endpoint := found.get("AWS_ENDPOINT_URL")) and "://" not in endpoint:
        found["AWS_ENDPOINT_URL"] = f"{'http' if is_plain else 'https'}://{endpoint}"
    if found.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        found["AWS_ALLOW_HTTP"] = "true"
    if (by_path := told("path.style.access")) is not None:
        found["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "false" if by_path.lower() == "true" else "true"
    return {name: value for name, value in found.items() if name not in os.environ} | _PATIENCE


@dataclass(frozen=True, slots=True)
class DeltaRsReader:
    """Reads commits as plain files, and the state of the table with delta-rs, or with Spark if delta-rs cannot open it.

    Args:
        uri: The table's URI for delta-rs.
        folder: The folder of the table's log in `files`.
        is_far: Whether reading a commit is a request to a server.
    """

    uri: str
    folder: str
    files: arrow_fs.FileSystem
    options: Mapping[str, str]
    by_spark: SparkReader
    said: Callable[[str], None]
    is_far: bool = False
    _opened: dict[tuple[int, datetime], deltalake.DeltaTable] = field(
        default_factory=dict[tuple[int, datetime], deltalake.DeltaTable], init=False, repr=False, compare=False
    )
    """The newest version that was opened, by its number and commit time."""

    def is_absent(self) -> bool:
        """Say whether there is certainly no table."""
        with self._readable():
            return self.files.get_file_info(self.folder).type is arrow_fs.FileType.NotFound

    def commits(self) -> Mapping[int, datetime]:
        """Return when the file of each commit was made, by version."""
        with self._readable():
            listed = self.files.get_file_info(arrow_fs.FileSelector(self.folder, allow_not_found=True))
        commits = [file for file in listed if _COMMIT.fullmatch(file.base_name)]
        return {int(file.base_name[:20]): _in_milliseconds(file.mtime) for file in commits}

    def texts(self, versions: Sequence[int]) -> Mapping[int, bytes]:
        """Return the files of commits, by version."""
        with self._readable():
            if self.is_far:
                with ThreadPoolExecutor(_AT_ONCE) as pool:
                    found = dict(zip(versions, pool.map(self._text, versions), strict=True))
            else:
                found = {version: self._text(version) for version in versions}
        return {version: text for version, text in found.items() if text is not None}

    def snapshot(self, version: int | None) -> Snapshot | None:
        """Return what the table is at a version, or now."""
        try:
            table = self._table(version)
            features = table.protocol().reader_features or ()
            metadata = table.metadata()
            return Snapshot(
                table.version(),
                str(metadata.id),
                json.loads(table.schema().to_json()),
                metadata.partition_columns,
                {name: value for name, value in metadata.configuration.items() if value is not None},
                lambda: self._files_of(table, metadata.partition_columns),
                tells_rows="deletionVectors" not in features,
            )
        except TableNotFoundError:
            return None
        except (DeltaError, OSError, ValueError) as error:
            found = self.by_spark.snapshot(version)
            if found is not None:
                self.said(
                    f"Spark reads the log of `{self.uri}`, because delta-rs cannot open the table: {in_words(error)}."
                )
            return found

    def rows(self, columns: Sequence[str] | None, version: int | None) -> list[dict[str, Any]] | None:
        """Return the rows of a small table, read by delta-rs's own engine: pyarrow's datasets would import pandas."""
        try:
            found: Any = self._table(version).scan(list(columns) if columns else None).read_all()
        except TableNotFoundError:
            return None
        except Exception as error:  # its engine raises no class of its own
            raise _not_read(self.uri, error) from error
        names: list[str] = found.column_names
        values = zip(*(_listed(found.column(name)) for name in names), strict=True)
        return [dict(zip(names, row, strict=True)) for row in values]

    def _files_of(self, table: deltalake.DeltaTable, partition_columns: Sequence[str]) -> list[LoggedFile]:
        """Return the files of a version. If Python has no date for a value, Spark names them, without counts."""
        files = table.get_add_actions(flatten=True)
        names, rows = [_listed(files.column(name)) for name in ("path", "num_records")]
        values: list[Any] = [None] * len(names)
        if len(partition_columns) == 1:
            try:
                values = _listed(files.column(f"partition.{partition_columns[0]}"))
            except ValueError:  # a year after 9999, or before 1
                found = self.by_spark.snapshot(table.version())
                return found.files() if found else []
        return [
            LoggedFile(name, None if value is None else str(value), count)
            for name, value, count in zip(names, values, rows, strict=True)
        ]

    def _table(self, version: int | None) -> deltalake.DeltaTable:
        if version is not None:
            return deltalake.DeltaTable(self.uri, version=version, storage_options={**self.options})
        newest = max(self.commits().items(), default=None)
        if newest is None or newest not in self._opened:
            table = deltalake.DeltaTable(self.uri, storage_options={**self.options})
            if newest is None or table.version() != newest[0]:  # another one came meanwhile
                return table
            self._opened.clear()
            self._opened[newest] = table
        return self._opened[newest]

    def _text(self, version: int) -> bytes | None:
        try:
            with self.files.open_input_file(f"{self.folder}/{version:020d}.json") as file:
                found: bytes = file.read()
        except FileNotFoundError:
            return None
        return found

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Raise an error of this project where a storage does not answer.

        Raises:
            EngineFailedError: It did not.
        """
        try:
            yield
        except OSError as error:
            raise _not_read(self.uri, error) from error


def _in_milliseconds(changed: datetime) -> datetime:
    """Return when a file was changed, as Hadoop tells it."""
    return changed.replace(microsecond=changed.microsecond // 1_000 * 1_000)


def in_words(error: Exception) -> str:
    """Return the message of a delta-rs error on one line, without terminal colours."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split()).rstrip(".")


def _not_read(uri: str, error: Exception) -> EngineFailedError:
    return EngineFailedError(
        f"The table at `{uri}` could not be read: {in_words(error)}.",
        state="Nothing was written.",
        remedy="See that its storage can be reached and that its files are there, and try again.",
    )


def _listed(column: Any) -> list[Any]:
    return column.to_pylist()


@dataclass(frozen=True, slots=True)
class SparkReader:
    """Reads the log of a table by Spark, in any storage that Spark sees."""

    spark: SparkSession
    path: str

    def is_absent(self) -> bool:
        """Return false: only reading its rows would show that the table does not exist."""
        return False

    def commits(self) -> Mapping[int, datetime]:
        """Return when the file of each commit was made, by version."""
        found = _rows_of(
            lambda: (
                self.spark.read.format("binaryFile")
                .load(f"{literal_path(self.path)}/_delta_log/*.json")
                .select(F.col("_metadata.file_name").alias("name"), F.unix_micros("modificationTime").alias("changed"))
            )
        )
        return {
            int(row["name"][:20]): datetime.fromtimestamp(row["changed"] / 1_000_000, UTC)
            for row in found
            if _COMMIT.fullmatch(row["name"])
        }

    def texts(self, versions: Sequence[int]) -> Mapping[int, bytes]:
        """Return the files of commits, by version."""
        commits = self.commits() if versions else {}
        there = [version for version in versions if version in commits]
        found: dict[int, list[str]] = {version: [] for version in there}
        if there:
            texts = self.spark.read.text([f"{literal_path(self.path)}/_delta_log/{v:020d}.json" for v in there])
            for row in texts.select("value", F.col("_metadata.file_name").alias("file")).collect():
                found[int(row["file"][:20])].append(row["value"])
        return {version: "\n".join(lines).encode() for version, lines in found.items()}

    def snapshot(self, version: int | None) -> Snapshot | None:
        """Return what the table is at a version, or now."""
        rows = self.frame(version)
        if rows is None:
            return None
        (detail,) = (
            self.spark.sql(sql.describe_detail(self.path)).select("id", "partitionColumns", "properties").collect()
        )
        columns = list(detail["partitionColumns"])
        newest = max(self.commits(), default=0) if version is None else version
        return Snapshot(
            newest,
            detail["id"],
            json.loads(rows.schema.json()),
            columns,
            dict(detail["properties"]),
            lambda: [
                LoggedFile(name, _value_in(name, columns[0]) if len(columns) == 1 else None, None)
                for name in (_below(self.path, unquote(file)) for file in rows.inputFiles())
            ],
            tells_rows=False,
        )

    def rows(self, columns: Sequence[str] | None, version: int | None) -> list[dict[str, Any]] | None:
        """Return the rows of a small table."""
        rows = self.frame(version)
        if rows is None:
            return None
        with translated(self.path):
            return [row.asDict(recursive=True) for row in (rows.select(*columns) if columns else rows).collect()]

    def frame(self, version: int | None) -> DataFrame | None:
        """Return the rows of the table at a version that it has, or now; None if there is no table."""
        reader = self.spark.read.format("delta").options(**file_options(self.spark, self.path))
        if version is not None:
            return reader.option("versionAsOf", version).load(self.path)
        try:
            rows = reader.load(self.path)
            rows.schema  # noqa: B018 (only now a Connect server looks)
        except AnalysisException as error:
            if says_no_table(error):
                return None
            raise
        return rows


def _rows_of(look: Callable[[], DataFrame]) -> list[Any]:
    """Return the rows of a frame; none if the table does not exist."""
    try:
        return look().collect()
    except AnalysisException as error:
        if says_no_table(error):
            return []
        raise


def _below(path: str, file: str) -> str:
    """Return the path of a file relative to a folder, or unchanged if it lies elsewhere, like the files of a clone."""
    bare, folder = (re.sub(r"^\w+:/*", "/", name) for name in (file, path))
    return bare.removeprefix(f"{folder.rstrip('/')}/") if is_below(file, path) else file


def _value_in(name: str, partition_column: str) -> str | None:
    """Return the value of the partition column in the path of a file; None if it is not there."""
    found = re.search(rf"(?:^|/){re.escape(partition_column)}=([^/]+)/", name)
    return unquote(found[1]) if found else None
