"""Where data lies is shown in events, logs and errors: so no path may have a password in it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from backfill_assets.core.spec.fields import is_uri, path_without_password
from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.spec.live import LiveStream
from backfill_assets.errors import ConfigurationError
from backfill_assets.runs.resources import Lakehouse

WITH_A_PASSWORD = ("s3a://me:canary@bucket/orders", "s3a://me:can/ary+x@bucket/orders", "ftp://:canary@host")
PLAIN = (
    "orders/a:b@c", "/landing/a:b@c", "s3a://bucket/a:b@c", "abfss://shop@account.dfs.core.windows.net/x", "hdfs://me@host:8020/x", "hdfs://[::1]:8020/x",
)  # fmt: skip


@pytest.mark.parametrize("path", WITH_A_PASSWORD)
def test_a_path_with_a_password_is_refused(path: str):
    """In a source, a stream and a root alike; the error shows the host, and neither the password nor who has it."""
    with pytest.raises(ValidationError, match="has a password in it") as in_files:
        FilesSpec.model_validate({"kind": "files", "path": path, "format": "json"})
    with pytest.raises(ValidationError, match="has a password in it") as in_a_stream:
        LiveStream.model_validate({"path": path, "starts": "2024-01-01"})
    with pytest.raises(ConfigurationError, match="has a password in it") as in_the_root:
        Lakehouse(root=path).table_path("bronze/orders")
    with pytest.raises(ConfigurationError, match="SPARK_EXTRA_CONF"):
        Lakehouse().landing_path(path)
    assert not any("ary" in str(found.value) for found in (in_files, in_a_stream, in_the_root))


@pytest.mark.parametrize("path", PLAIN)
def test_other_paths_are_left_alone(path: str):
    """A user, a container or a port is no password, and what looks like one in a name of a folder is none."""
    assert path_without_password(path) == path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3a://bucket/x", True), ("hdfs:/warehouse/lake", True), ("file:/data/lake", True), ("file:///data/lake", True),
        ("/data/a://b", False), ("orders/a:b", False), ("C:/lake", False), ("dt:2024", False), ("", False),
    ],
)  # fmt: skip
def test_a_uri_has_a_scheme_and_a_slash(path: str, expected: bool):
    """One slash is enough, as Hadoop writes it; a drive's letter is no scheme, nor is what stands behind the first `/`."""
    assert is_uri(path) is expected


@pytest.mark.parametrize("root", ["hdfs:/warehouse/lake", "file:/data/lake", "file:///data/lake", "/data/lake"])
def test_a_root_with_one_slash_is_no_relative_path(root: str):
    """Java prints `file:/data/lake`: a lakehouse below the working directory would be another one."""
    assert Lakehouse(root=f"{root}/").table_path("bronze/orders") == f"{root}/tables/bronze/orders"
    assert Lakehouse(root="/lake").landing_path(f"{root}/orders") == f"{root}/orders"


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("eu/../orders/.", "{root}/landing/orders"),
        ("../exports", "{root}/exports"),
        ("s3a://me@bucket/./eu/../../orders", "s3a://me@bucket/orders"),
        ("file:/exports/../orders", "file:/orders"),
        ("orders.v2/..data/", "{root}/landing/orders.v2/..data/"),
    ],
)
@pytest.mark.parametrize("root", ["/data/lake", "s3a://lake/house"])
def test_a_sources_path_has_no_dots(root: str, path: str, folder: str):
    """Storages list files by their resolved path; a host is part of none, and names that only begin with dots stay."""
    assert Lakehouse(root=root).landing_path(path) == folder.format(root=root)
