"""A shop with a live stream: a table, its landing folder, and writers that do not wait."""

from __future__ import annotations

import pytest

from tests.support.live_shop import Shop


@pytest.fixture
def shop(spark, tmp_path):
    return Shop(spark, tmp_path)
