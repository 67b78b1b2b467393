"""Delta's own transaction, and what is compared around it: each test is a way to lose rows without that comparison."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.sql import replace_where
from backfill_assets.core.state.fence import AT
from backfill_assets.errors import (
    CommitConflictError,
    LivePartitionsError,
    PutBackError,
    SourceChangedError,
    StagedContentLostError,
    TableLockedError,
    UnreadableTableError,
    UnsafeWriteError,
)
from backfill_assets.lake.locks import table_lock
from backfill_assets.lake.overwrite import REQUIRED_SETTINGS
from backfill_assets.spark.settings import DELTA_VERSION
from backfill_assets.table import transaction
from backfill_assets.table.transaction import CALLS, Transactions, reason_against
from tests.contracts.lakes import DAYS, DeltaShop, Row, multiset, order, orders, parts, receipt_for, scan_of

pytestmark = pytest.mark.spark

DAY, NEXT = DAYS[:2]


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaShop:
    """A shop with two days of two orders each, that no publish of ours wrote."""
    made = DeltaShop(spark, tmp_path_factory.mktemp("made") / "orders")
    made.lake.create()
    made.append_as_somebody_else([*orders(DAY), *orders(NEXT)])
    return made


@pytest.fixture
def shop(made: DeltaShop, tmp_path: Path) -> DeltaShop:
    """A copy of that shop."""
    shutil.copytree(made.path, tmp_path / "orders")
    return DeltaShop(made.spark, tmp_path / "orders")


def staged(shop: DeltaShop, rows: list[Row], day: str = DAY) -> Any:
    return shop.lake.stage(scan_of(shop, {day: rows}), publish_after=shop.lake.version())


def publish(shop: DeltaShop, rows: list[Row], day: str = DAY) -> int:
    with staged(shop, rows, day) as chunk:
        return shop.lake.overwrite(chunk, parts(day), receipt_for(shop, chunk, [day])).version


def data_files(shop: DeltaShop) -> set[str]:
    return {str(file) for file in shop.path.rglob("*.parquet") if "_delta_log" not in file.parts}


def files_in_table(shop: DeltaShop) -> set[str]:
    return set(deltalake.DeltaTable(str(shop.path)).file_uris())


# -- what happens between the write and the commit ---------------------------------------------------------------------


def append(shop: DeltaShop) -> None:
    shop.append_as_somebody_else([order(19, DAY)])


def delete(shop: DeltaShop) -> None:
    shop.spark.sql(f"DELETE FROM delta.`{shop.path}` WHERE order_id = 10")


def delete_in_the_file(shop: DeltaShop) -> None:
    """By a deletion vector: the file is the same, and has a row less."""
    before = files_in_table(shop)
    delete(shop)
    assert files_in_table(shop) == before


def restore(shop: DeltaShop) -> None:
    shop.spark.sql(f"RESTORE TABLE delta.`{shop.path}` TO VERSION AS OF 0")


def optimize(shop: DeltaShop) -> None:
    shop.append_as_somebody_else([order(29, NEXT)])
    shop.spark.sql(f"OPTIMIZE delta.`{shop.path}`")


def add_rule(shop: DeltaShop) -> None:
    shop.spark.sql(f"ALTER TABLE delta.`{shop.path}` ADD CONSTRAINT rule CHECK (order_id < 100)")


def add_column(shop: DeltaShop) -> None:
    shop.spark.sql(f"ALTER TABLE delta.`{shop.path}` ADD COLUMN more STRING")


@pytest.mark.parametrize("change", [append, delete, restore, add_rule, add_column])
def test_a_change_between_write_and_commit_is_a_conflict(shop, change):
    """Whoever changed these partitions, or what the table is, since the files were written: nothing is committed."""
    with staged(shop, orders(DAY, 3)) as chunk:
        receipt = receipt_for(shop, chunk, [DAY])
        change(shop)
        before = multiset(shop.rows())
        with pytest.raises(CommitConflictError):
            shop.lake.overwrite(chunk, parts(DAY), receipt)
    assert multiset(shop.rows()) == before


@pytest.mark.parametrize("change", [append, delete, delete_in_the_file, restore, optimize])
def test_base_files_alone_find_a_change(shop, change):
    """Without the look at the commits in between, the files of the partitions say that somebody came."""
    if change is delete_in_the_file:
        shop.spark.sql(f"ALTER TABLE delta.`{shop.path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    transactions, base = Transactions(shop.spark, str(shop.path)), shop.lake.version()
    files = transactions.write(shop.frame([order(50, DAY)]), version=base)
    if change is optimize:
        append(shop)
        base = shop.lake.version()
    change(shop)
    with pytest.raises(CommitConflictError, match="the files of these partitions"):
        commit(transactions, files, base)


def commit(transactions: Transactions, files: Any, base: int, **how: Any) -> None:
    """Publish files as the whole content of one day."""
    given = {"user_metadata": "{}", "check": lambda _: None, **how}
    transactions.commit([(files, {DAY})], replace_where("dt", parts(DAY)), {DAY}, base=base, **given)


def test_the_fence_is_read_in_the_snapshot_that_is_committed_on(shop):
    """One that was moved after the last look is seen, and what it refuses is not committed."""
    transactions, base, seen = Transactions(shop.spark, str(shop.path)), shop.lake.version(), list[str | None]()
    files = transactions.write(shop.frame([order(50, DAY)]), version=base)
    shop.spark.sql(f"ALTER TABLE delta.`{shop.path}` SET TBLPROPERTIES ('{AT}' = 'moved')")

    def refuse(properties: dict[str, str]) -> None:
        seen.append(properties.get(AT))
        raise LivePartitionsError("It is live.", state="", remedy="")

    with pytest.raises(LivePartitionsError):
        commit(transactions, files, base, check=refuse)
    assert (seen, shop.lake.version()) == (["moved"], base + 1)


def test_an_append_elsewhere_is_no_conflict(shop):
    """Rows of another partition that came after the write stay, beside what is published."""
    with staged(shop, orders(DAY, 3)) as chunk:
        receipt = receipt_for(shop, chunk, [DAY])
        shop.append_as_somebody_else([order(29, NEXT)])
        shop.lake.overwrite(chunk, parts(DAY), receipt)
    assert multiset(shop.rows()) == multiset([*orders(DAY, 3), *orders(NEXT), order(29, NEXT)])


def test_a_vacuum_of_everything_is_found_before_the_commit(shop):
    """It deletes files that no version names yet. Delta would commit them all the same."""
    before, setting = multiset(shop.rows()), "spark.databricks.delta.retentionDurationCheck.enabled"
    with staged(shop, orders(DAY, 3)) as chunk:
        receipt = receipt_for(shop, chunk, [DAY])
        shop.spark.conf.set(setting, "false")
        try:
            shop.spark.sql(f"VACUUM delta.`{shop.path}` RETAIN 0 HOURS")
        finally:
            shop.spark.conf.unset(setting)
        with pytest.raises(UnreadableTableError, match="do not exist any more"):
            shop.lake.overwrite(chunk, parts(DAY), receipt)
    assert multiset(shop.rows()) == before


def test_a_vacuum_with_the_default_retention_takes_nothing(shop):
    """Files that no version names yet are young."""
    with staged(shop, orders(DAY, 3)) as chunk:
        shop.spark.sql(f"VACUUM delta.`{shop.path}`")
        shop.lake.overwrite(chunk, parts(DAY), receipt_for(shop, chunk, [DAY]))
    assert multiset(shop.rows()) == multiset([*orders(DAY, 3), *orders(NEXT)])


# -- what Delta's writer lets through ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["another type", "a column less", "a column more"])
def test_rows_with_other_columns_are_not_written(shop, wrong):
    """Delta writes text into a column of numbers, and nobody can read the table afterwards."""
    rows: DataFrame = shop.frame(orders(DAY))
    rows = {
        "another type": lambda: rows.withColumn("order_id", F.col("order_id").cast("string")),
        "a column less": lambda: rows.drop("updated_at"),
        "a column more": lambda: rows.withColumn("more", F.lit(1)),
    }[wrong]()
    before = data_files(shop)
    with pytest.raises(UnsafeWriteError):
        Transactions(shop.spark, str(shop.path)).write(rows, version=shop.lake.version())
    assert data_files(shop) == before


def test_files_of_another_partition_are_not_committed(shop):
    """Each file lies in one of the partitions that the commit names, by its value."""
    transactions, base = Transactions(shop.spark, str(shop.path)), shop.lake.version()
    files = transactions.write(shop.frame([order(50, DAY), order(60, NEXT)]), version=base)
    before = multiset(shop.rows())
    with pytest.raises(UnsafeWriteError, match="not in this commit"):
        transactions.commit(
            [(files, {DAY, NEXT})], replace_where("dt", parts(DAY)), {DAY}, "{}", base=base, check=lambda _: None
        )
    assert multiset(shop.rows()) == before


def test_files_are_committed_once(shop):
    """After another overwrite the same files would bring old content back."""
    with staged(shop, orders(DAY, 3)) as chunk:
        shop.lake.overwrite(chunk, parts(DAY), receipt_for(shop, chunk, [DAY]))
        newer = publish(shop, orders(DAY, 1))
        with pytest.raises(UnsafeWriteError, match="committed before"):
            shop.lake.overwrite(chunk, parts(DAY), receipt_for(shop, chunk, [DAY]))
    assert shop.lake.version() == newer


class Stopped(BaseException):
    """What ends a run in the middle of a call."""


def test_an_interrupted_commit_has_ended_when_that_is_told(shop, monkeypatch):
    """Whoever stops a launch in its commit hears of it afterwards: then the log says whether it was made."""
    transactions, base = Transactions(shop.spark, str(shop.path)), shop.lake.version()
    files = transactions.write(shop.frame([order(50, DAY)]), version=base)
    operation = Transactions._operation

    def stop(*_: Any) -> None:
        raise Stopped

    def interrupted_soon(*given: Any) -> Any:
        made = operation(*given)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        return made

    monkeypatch.setattr(Transactions, "_operation", interrupted_soon)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(Stopped):
            commit(transactions, files, base, user_metadata="x" * 3_900_000)  # which takes a while
        assert shop.lake.version() == base + 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_commit_with_other_files_is_found(shop):
    """What was committed is compared with what was audited, at its own version, also if the log cannot say it."""
    transactions, base = Transactions(shop.spark, str(shop.path)), shop.lake.version()
    audited, other = (transactions.write(shop.frame([order(n, DAY)]), version=base) for n in (50, 51))
    commit(transactions, other, base)
    predicate, version = replace_where("dt", parts(DAY)), shop.lake.version()
    transactions.verify([(other, {DAY})], predicate, version=version)
    with pytest.raises(PutBackError, match="not the 1 that were audited"):
        transactions.verify([(audited, {DAY})], predicate, version=version)


def test_a_committed_file_that_is_gone_is_found(shop):
    """A VACUUM that keeps nothing may come between the last look and the commit."""
    transactions, base = Transactions(shop.spark, str(shop.path)), shop.lake.version()
    files, before = transactions.write(shop.frame([order(50, DAY)]), version=base), files_in_table(shop)
    commit(transactions, files, base)
    (file,) = files_in_table(shop) - before
    Path(file).unlink()
    with pytest.raises(UnreadableTableError, match="do not exist"):
        transactions.verify([(files, {DAY})], replace_where("dt", parts(DAY)), version=shop.lake.version())


def test_a_receipt_of_many_megabytes_is_refused(shop):
    """Delta commits 25 MB, and every read of the table fails afterwards."""
    transactions, base = Transactions(shop.spark, str(shop.path)), shop.lake.version()
    files = transactions.write(shop.frame([order(50, DAY)]), version=base)
    with pytest.raises(UnsafeWriteError, match="receipt"):
        commit(transactions, files, base, user_metadata="x" * (5 << 20))
    assert shop.lake.version() == base


@pytest.mark.parametrize("setting", ["spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"])
def test_a_session_that_skips_files_writes_nothing(shop, setting):
    """The audit would count the rows that it happens to find."""
    before = data_files(shop)
    shop.spark.conf.set(setting, "true")
    try:
        with pytest.raises(UnsafeWriteError, match=setting):
            staged(shop, orders(DAY, 3))
    finally:
        shop.spark.conf.set(setting, "false")
    assert data_files(shop) == before


# -- what is published -------------------------------------------------------------------------------------------------


def test_audited_files_are_the_published_files(shop):
    """No reader sees the files before the commit; after it the partition has these files alone, byte for byte."""
    old = files_in_table(shop)
    with staged(shop, orders(DAY, 3)) as chunk:
        written = {file: Path(file).read_bytes() for file in data_files(shop) - old}
        assert files_in_table(shop) == old
        assert chunk.tallies[DAY].rows == 3
        shop.lake.overwrite(chunk, parts(DAY), receipt_for(shop, chunk, [DAY]))
    of_day = set(deltalake.DeltaTable(str(shop.path)).file_uris([("dt", "=", DAY)]))
    assert {file: Path(file).read_bytes() for file in of_day} == written
    assert multiset(shop.rows()) == multiset([*orders(DAY, 3), *orders(NEXT)])


def test_what_the_writer_changes_is_found(shop, monkeypatch):
    """A setting that cuts microseconds: the rows that are read back are not those that went in."""
    setting = "spark.sql.parquet.outputTimestampType"
    monkeypatch.delitem(REQUIRED_SETTINGS, setting)
    rows = [{**row, "ordered_at": row["ordered_at"].replace(microsecond=123456)} for row in orders(DAY)]
    before = data_files(shop)
    shop.spark.conf.set(setting, "TIMESTAMP_MILLIS")
    try:
        with pytest.raises(StagedContentLostError, match="read back"):
            staged(shop, rows)
    finally:
        shop.spark.conf.set(setting, "TIMESTAMP_MICROS")
    assert data_files(shop) == before


def test_files_of_which_delta_counted_no_rows_are_not_published(shop, monkeypatch):
    """What a later launch may destroy is measured by these counts."""
    setting = "spark.databricks.delta.stats.collect"
    monkeypatch.delitem(REQUIRED_SETTINGS, setting)
    before = data_files(shop)
    shop.spark.conf.set(setting, "false")
    try:
        with pytest.raises(StagedContentLostError, match="Delta counted"):
            staged(shop, orders(DAY))
    finally:
        shop.spark.conf.set(setting, "true")
    assert data_files(shop) == before


def test_a_receipt_of_other_rows_than_the_files_have_is_not_committed(shop):
    """Rows that lie in no file of the commit would be in its receipt, and in no reader's answer."""
    before = multiset(shop.rows())
    with staged(shop, orders(DAY, 3)) as chunk:
        receipt = receipt_for(shop, chunk, [DAY])
        part = replace(receipt.partitions[DAY], rows=4)
        with pytest.raises(UnsafeWriteError, match="do not hold the rows of their receipt"):
            shop.lake.overwrite(chunk, parts(DAY), replace(receipt, partitions={DAY: part}))
    assert multiset(shop.rows()) == before


def test_rows_that_are_set_aside_once_only_are_found(shop, tmp_path):
    """The first read finds a row without a key, the second one does not: the row would be in no file and in no count."""
    marker = str(tmp_path / "read once")

    def key(number: int) -> int | None:
        if number != 10 or Path(marker).exists():
            return number
        Path(marker).touch()
        return None

    scan = scan_of(shop, {DAY: orders(DAY)})
    changing = scan.rows.coalesce(1).withColumn("order_id", F.udf(key, "bigint", useArrow=False)("order_id"))
    with pytest.raises(SourceChangedError, match="the second one"):
        shop.lake.stage(replace(scan, rows=changing), publish_after=shop.lake.version())


def test_late_rows_hide_no_file_without_values(shop):
    """The source's file has no value in a column; a late row of its day has one."""
    shop.live.append_late(shop.frame([order(50, DAY)]), ("late:a", 0))
    late = shop.lake.late(parts(DAY))
    scan = scan_of(shop, {DAY: [order(10, DAY, amount=None), order(11, DAY, amount=None)]})
    with shop.lake.stage(scan, late, publish_after=shop.lake.version()) as chunk:
        assert (chunk.tallies[DAY].rows, chunk.tallies[DAY].empty_columns) == (3, ("amount",))


@pytest.mark.parametrize("change", ["hidden", "renamed", "elsewhere"])
def test_a_partition_is_left_alone_only_with_the_same_files(shop, change):
    """A commit that says it changes no data, and one that changes columns, are looked at by reading the rows."""
    version = publish(shop, orders(DAY, 3))
    match change:
        case "hidden":
            writer = shop.frame([order(50, DAY)]).write.format("delta").mode("overwrite").option("dataChange", "false")
            writer.option("replaceWhere", "dt = DATE'2024-01-01'").save(str(shop.path))
        case "renamed":
            add_column(shop)
        case _:
            shop.append_as_somebody_else([order(29, NEXT)])
    left = shop.lake.left_alone(dict.fromkeys(parts(DAY), version), until=shop.lake.version())
    assert left == (parts(DAY) if change == "elsewhere" else [])


# -- what is left of a write that was not committed --------------------------------------------------------------------


def test_files_of_a_refused_partition_are_deleted(shop):
    """One partition is published, the other one is not: of that one no file stays."""
    with shop.lake.stage(
        scan_of(shop, {DAY: orders(DAY, 3), NEXT: orders(NEXT, 3)}), publish_after=shop.lake.version()
    ) as chunk:
        old = files_in_table(shop)
        assert len(data_files(shop) - old) == 2
        shop.lake.overwrite(chunk, parts(DAY), receipt_for(shop, chunk, [DAY]))
    assert data_files(shop) == old | files_in_table(shop)


def test_a_write_that_fails_leaves_no_files(shop):
    """A task fails when others have written: Delta names no files, and they are deleted all the same."""
    rows = shop.frame([order(n, DAY) for n in range(40)]).repartition(4)
    fails = F.when(F.col("order_id") == 39, F.raise_error(F.lit("no more"))).otherwise(F.col("order_id"))
    before = data_files(shop)
    with pytest.raises(Exception, match="no more"):
        Transactions(shop.spark, str(shop.path)).write(
            rows.withColumn("order_id", fails.cast("bigint")), version=shop.lake.version()
        )
    assert data_files(shop) == before


# -- tables that are written by the public API -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({}, ""),
        ({"delta.isolationLevel": "WriteSerializable"}, "isolationLevel"),
        ({"delta.universalFormat.enabledFormats": "hudi"}, "universalFormat"),
    ],
)
def test_a_table_of_another_kind_is_not_written_this_way(shop, properties, why):
    """The reason names the property; the launch says it once, and copies rows by the public API."""
    log = shop.path / "_delta_log" / f"{shop.lake.version() + 1:020d}.json"
    first = (shop.path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    (metadata,) = [json.loads(line) for line in first if "metaData" in line]
    metadata["metaData"]["configuration"] |= properties
    log.write_text(json.dumps(metadata) + "\n")
    found = reason_against(shop.spark, str(shop.path))
    assert (why in found) if why else found == ""


def test_a_table_with_an_identity_column_is_not_written_this_way(spark, tmp_path):
    """Two writes would give the same numbers."""
    path = str(tmp_path / "numbered")
    spark.sql(f"CREATE TABLE delta.`{path}` (n BIGINT GENERATED ALWAYS AS IDENTITY, dt DATE) USING delta")
    assert "identity" in reason_against(spark, path)


def test_links_to_a_table_share_its_lock(tmp_path):
    """Two writers of one table, one of them through a link, wait for each other."""
    (tmp_path / "table").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "table")
    through_link = table_lock(str(tmp_path / "link"), timeout_seconds=0.1)
    with table_lock(str(tmp_path / "table"), timeout_seconds=1), pytest.raises(TableLockedError), through_link:
        pass


# -- what readers see --------------------------------------------------------------------------------------------------


def test_every_reader_sees_the_rows(shop, tmp_path):
    """Spark, delta-rs, DuckDB and polars; a stream; an earlier version; and after OPTIMIZE and VACUUM."""
    before, spark, path = shop.lake.version(), shop.spark, str(shop.path)
    publish(shop, orders(DAY, 3))
    expected = sorted(row["order_id"] for row in [*orders(DAY, 3), *orders(NEXT)])

    def ids(rows: DataFrame) -> list[int]:
        return sorted(row["order_id"] for row in rows.select("order_id").collect())

    def everywhere() -> list[list[int]]:
        arrow = deltalake.DeltaTable(path).to_pyarrow_table()
        in_duckdb = duckdb.sql("SELECT order_id FROM arrow ORDER BY 1").fetchall()
        return [
            ids(spark.read.format("delta").load(path)),
            sorted(arrow["order_id"].to_pylist()),
            [row[0] for row in in_duckdb],
            sorted(polars.read_delta(path)["order_id"].to_list()),
        ]

    assert everywhere() == [expected] * 4
    old = spark.read.format("delta").option("versionAsOf", before).load(path)
    assert ids(old) == sorted(row["order_id"] for row in [*orders(DAY), *orders(NEXT)])
    stream = spark.readStream.format("delta").option("skipChangeCommits", "true").load(path)
    query = stream.writeStream.format("delta").option("checkpointLocation", f"{tmp_path}/seen.checkpoint")
    query.trigger(availableNow=True).start(f"{tmp_path}/seen").awaitTermination()
    assert ids(spark.read.format("delta").load(f"{tmp_path}/seen")) == expected

    (newest,) = spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").collect()
    assert (newest["operation"], newest["isBlindAppend"]) == ("WRITE", False)
    assert json.loads(newest["userMetadata"])["backfill_assets"] == 1
    shop.append_as_somebody_else([order(19, DAY)])
    spark.sql(f"OPTIMIZE delta.`{path}`")
    spark.sql(f"VACUUM delta.`{path}`")
    assert everywhere() == [sorted([*expected, 19])] * 4


@pytest.mark.parametrize(("java_class", "method", "parameters"), CALLS)
def test_each_call_is_one_of_delta_4_4_0(spark, java_class, method, parameters):
    """They are no documented API. Before another version is pinned, its source has to be read."""
    found = spark._jvm.java.lang.Class.forName(
        f"org.apache.spark.sql.delta.{java_class}", False, spark._jvm.Thread.currentThread().getContextClassLoader()
    )
    counts = {each.getParameterCount() for each in found.getMethods() if each.getName() == method}
    assert parameters in counts
    assert DELTA_VERSION == "4.4.0"


@pytest.mark.parametrize("missing", [("NoSuchLog", "forTable", 3), ("DeltaLog", "noSuchMethod", 0)])
def test_a_delta_without_a_call_is_written_by_the_public_api(shop, monkeypatch, missing):
    """The launch names the first call that is missing, once, and the rows are the same."""
    monkeypatch.setattr(transaction, "CALLS", (missing,))
    another = shop.spark.newSession()
    said: list[str] = []
    lake = replace(shop.lake, spark=another, log=said.append)
    for name, (value, _) in REQUIRED_SETTINGS.items():
        another.conf.set(name, value)
    for _ in range(2):
        with lake.stage(scan_of(shop, {DAY: orders(DAY, 3)}), publish_after=lake.version()) as chunk:
            commit = lake.overwrite(chunk, parts(DAY), receipt_for(shop, chunk, [DAY]))
        assert not commit.is_audited
    assert len(said) == 1
    assert missing[0] in said[0]
    assert multiset(shop.rows()) == multiset([*orders(DAY, 3), *orders(NEXT)])
