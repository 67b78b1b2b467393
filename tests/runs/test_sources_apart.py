"""Sources lie apart from tables: what a lakehouse writes is never read as somebody's export."""

from __future__ import annotations

import pytest

from backfill_assets.assets.factory import build_lakehouse_table
from backfill_assets.assets.lakehouse import lakehouse_definitions
from backfill_assets.errors import SameTableError, TableSpecError
from backfill_assets.runs.resources import Lakehouse
from tests.support.shop import orders_spec


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


@pytest.mark.parametrize("linked", ["events", "events/eu"])
def test_a_link_makes_no_second_folder(tmp_path, linked):
    """A stream whose folder, or one above it, is a link into the history is refused; so is that history's launch."""
    landing = tmp_path / "landing"
    (landing / "orders/eu").mkdir(parents=True)
    (landing / "events").symlink_to(landing / "orders")
    live = {"path": linked, "starts": "2024-02-01", "late": "keep"}
    source = {"kind": "files", "path": "orders", "format": "json"}
    stream = orders_spec(key="bronze/visits", live=live, source={**source, "path": "visits"})
    history = orders_spec(source=source)
    specs, lakehouse = {stream.key: stream, history.key: history}, Lakehouse(root=str(tmp_path))
    assert stream.live is not None

    with pytest.raises(SameTableError, match=r"`source.path` of `bronze/orders`.*Nothing was written"):
        lakehouse.live_writer(stream, stream.live, print, tables=specs)
    with pytest.raises(SameTableError, match=r"`bronze/visits`: live.path: the folder"):
        lakehouse.source(history, specs, None, print)


def test_definitions_know_where_relative_paths_lead(tmp_path):
    """A stream's absolute path that is a history's relative one is refused when the definitions load."""
    live = {"path": f"file:{tmp_path}/landing/orders/", "starts": "2024-02-01", "late": "keep"}
    table = build_lakehouse_table(orders_spec(live=live))
    with pytest.raises(TableSpecError, match=r"bronze/orders: live.path: .* `source.path` of `bronze/orders`"):
        lakehouse_definitions(table, lakehouse=Lakehouse(root=str(tmp_path)))
    lakehouse_definitions(table, lakehouse=Lakehouse(root=f"{tmp_path}/other"))
