"""A folder with a table log of its own is a table, never a set of files."""

from __future__ import annotations

import shutil

import pytest

from backfill_assets.errors import TableFolderError
from backfill_assets.sources.files.sample import sample_of
from backfill_assets.sources.files.table_logs import above, kind_by_names
from tests.sources.files.landing import days, files_spec, source_of
from tests.support.shop import folder_of, orders, write_parquet

TABLES = [
    ("_delta_log/00000000000000000000.json", "a Delta table"),
    (".hoodie/hoodie.properties", "a Hudi table"),
    ("_spark_metadata/0", "the output of a Spark stream"),
    ("metadata/v1.metadata.json", "an Iceberg table"),
]


@pytest.mark.parametrize(("marker", "what"), TABLES)
def test_a_tables_folder_is_no_source(spark, tmp_path, marker, what):
    """The root, one above it, and one below it may not be a table, whoever lists them."""
    spec = files_spec()
    for at in ("", "above", "2024/01/odd name/02"):
        root = tmp_path / "table"
        shutil.rmtree(root, ignore_errors=True)
        source = root / "in" if at == "above" else root
        write_parquet(folder_of(source, "2024-01-01"), orders("2024-01-01"))
        log = (root if at == "above" else root / at) / marker
        log.parent.mkdir(parents=True)
        log.write_text("{}")
        with pytest.raises(TableFolderError, match=f"is {what}.*Nothing was written. .*`kind: delta`"):
            source_of(spark, spec, source).survey(days(spec, "2024-01-01"))
    with pytest.raises(TableFolderError, match=what):
        sample_of(spark, "bronze/orders", str(root / "2024/01/odd name/02"))


@pytest.mark.parametrize("is_root", [True, False], ids=["the root", "a day"])
def test_a_link_into_a_table_is_no_source(spark, tmp_path, is_root):
    """A link to the folder of a table, or of one of its partitions, reads what the table has removed."""
    spec, root = files_spec(), tmp_path / "in"
    table = tmp_path / "table"
    day = folder_of(table, "2024-01-01")
    write_parquet(day, orders("2024-01-01"))
    (table / "_delta_log").mkdir()
    link = root if is_root else folder_of(root, "2024-01-01")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(table if is_root else day)
    with pytest.raises(TableFolderError, match="is a Delta table"):
        source_of(spark, spec, root).survey(days(spec, "2024-01-01"))


def test_landing_beside_tables_is_a_source(spark, tmp_path):
    """Tables beside the folder, and a table above the lakehouse's root, are not its own."""
    spec, root = files_spec(), tmp_path / "lake"
    write_parquet(folder_of(root / "landing/orders", "2024-01-01"), orders("2024-01-01"))
    (root / "tables/bronze/orders/_delta_log").mkdir(parents=True)
    (tmp_path / "_delta_log").mkdir()
    source = source_of(spark, spec, root / "landing/orders", top=str(root))
    assert source.survey(days(spec, "2024-01-01"))["2024-01-01"].files == 1


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("base_0000005/bucket_00000", ""),
        ("day=2024-01-01/delta_0000001_0000001_0000/bucket_00000", "day=2024-01-01"),
        ("delete_delta_2_2/bucket_00000", ""),
        ("metadata/v1.metadata.json.gz", ""),
        ("a/metadata/00001-x.metadata.json", "a"),
        ("base_orders/delta_1/metadata/a.json", None),
        ("2024/delta_1_1.parquet", None),
    ],
)
def test_names_show_a_table(name, folder):
    """Hive's and Iceberg's folders are told by the names that every listing shows."""
    found = kind_by_names(["2024/01/01/a.parquet", name])
    assert (found and found[0]) == folder


def test_no_folder_above_the_lakehouse_is_looked_at():
    """The way up ends at the lakehouse's root, at the root of the disk, or at the bucket."""
    assert [*above("/lake/in/a/", "/lake")] == ["/lake/in/a", "/lake/in", "/lake"]
    assert [*above("/data/a", "/lake")] == ["/data/a", "/data"]
    assert [*above("file:/data/a")] == ["file:/data/a", "file:/data"]
    assert [*above("s3a://b/in/a")] == ["s3a://b/in/a", "s3a://b/in", "s3a://b"]
