"""What the live side's commits say, read from the log's own files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def live_receipts(path: Path) -> list[dict[str, Any]]:
    """Return what the commits of the live side say of themselves, oldest first."""
    found: list[dict[str, Any]] = []
    for file in sorted((path / "_delta_log").glob("*.json")):
        for line in file.read_text(encoding="utf-8").splitlines():
            said = json.loads(line).get("commitInfo", {}).get("userMetadata")
            if said and '"backfill_assets_live"' in said:
                found.append(json.loads(said))
    return found
