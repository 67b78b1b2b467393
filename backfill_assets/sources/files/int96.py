"""Instants as INT96, of which Spark cuts nanoseconds without a word: whether a file has any."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any


def finer_than_microseconds(path: Path, names: Collection[str]) -> str | None:
    """Return in words which of a file's values are no whole microsecond; None if there are none.

    The read itself names a damaged file.

    Args:
        names: Of the file's columns of INT96.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    compute: Any = pc  # functions that pyarrow makes when it is loaded
    count, first = 0, ""
    try:
        with (
            pq.ParquetFile(path, coerce_int96_timestamp_unit="ns") as in_nanos,
            pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as in_micros,
        ):
            batches: list[Any] = [file.iter_batches(columns=sorted(names)) for file in (in_nanos, in_micros)]
            for nanos, micros in zip(*batches, strict=True):
                for name in nanos.schema.names:
                    # far from today both numbers wrap around 64 bits; their difference does not
                    whole = compute.multiply(micros[name].cast(pa.int64()), 1000)
                    rest = compute.subtract(nanos[name].cast(pa.int64()), whole)
                    is_finer = compute.not_equal(rest, 0)
                    finer, rest = micros[name].filter(is_finer), rest.filter(is_finer)
                    count += len(finer)
                    if len(finer) and not first:
                        first = f"`{name}`: {finer[0].cast(pa.string())}{rest[0].as_py():03}"
    except (OSError, pa.ArrowException):
        return None
    return (
        f"{count:,} timestamps of INT96 are no whole microseconds, and a timestamp has no finer ones "
        f"(`nanoseconds: cut` would cut them), first {first}"
        if count
        else None
    )
