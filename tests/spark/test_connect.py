"""A Spark Connect server that does not answer, or is none: what a person is told, and what is not shown."""

from __future__ import annotations

import re
import socket
import traceback

import pytest

from backfill_assets.errors import SparkUnavailableError
from backfill_assets.spark.connect import connect
from backfill_assets.spark.settings import SparkSettings

SHOWN = {
    "sc://me:canary@host:15002": "sc://host:15002",
    "sc:canary": "(no address)",
}


@pytest.mark.parametrize(
    ("remote", "words"),
    [
        ("sc://127.0.0.1:{port}", "refused"),
        ("http://host", "sc://host:port"),
        ("sc://me:canary@host:15002", "sc://host:port"),
        ("sc:canary", "sc://host:port"),
    ],
)
def test_a_connect_server_that_does_not_answer(remote, words):
    """Nobody listens there, or it is no address: an error at once, which names the server without its token and says what to do."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        remote = remote.format(port=unused.getsockname()[1])
    shown = re.escape(SHOWN.get(remote, remote.partition("/;")[0]))
    with pytest.raises(
        SparkUnavailableError, match=f"The Spark Connect server `{shown}` does not answer: .*{words}"
    ) as caught:
        connect(SparkSettings(remote=remote))
    assert "unset `SPARK_REMOTE`" in caught.value.remedy
    assert "canary" not in str(caught.value)


def test_what_pyspark_says_of_an_address(monkeypatch):
    """PySpark's own words may have the address with its token; neither the error nor its trace shows that."""
    from pyspark.errors import PySparkValueError
    from pyspark.sql import SparkSession

    def remote(self: object, url: str) -> None:
        raise PySparkValueError(errorClass="INVALID_CONNECT_URL", messageParameters={"detail": f"`{url}` is none."})

    monkeypatch.setattr(type(SparkSession.builder), "remote", remote)
    token = "can" + "ary"  # the trace shows these lines too
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(SparkUnavailableError) as caught:
        connect(SparkSettings(remote=f"sc://127.0.0.1:{server.getsockname()[1]}/;token={token};x=1"))
    assert "is none." in str(caught.value)
    assert token not in "".join(traceback.format_exception(caught.value))


def test_connect_without_its_packages(monkeypatch):
    """A plain installation lacks what Spark Connect needs; the message says how to get it."""
    from pyspark.errors import PySparkImportError
    from pyspark.sql import SparkSession

    def remote(self: object, url: str) -> None:
        raise PySparkImportError(
            errorClass="PACKAGE_NOT_INSTALLED", messageParameters={"package_name": "grpcio", "minimum_version": "1.76"}
        )

    monkeypatch.setattr(type(SparkSession.builder), "remote", remote)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(SparkUnavailableError, match=r"pip install 'pyspark\[connect\]==4.2.0'"),
    ):
        connect(SparkSettings(remote=f"sc://127.0.0.1:{server.getsockname()[1]}"))
