"""What a launch must leave of the table's rows, beside what every audit says. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import AuditRule
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import NOTHING_WRITTEN, WindowError

KEY_TYPES = ("smallint", "int", "bigint", "string", "date")
"""Types of keys that lie in an order which the lakehouse and a database share."""

_BITS = {"smallint": 16, "int": 32, "bigint": 64}


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys of a table with one key column, from a first to a last, both included; texts in the order of their bytes."""

    column: str
    first: str
    last: str

    def __str__(self) -> str:
        return f"`{self.column}` {self.first}...{self.last}"


@dataclass(frozen=True, slots=True)
class Guard:
    """A rule about the rows that a table has already.

    Args:
        rule: `LIVE_ROWS_ARE_COVERED`: no row gets lost that the source neither has nor supersedes.
            `KEYS_ARE_KEPT`: no key gets lost. `OTHER_KEYS_ARE_UNCHANGED`: no row outside `keys` is another one.
        keys: Of the last rule.
    """

    rule: AuditRule
    keys: KeyRange | None = None


LIVE_ROWS = Guard(AuditRule.LIVE_ROWS_ARE_COVERED)
ALL_KEYS = Guard(AuditRule.KEYS_ARE_KEPT)


@dataclass(frozen=True, slots=True)
class Others:
    """Where else in the same chunk keys may be of the partitions that a guard is about.

    Args:
        written: They are published with them: a key that is staged in one of these is kept.
        refused: They are not. With any, only keys count that are staged, wherever they lie.
        gone: Partition and key columns of rows that have left their partitions, as the source says: no guard keeps
            them. Of whatever the engine has rows in.
    """

    written: tuple[Partition, ...] = ()
    refused: tuple[Partition, ...] = ()
    gone: Any = None


NO_OTHERS = Others()


@dataclass(frozen=True, slots=True)
class Allowances:
    """What a launch may do in spite of the guards, by the names of its config.

    Args:
        allow_shrink: Publish partitions that lose more of their rows than the spec's `max_shrink`.
        allow_unexpected: Publish partitions whose measures are not what the spec expects.
        discard_uncovered_rows: Discard rows that a live stream wrote and the source does not have.
    """

    allow_shrink: bool = False
    allow_unexpected: bool = False
    discard_uncovered_rows: bool = False

    def __str__(self) -> str:
        return ", ".join(name for name, is_allowed in asdict(self).items() if is_allowed)


def guards_in(spec: TableSpec, config: Mapping[str, Any]) -> tuple[Guard, ...]:
    """Return the guards that a launch's config asks for: `keep_keys` and `only_keys`.

    Raises:
        WindowError: The keys are no range of the table.
    """
    keys = config.get("only_keys")
    return (
        *([ALL_KEYS] if config.get("keep_keys") else []),
        *([Guard(AuditRule.OTHER_KEYS_ARE_UNCHANGED, key_range(spec, keys))] if keys else []),
    )


def key_range(spec: TableSpec, text: str) -> KeyRange:
    """Read `A...B` as keys of a table.

    | key      | text                     | first       | last       |
    |----------|--------------------------|-------------|------------|
    | bigint   | 100...99                 | no          |            |
    | bigint   | 9...100                  | 9           | 100        |
    | bigint   | -5...5                   | -5          | 5          |
    | bigint   | 7                        | 7           | 7          |
    | bigint   | a...b                    | no          |            |
    | bigint   | 1.5...2                  | no          |            |
    | bigint   | 1_0...2_0                | no          |            |
    | bigint   | १...२                    | no          |            |
    | bigint   | 1...9223372036854775808  | no          |            |
    | int      | 1...9999999999           | no          |            |
    | int      | -2147483648...2147483647 | -2147483648 | 2147483647 |
    | smallint | 1...32768                | no          |            |
    | string   | a...b                    | a           | b          |
    | string   | 9...100                  | no          |            |
    | string   | ...b                     | no          |            |
    | date     | 2024-01-01...2024-01-31  | 2024-01-01  | 2024-01-31 |
    | date     | 20240101...20240131      | no          |            |
    | date     | 2024-W05-1               | no          |            |

    Raises:
        WindowError: The table's key is not one column of a type with an order, or the text is no range of it.
    """
    if len(spec.key_columns) != 1 or (kind := spec.columns[spec.key_columns[0]].type) not in KEY_TYPES:
        raise WindowError(
            f"`{spec.key}` has no key whose rows can be named by a range: that takes one key column, of a type among "
            f"{', '.join(KEY_TYPES)}.",
            state=NOTHING_WRITTEN,
            remedy="Name partitions instead.",
        )
    first, dots, last = text.partition("...")
    last = last if dots else first
    if not first or not last or not _is_in_order(kind, first, last):
        raise WindowError(
            f"`{text}` is no range of `{spec.key_columns[0]}`, which is `{kind}`.",
            state=NOTHING_WRITTEN,
            remedy="Write the first and the last key with three dots between, both included: `100...199`.",
        )
    return KeyRange(spec.key_columns[0], first, last)


def _is_in_order(kind: str, first: str, last: str) -> bool:
    """Say whether two texts are keys as Spark and a database read them too, the second not before the first."""
    if kind == "string":
        return first.encode() <= last.encode()
    try:
        if kind == "date":
            return _day_of(first) <= _day_of(last)
        return _number_of(first, _BITS[kind]) <= _number_of(last, _BITS[kind])
    except ValueError:
        return False


def _day_of(text: str) -> date:
    day = date.fromisoformat(text)
    if day.isoformat() != text:  # Python also takes `20240101` and `2024-W05-1`
        raise ValueError(text)
    return day


def _number_of(text: str, bits: int) -> int:
    number = int(text)
    if not re.fullmatch(r"-?[0-9]+", text):  # Python also takes `1_000` and digits of other scripts
        raise ValueError(text)
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueError(text)
    return number
