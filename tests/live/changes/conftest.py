"""A database whose capture has begun; files that need another one make their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.changes.capturing import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    shop.land()
    return shop
