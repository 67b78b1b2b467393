"""A fresh world for each test of the live side."""

from __future__ import annotations

import pytest

from tests.core.live.world import World


@pytest.fixture
def world():
    return World()
