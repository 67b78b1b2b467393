"""Files that are listed and looked at here, without Spark: it would say the same, and is asked where it may not."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from backfill_assets.sources.files import listing
from backfill_assets.sources.files.footers import read_footer
from backfill_assets.sources.files.listing import every_file
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


@pytest.mark.prove
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


def test_files_with_odd_names_are_listed_as_spark_lists_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Blanks, punctuation, letters of other languages: the same paths, URIs and ids, so nobody starts Spark for a name."""
    letters = [chr(code) for code in range(32, 127) if chr(code) not in "/:"]
    letters += [
        "é",
        "e\u0301",
        "ß",
        "日本",
        "\u00a0",
        "\u3000",
        "\u2028",
        "\u0085",
        "🦆",
        "%20",
        "a b c",
        "100%",
        "\t",
        "\x7f",
    ]
    for number, letter in enumerate(letters):
        written(tmp_path / "in" / f"dt=1{letter}" / f"x{letter}y{number}.json")
        written(tmp_path / "in" / "flat" / f"x{letter}.json", b"")
    here = files_below(spark, str(tmp_path / "in"))
    monkeypatch.setattr(listing, "files_below", lambda *_: None)
    by_spark, _ = every_file(spark, "bronze/orders", str(tmp_path / "in"))
    assert sorted(here or []) == sorted(by_spark)


@pytest.mark.prove
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
