"""Launches over two days of files of which the second day's file has bytes that are no text."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from backfill_assets.commands.init import first_spec
from backfill_assets.errors import BackfillAssetsError
from backfill_assets.lake.table import LakeTable
from backfill_assets.runs.resources import Lakehouse
from tests.sources.files.landing import days, files_spec, source_of
from tests.support.shop import folder_of, launch, published_keys, refusals

GOOD, BAD = "2024-05-01", "2024-05-02"
HEADER = b"id,at,note\n"
GOOD_CSV = HEADER + b"1,2024-05-01T10:00:00Z,x\n"


@dataclass(frozen=True)
class Case:
    """A good day's file, a bad day's, what the refusal says, and what `init` says of the folder."""

    good: bytes
    bad: bytes
    says: tuple[str, ...]
    init_says: str = "event_time: at"
    name: str = "a.csv"
    source: Mapping[str, Any] = field(default_factory=dict)
    key: str = "id"


def _parquet(rows: Mapping[str, list[Any]], day: str) -> bytes:
    """Return a file whose `note` has any bytes."""
    note = pa.array(rows["note"], pa.binary()).view(pa.string())
    at = pa.array([f"{day}T10:00:00"] * len(note)).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": pa.array(rows["id"], pa.int64()), "at": at, "note": note}), out)
    return out.getvalue().to_pybytes()


CASES = {
    "a header": Case(
        GOOD_CSV,
        "id,at,note,größe\n2,2024-05-02T10:00:00Z,x,1\n".encode("latin1"),
        ("a.csv line 1: not UTF-8", "id,at,note,gr\ufffd\ufffde", "encoding: windows-1252"),
        "The name of the column `gr\ufffd\ufffde` is not UTF-8. Nothing was written. Does the source need `encoding: windows-1252`?",
    ),
    "a gzip file by another name": Case(
        GOOD_CSV,
        gzip.compress(HEADER + b"2,2024-05-02T10:00:00Z,x\n"),
        ("a.csv", "packed with gzip", "`.gz`"),
        "/a.csv` is packed with gzip, but its name does not end in `.gz`. Nothing was written. Rename it.",
    ),
    "a byte that its encoding has not": Case(
        GOOD_CSV,
        HEADER + b"2,2024-05-02T10:00:00Z,\x81\xfc\n",
        ("a.csv line 2: not windows-1252",),
        source={"encoding": "windows-1252"},
    ),
    "an escape sequence": Case(
        GOOD_CSV,
        HEADER + b"\x1b[2Jtwo,2024-05-02T10:00:00Z,x\x00\n",
        (r"a.csv line 2: `id` is no bigint: \x1b[2Jtwo",),
    ),
    "a key of Parquet": Case(
        _parquet({"id": [1], "note": [b"x"]}, GOOD),
        _parquet({"id": [2, 3], "note": [b"gr\xf6\x1be"] * 2}, BAD),
        ("keys_are_unique", r"note=gr" + "\ufffd" + r"\x1be"),
        name="a.parquet",
        key="note",
    ),
}


def outcomes(spark: SparkSession, folder: Path) -> dict[str, dict[str, Any]]:
    """Return, by case, the days that were published, why others were not, and what `init` says of the folder."""
    found: dict[str, dict[str, Any]] = {}
    for number, (name, case) in enumerate(CASES.items()):
        landing = folder / "landing" / f"t{number}"
        for day, content in ((GOOD, case.good), (BAD, case.bad)):
            place = folder_of(landing, day)
            place.mkdir(parents=True)
            (place / case.name).write_bytes(content)
        spec = files_spec(
            columns={"id": "bigint not null", "at": "timestamp not null", "note": "string"},
            key_columns=[case.key],
            event_time="at",
            start=GOOD,
            source={"format": case.name.partition(".")[2], **case.source},
        )
        table = LakeTable(spark, spec, str(folder / f"table{number}"))
        made = launch(table, source_of(spark, spec, landing), days(spec, GOOD, BAD))
        found[name] = {"published": published_keys(made), "refused": refusals(made), "init": _init(folder, number)}
    return found


def _init(folder: Path, number: int) -> str:
    try:
        return first_spec(Lakehouse(root=str(folder)), "bronze/orders", f"t{number}")
    except BackfillAssetsError as error:
        return str(error)
