"""Bytes that are no text: the good days are published and the bad one is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.sources.files.odd_bytes import BAD, CASES, GOOD, outcomes

pytestmark = pytest.mark.prove

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Found:
    return outcomes(spark, tmp_path_factory.mktemp("odd"))


@pytest.mark.parametrize("case", CASES)
def test_odd_bytes_refuse_their_own_day(found: Found, case: str):
    """The good day is published, and the bad day's refusal names the file, the line and the reason in printable text."""
    assert found[case]["published"] == [GOOD]
    said = found[case]["refused"][BAD]
    assert said.isprintable()
    assert [words for words in CASES[case].says if words not in said] == []
    assert said.count("values_fit_their_types") <= 1, "what two looks find is told once"
    assert CASES[case].init_says in found[case]["init"]
