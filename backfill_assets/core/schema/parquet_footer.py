"""The footer of a Parquet file: which columns it has, and of which type each of them is. Pure.

Spark names the columns of a file only if it knows the types of all of them, those included that nobody asks for.

Source: the Parquet format, `parquet.thrift`, in Thrift's compact protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from backfill_assets.core.schema.types import TIMESTAMP_NANOS, TIMESTAMP_NTZ_NANOS

_PHYSICAL = ("boolean", "int", "bigint", "timestamp", "float", "double", "binary", "binary")
"""What a column is of which the file says no more than how its values are stored; INT96 is always a timestamp."""

_INT96 = 3
_OF_SPARK = (b"org.apache.spark.version", b"parquet-mr")
"""What a footer of Spark has in it: its own note, and who wrote the file. Others keep notes of what they have read."""

_CONVERTED: dict[int, str] = {
    0: "string", 4: "string", 6: "date", 7: "time", 8: "time", 9: "timestamp", 10: "timestamp", 11: "uint8",
    12: "uint16", 13: "uint32", 14: "uint64", 15: "tinyint", 16: "smallint", 17: "int", 18: "bigint", 19: "string",
    20: "binary", 21: "interval",
}  # fmt: skip
"""Annotations of older writers, by number; newer ones repeat them beside their own."""

_LOGICAL: dict[int, str] = {
    1: "string", 4: "string", 6: "date", 7: "time", 11: "void", 12: "string", 13: "binary", 14: "uuid", 15: "float16",
}  # fmt: skip

_DECIMAL, _MAP, _LIST = 5, 2, 3
_TIMESTAMP, _INTEGER = 8, 10
_NANOS = 3
_REPEATED = 2

_MOST_BYTES_COUNTED = 64 << 10
"""Of a footer whose row groups are gone through, which takes longer for each column of each of them."""


@dataclass(frozen=True, slots=True)
class FooterColumn:
    """A column of a file.

    Args:
        kind: Its type in Spark's words, or in Parquet's where Spark has none.
    """

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Footer:
    """What the footer of a file says that matters here.

    Args:
        columns: At the top of the file, in order.
        rows: How many its row groups have together; None of a long footer.
        promised: How many it says that they have; None likewise.
        int96: Names of the columns of INT96, which may have nanoseconds without saying so; none of a file that Spark
            wrote, for it has no nanoseconds.
    """

    columns: tuple[FooterColumn, ...]
    rows: int | None
    promised: int | None
    int96: frozenset[str] = frozenset()


def read_footer(footer: bytes) -> Footer | None:
    """Return what a footer says; None if this is none.

    Args:
        footer: From its first byte on; the end of a long one may be missing, for the columns stand at its beginning.
    """
    try:
        fields = _Thrift(footer).struct(until=4 if len(footer) <= _MOST_BYTES_COUNTED else 2)
        elements = fields[2]
        columns: list[FooterColumn] = []
        at, is_of_spark, int96 = 1, all(mark in footer for mark in _OF_SPARK), set[str]()
        for _ in range(elements[0].get(5, 0)):
            element = elements[at]
            if element.get(1) == _INT96 and not element.get(5) and not is_of_spark:
                int96.add(element[4].decode("utf-8", errors="replace"))
            columns.append(FooterColumn(element[4].decode("utf-8", errors="replace"), _kind(element)))
            at = _after(elements, at)
        rows = sum(group[3] for group in fields[4]) if 4 in fields else None
        return Footer(tuple(columns), rows, fields.get(3), frozenset(int96))
    except (LookupError, TypeError, AttributeError, ValueError):
        return None


def _after(elements: list[dict[int, Any]], at: int) -> int:
    """Return the place behind an element and all that lies inside of it."""
    open_elements = 1
    while open_elements:
        open_elements += elements[at].get(5, 0) - 1
        at += 1
    return at


def _kind(element: dict[int, Any]) -> str:
    """Return the type of a column."""
    logical: dict[int, Any] = element.get(10) or {}
    annotation: int | None = next(iter(logical), None)
    older: int | None = element.get(6)
    if element.get(3) == _REPEATED or annotation == _LIST or older == 3:
        return "array"
    if element.get(5):
        return "map" if annotation == _MAP or older in (1, 2) else "struct"
    if annotation == _DECIMAL:
        return f"decimal({logical[_DECIMAL][2]},{logical[_DECIMAL].get(1, 0)})"
    if older == _DECIMAL:
        return f"decimal({element.get(8, 0)},{element.get(7, 0)})"
    if annotation == _TIMESTAMP:
        return _timestamp(logical[annotation])
    if annotation == _INTEGER:
        signed = {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}
        bits = logical[annotation][1]
        return signed[bits] if logical[annotation].get(2) else f"uint{bits}"
    if annotation is not None:
        return _LOGICAL.get(annotation, f"logical type {annotation}")
    if older is not None:
        return _CONVERTED.get(older, f"converted type {older}")
    physical: int = element[1]
    return _PHYSICAL[physical]


def _timestamp(annotation: dict[int, Any]) -> str:
    has_zone, unit = annotation.get(1, False), next(iter(annotation.get(2, {})), None)
    if unit == _NANOS:
        return TIMESTAMP_NANOS if has_zone else TIMESTAMP_NTZ_NANOS
    return "timestamp" if has_zone else "timestamp_ntz"


# -- Thrift ------------------------------------------------------------------------------------------------------------

_DEPTH = 16
"""Structures inside of each other; those of a footer are four deep."""


class _Thrift:
    """Bytes in Thrift's compact protocol, read from the beginning: a structure is a mapping by the fields' numbers."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self, *, until: int | None = None, depth: int = 0) -> dict[int, Any]:
        """Read a structure.

        Args:
            until: The field behind which the rest is of no interest.
        """
        if depth > _DEPTH:
            raise ValueError("structures inside of each other without an end")
        fields: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            step, kind = head >> 4, head & 0x0F
            number = number + step if step else _signed(self._varint())
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
            if number == until:
                break
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):  # inside of a list; a field has its truth in its head
            return self._byte() == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return _signed(self._varint())
        if kind == 7:
            return self._bytes(8)
        if kind == 8:
            return self._bytes(self._varint())
        if kind in (9, 10):
            head = self._byte()
            count = self._varint() if head >> 4 == 15 else head >> 4
            return [self._value(head & 0x0F, depth + 1) for _ in range(count)]
        if kind == 12:
            return self.struct(depth=depth + 1)
        raise ValueError(f"{kind} is no type of a footer")

    def _byte(self) -> int:
        value = self._data[self._at]
        self._at += 1
        return value

    def _bytes(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise IndexError("behind the end")
        self._at += count
        return self._data[self._at - count : self._at]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


def _signed(value: int) -> int:
    """Return a number whose sign Thrift keeps in the lowest bit."""
    return (value >> 1) ^ -(value & 1)
