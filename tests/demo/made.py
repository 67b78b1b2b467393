"""A table that somebody makes anew, as another one by the same name."""

from __future__ import annotations

import shutil
from pathlib import Path

import deltalake
import pyarrow as pa


def made(path: Path) -> deltalake.DeltaTable:
    shutil.rmtree(path, ignore_errors=True)
    deltalake.write_deltalake(path, pa.table({"n": [1]}))
    return deltalake.DeltaTable(path)
