"""The checksum of a partition's rows without Spark: the same numbers that `spark.expressions.row_hash` gives. Pure.

A row is hashed value by value, each hash the seed of the next one, as Spark's `xxhash64` does; NULL is skipped, so
words of flags in front say which values are NULL. The checksum is the sum of the hashes of all rows, modulo 2**64.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import xxhash

FLAGS_IN_A_WORD = 62
"""So many columns share one word of flags."""

_SEED, _MODULUS = 42, 1 << 64
_LONG, _INT = struct.Struct("<q"), struct.Struct("<i")


def _only_one(value: float) -> float:
    """Return one NaN for all, and 0.0 for -0.0."""
    return math.nan if math.isnan(value) else value + 0.0


_PACKED: Mapping[str, Callable[[Any], bytes]] = {
    "boolean": lambda value: _INT.pack(int(value)),
    "tinyint": _INT.pack,
    "smallint": _INT.pack,
    "int": _INT.pack,
    "bigint": _LONG.pack,
    "date": _INT.pack,
    "timestamp": _LONG.pack,
    "float": lambda value: struct.pack("<f", _only_one(value)),
    "double": lambda value: struct.pack("<d", _only_one(value)),
    "string": lambda value: value.encode(),
    "binary": bytes,
}


def packer(kind: str) -> Callable[[Any], bytes]:
    """Return what makes the bytes that are hashed of a value of a type.

    Values are given as numbers: days and microseconds since 1970 for dates and instants, and for decimals their digits
    without the point.
    """
    if kind.startswith("decimal"):
        precision = int(kind.removeprefix("decimal(").split(",")[0])
        return _LONG.pack if precision <= 18 else _digits
    return _PACKED[kind]


def _digits(value: int) -> bytes:
    """Return a number's shortest two's complement, the highest byte first, as Java's `BigInteger` does."""
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return value.to_bytes(size, "big", signed=True)


def checksum_of_rows(kinds: Sequence[str], rows: Iterable[Sequence[Any]]) -> tuple[int, str]:
    """Return how many rows there are, and their checksum as 16 hexadecimal digits.

    Args:
        kinds: Type of each column, in the order of the spec.
        rows: Values in the same order, as `packer` takes them; None for NULL.
    """
    packers = [packer(kind) for kind in kinds]
    words = [range(at, min(at + FLAGS_IN_A_WORD, len(kinds))) for at in range(0, len(kinds), FLAGS_IN_A_WORD)]
    count = total = 0
    for row in rows:
        seed = _SEED
        for word in words:
            flags = sum(1 << bit for bit, at in enumerate(word) if row[at] is None)
            seed = xxhash.xxh64_intdigest(_LONG.pack(flags), seed)
        for value, pack in zip(row, packers, strict=True):
            if value is not None:
                seed = xxhash.xxh64_intdigest(pack(value), seed)
        count, total = count + 1, (total + seed) % _MODULUS
    return count, f"{total:016x}"
