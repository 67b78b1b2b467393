"""Lakehouses for launches in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.launching import Lake, new_lake


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Callable[..., Lake]:
    """Make a lakehouse; it uses the one session that all tests share."""

    def make(name: str, **changes: Any) -> Lake:
        return new_lake(tmp_path_factory.mktemp(name), **changes)

    return make
