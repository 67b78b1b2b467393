"""Files that are listed and looked at here, without Spark: it would say the same, and is asked where it may not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from backfill_assets.sources.files import listing
from backfill_assets.sources.files.footers import footers_here, read_footer
from backfill_assets.sources.files.local_files import files_below, left_in
from backfill_assets.spark.local_disk import MACHINE, this_machine
from tests.sources.files.landing import source_of
from tests.sources.files.layouts import files_spec, table_of
from tests.support.shop import folder_of, launch, orders, published_keys, refusals, write_parquet


def linked(path: Path, to: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(to)


def written(path: Path, data: bytes = b"12345", *, nanoseconds: int = 1_700_000_000_123_456_789) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, ns=(nanoseconds, nanoseconds))


def test_a_folder_is_listed_as_spark_lists_it(spark: SparkSession, tmp_path: Path):
    """Hidden files and folders, summaries, links, an empty file, times before 1970 and within a millisecond."""
    root, away = tmp_path / "root", tmp_path / "away"
    written(root / "2024/01/01/a.parquet")
    written(root / "2024/01/01/a+b,c@d=e~f-g_h.parquet", b"1")
    written(root / "2024/01/01/empty", b"")
    written(root / "2024/01/02/old", nanoseconds=-1_500_000)
    written(root / "dt=2024-01-03/_part=1/x")
    for name in (".hidden", "_SUCCESS", "x._COPYING_", "_metadata", "_common_metadata", "_temporary/y", ".tmp/z"):
        written(root / "2024/01/04" / name)
    written(away / "day/b.parquet")
    written(away / "c.parquet")
    linked(root / "2024/01/05", away / "day")
    linked(root / "2024/01/06/d.parquet", away / "c.parquet")

    here = files_below(spark, str(root))

    assert here is not None
    assert len(here) == 7
    assert sorted(here) == sorted(listing._listed_by_spark(spark, str(root)))
    assert sorted(files_below(spark, f"file://{root}/") or []) == sorted(here)


ODD: dict[str, Callable[[Path], None]] = {
    "a space": lambda root: written(root / "a b"),
    "a percent sign": lambda root: written(root / "a%20b"),
    "a letter outside ASCII": lambda root: written(root / "bücher/x"),
    "a pattern": lambda root: written(root / "[a]"),
    "a colon": lambda root: written(root / "12:00"),
    "a name that begins like a summary's": lambda root: written(root / "_metadata_2/x"),
    "a folder with the name of a summary": lambda root: written(root / "2024/_metadata/x"),
    "a link with the name of a summary": lambda root: linked(root / "_common_metadata", root / "nothing"),
    "a link that leads nowhere": lambda root: linked(root / "x", root / "nothing"),
    "a link that leads back": lambda root: linked(root / "below/x", root),
    "neither file nor folder": lambda root: os.mkfifo(root / "pipe"),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_spark_may_see_otherwise_is_left_to_it(spark: SparkSession, tmp_path: Path, odd: str):
    """One such name or thing, and Spark lists the folder; so it does one that is not there, or no folder."""
    written(tmp_path / "plain")
    assert files_below(spark, str(tmp_path)) is not None

    ODD[odd](tmp_path)

    assert files_below(spark, str(tmp_path)) is None
    assert files_below(spark, f"{tmp_path}/nowhere") is files_below(spark, f"{tmp_path}/plain") is None


def refused_but_the_third_day(spark: SparkSession, root: Path) -> dict[str, str]:
    """Launch three days, of which the third alone is published; return what is said of the others."""
    spec = files_spec()
    table = table_of(spark, spec, root.with_name("table"))
    outcomes = launch(table, source_of(spark, spec, root), spec.grid.between("2024-01-01", "2024-01-03"))
    assert published_keys(outcomes) == ["2024-01-03"]
    return refusals(outcomes)


def test_a_file_that_java_cannot_name_fails_its_partition(spark: SparkSession, tmp_path: Path):
    """A name, of a file or of a folder, that is not UTF-8: Spark leaves it out without a word; it is named, and no other day fails."""
    root = tmp_path / "root"
    for day in ("2024-01-01", "2024-01-02", "2024-01-03"):
        write_parquet(folder_of(root, day), orders(day))
    for name, day in ((b"caf\xe9.parquet", "2024-01-01"), (b"d\xe9r/x.parquet", "2024-01-02")):
        path = folder_of(root, day) / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        write_parquet(tmp_path, orders(day)).rename(path)

    refused = refused_but_the_third_day(spark, root)

    for day, name in (("2024-01-01", "caf\\xe9.parquet"), ("2024-01-02", "d\\xe9r/x.parquet")):
        said = (
            f"`file:{folder_of(root, day)}/{name}` cannot be read for Spark does not see it: its name is not UTF-8, or "
        )
        assert said in refused[day]


def test_a_link_that_leads_nowhere_fails_its_partition(spark: SparkSession, tmp_path: Path):
    """What it led to may be on a disk that is not there today: Spark leaves it out without a word, beside files that it reads."""
    root = tmp_path / "root"
    for day in ("2024-01-01", "2024-01-02"):
        write_parquet(folder_of(root, day), orders(day))
    linked(folder_of(root, "2024-01-01") / "more.parquet", tmp_path / "away/more.parquet")
    linked(folder_of(root, "2024-01-02") / "itself.parquet", Path("itself.parquet"))
    write_parquet(folder_of(root, "2024-01-03"), orders("2024-01-03"))

    refused = refused_but_the_third_day(spark, root)

    for day, name in (("2024-01-01", "more"), ("2024-01-02", "itself")):
        said = (
            f"`file:{folder_of(root, day)}/{name}.parquet` cannot be read for Spark does not see it: its name is not "
        )
        assert f"{said}UTF-8, or it is a link that leads nowhere." in refused[day]


def test_a_plain_root_may_lie_elsewhere(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where Hadoop's own files may say what a plain path means, or the storage is another, Spark is asked."""
    written(tmp_path / "plain")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))

    assert files_below(spark, str(tmp_path)) is None
    assert files_below(spark, f"file:{tmp_path}") is not None
    assert files_below(spark, "s3a://bucket/plain") is None


class Server:
    """What is asked of a Connect server's session before anything is looked at."""

    def __init__(self, **settings: str) -> None:
        self.conf = settings


Server.__module__ = "pyspark.sql.connect.session"


@pytest.mark.parametrize(
    ("settings", "is_here"), [({}, False), ({MACHINE: "another"}, False), ({MACHINE: this_machine()}, True)]
)
def test_a_server_elsewhere_sees_other_files(tmp_path: Path, settings: dict[str, str], is_here: bool):
    """Files are looked at for a Connect server that says that it runs on this machine, in this container; for no other."""
    written(tmp_path / "plain")

    found = files_below(Server(**settings), str(tmp_path))

    assert (found is not None) == is_here


def test_a_source_is_the_same_by_both_ways(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Fingerprints, evidence and rows do not depend on who looks at the files."""
    spec = files_spec()
    for day in ("2024-01-01", "2024-01-02"):
        write_parquet(folder_of(tmp_path, day), orders(day))
    named = spec.grid.between("2024-01-01", "2024-01-02")

    def seen() -> object:
        source = source_of(spark, spec, tmp_path)
        surveys = source.survey(named)
        scan = source.scan(named, surveys)
        return surveys, scan.evidence, scan.partition_by_file, sorted(map(str, scan.rows.collect()))

    here = seen()
    monkeypatch.setattr(listing, "files_below", lambda *_: None)
    monkeypatch.setattr("backfill_assets.sources.files.parquet.footers_here", lambda *_: {})

    assert seen() == here


def test_a_number_that_spark_notes_as_a_span_is_none(spark: SparkSession, tmp_path: Path):
    """To others such a column is a number; Spark's own note in the footer says that it is none."""
    spark.sql("SELECT INTERVAL '1' DAY AS amount").write.parquet(f"{tmp_path}/2024/01/01/spans")
    pq.write_table(pa.table({"amount": [1]}), tmp_path / "2024/01/01/numbers.parquet")
    files = source_of(spark, files_spec(), tmp_path)._list().files

    found = {Path(file.path).parent.name: footer.columns[0].kind for file, footer in footers_here(spark, files).items()}
    assert found == {"spans": "interval", "01": "bigint"}


def test_a_footer_that_contradicts_itself_is_refused(spark: SparkSession, tmp_path: Path):
    """A file whose footer says more rows than its row groups have lost some, and nobody can say which; the next day is published."""
    spec = files_spec()
    damaged, _ = (write_parquet(folder_of(tmp_path / "in", day), orders(day)) for day in ("2024-01-01", "2024-01-02"))
    raw = damaged.read_bytes()
    begins = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    rows = next(
        at
        for at in range(begins, len(raw) - 8)
        if raw[at : at + 2] == b"\x16\x06"  # a number of 64 bits, 3, in Thrift's compact protocol
        and (found := read_footer(pa.BufferReader(raw[: at + 1] + b"\x08" + raw[at + 2 :])))
        and (found.promised, found.rows) == (4, 3)
    )
    damaged.write_bytes(raw[: rows + 1] + b"\x08" + raw[rows + 2 :])
    table = table_of(spark, spec, tmp_path / "table")

    outcomes = launch(table, source_of(spark, spec, tmp_path / "in"), spec.grid.between("2024-01-01", "2024-01-02"))

    assert published_keys(outcomes) == ["2024-01-02"]
    assert "its footer says 4 rows, and its row groups have 3: it is damaged" in refusals(outcomes)["2024-01-01"]


def test_what_keeps_an_empty_folder_says_nothing(tmp_path):
    """Where folders without files are not kept, and on a desktop, there is a file in a day without rows too."""
    for name in (".gitkeep", ".keep", ".DS_Store", "_SUCCESS", "._SUCCESS.crc"):
        (tmp_path / name).touch()
    assert left_in(str(tmp_path)) is None
    (tmp_path / ".orders.json.Xy12Zq").touch()
    assert left_in(str(tmp_path)) == ".orders.json.Xy12Zq"
