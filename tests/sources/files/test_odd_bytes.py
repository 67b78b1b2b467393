"""Bytes that are no text: the good days are published and the bad one is refused, on classic and on Connect sessions."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.places.servers import run_on
from tests.sources.files.odd_bytes import BAD, CASES, GOOD, outcomes

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module", params=["classic", "connect"])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "connect":
        return run_on("tests.sources.files.odd_bytes", folder, request.getfixturevalue("warm_server"))
    spark: SparkSession = request.getfixturevalue("spark")
    return outcomes(spark, folder)


@pytest.mark.parametrize("case", CASES)
def test_odd_bytes_refuse_their_own_day(found: Found, case: str):
    """The good day is published, and the bad day's refusal names the file, the line and the reason in printable text."""
    assert found[case]["published"] == [GOOD]
    said = found[case]["refused"][BAD]
    assert said.isprintable()
    assert [words for words in CASES[case].says if words not in said] == []
    assert said.count("values_fit_their_types") <= 1, "what two looks find is told once"
    assert CASES[case].init_says in found[case]["init"]
