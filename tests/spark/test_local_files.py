"""The faster local file system leaves files as Hadoop's own does; where it does not, it is not used."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

FASTER = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
HADOOPS_OWN = "org.apache.hadoop.fs.LocalFileSystem"


def written(spark: SparkSession, root: Path, umask: str, file_system: str) -> dict[str, int]:
    """Write twice behind a link, below a sticky folder; return the mode of every kind of file and folder."""
    shared = root / "shared"
    shared.mkdir(parents=True)
    shared.chmod(0o1777)
    (root / "link").symlink_to(shared)
    rows = spark.range(6).selectExpr("id", "id % 2 AS half").coalesce(1)
    settings = {
        "fs.file.impl": file_system,
        "fs.file.impl.disable.cache": "true",
        "fs.permissions.umask-mode": umask,
    }
    for _ in range(2):
        rows.write.partitionBy("half").mode("overwrite").options(**settings).parquet(f"{root}/link/table")
    assert spark.read.options(**settings).parquet(f"{root}/link/table").count() == 6
    found: dict[str, int] = {}
    for path in [shared, *shared.rglob("*")]:
        where = path.relative_to(root) if path.is_dir() else path.relative_to(root).parent / path.suffix
        found[str(where)] = stat.S_IMODE(path.stat().st_mode)
    return found


@pytest.mark.parametrize(("umask", "mode"), [("022", 0o644), ("077", 0o600)])
def test_files_are_as_hadoop_leaves_them(spark: SparkSession, tmp_path: Path, umask: str, mode: int):
    """Modes of files and folders are the same, and what was replaced is gone."""
    faster = written(spark, tmp_path / "faster", umask, FASTER)
    assert faster == written(spark, tmp_path / "own", umask, HADOOPS_OWN)
    assert faster["shared"] == 0o1777
    assert faster["shared/table/half=0/.parquet"] == mode


def test_it_is_the_one_in_use(spark: SparkSession, tmp_path: Path):
    """The session of these tests has it, as a user's has; an error of the disk comes through as one."""
    assert spark.conf.get("spark.hadoop.fs.file.impl", "") == FASTER
    (tmp_path / "file").touch()
    with pytest.raises(Exception, match="file"):
        spark.range(1).write.parquet(f"{tmp_path}/file/below")
