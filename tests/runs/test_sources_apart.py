"""Sources lie apart from tables: what a lakehouse writes is never read as somebody's export."""

from __future__ import annotations

import pytest

from backfill_assets.errors import SameTableError
from backfill_assets.runs.resources import Lakehouse


@pytest.mark.parametrize(
    "path",
    [
        "{root}/tables/bronze/orders",
        "file://{root}/tables/bronze/orders/",
        "file://{root}/tables/bronze",
        "file:{root}/tables/bronze",
        "./exports/../../tables",
        "{root}/tables",
        "{root}",
        "..",
        "../tables/bronze/orders_late",
        "linked/orders",
    ],
)
def test_a_source_among_the_tables_is_refused(tmp_path, path):
    """The table's own folder, another one's, one that holds them all, however it is named: nothing is read."""
    (tmp_path / "tables/bronze/orders").mkdir(parents=True)
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/linked").symlink_to(tmp_path / "tables/bronze")
    with pytest.raises(SameTableError) as caught:
        Lakehouse(root=str(tmp_path)).landing_path(path.format(root=tmp_path))
    assert f"the tables of this lakehouse lie in `{tmp_path}/tables`" in str(caught.value)
    assert "Nothing was written. Name the folder in which the exports" in str(caught.value)


@pytest.mark.parametrize(
    ("root", "path", "refused"),
    [
        ("s3a://lake/house", "s3://lake/house/tables/bronze/orders", True),
        ("s3a://lake/house", "s3a://lake", True),
        ("s3a://lake/house", "s3a://lake/house-exports/orders", False),
        ("s3a://lake/house", "s3a://other/house/tables", False),
        ("s3a://lake/house", "orders", False),
        ("hdfs:/lake/house", "hdfs:///lake/house/tables", True),
        ("hdfs:/lake/house", "hdfs:/lake/exports", False),
        ("/lake/house", "s3a://lake/house/tables", False),
        ("/lake/house", "/lake/house/tables_of_before", False),
        ("/lake/house", "/lake/exports", False),
        ("/lake/house", "", False),
    ],
)
def test_a_source_elsewhere_is_taken_as_it_is(root, path, refused):
    """Buckets are compared by name, whatever their scheme is called; a name that only begins alike is another folder."""
    try:
        Lakehouse(root=root).landing_path(path)
    except SameTableError:
        assert refused
    else:
        assert not refused
