"""Why partitions were refused, by cause: sixty days with two causes are two lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from backfill_assets.core.history.audit import Verdict
from backfill_assets.core.words import range_in_words

MOST_CAUSES = 5
"""So many causes are named in one text."""

_MOST_EXAMPLES = 2

_OF_ONE_PARTITION = (
    (re.compile(r" For example: .*", re.DOTALL), ""),
    (re.compile(r" \([^()`]*/[^()]*\)"), ""),
    (re.compile(r"`[^`]*/[^`]*`"), "`a path`"),
    (re.compile(r"\b\d[\d,.:TZ-]*"), "0"),
    (re.compile(r"(?: \(and 0 more \w+\)| and 0 more)"), ""),
    (re.compile(r"\bhas\b"), "have"),
    (re.compile(r"(\w)s\b"), r"\1"),
)
"""What differs from partition to partition in a sentence of one cause: rows, paths, days, numbers, the plural."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What is wrong with one or more partitions.

    Args:
        keys: Of the partitions, in order.
        what: The rule and what is wrong, as it was found in the first of them.
    """

    keys: tuple[str, ...]
    what: str

    def __str__(self) -> str:
        count = f"{len(self.keys):,} partition{'' if len(self.keys) == 1 else 's'}"
        first = "" if len(self.keys) == 1 else f"{self.keys[0]}: "
        return f"{count} ({range_in_words(self.keys[0], self.keys[-1])}): {first}{self.what}"


def causes_of(whys: Mapping[str, Sequence[str]]) -> list[Cause]:
    """Return the causes for which partitions were refused, those of the most partitions first.

    Two findings have one cause if they differ only in files, rows, keys, days or numbers:

    | in one partition                           | in another                                 | causes |
    |--------------------------------------------|--------------------------------------------|--------|
    | keys_are_unique: 1 row repeats a key.      | keys_are_unique: 12 rows repeat a key.     | 1      |
    | files_are_readable: `a/1.csv` has 0 bytes. | files_are_readable: `a/2.csv` has 0 bytes. | 1      |
    | schema: `a/1.csv` has no column `x`.       | schema: `a/2.csv` has no column `x`.       | 1      |
    | schema: `a/1.csv` has no column `x`.       | schema: `a/1.csv` has no column `y`.       | 2      |
    | filled: `x` is NULL in 1 row (a/dt=1).     | filled: `x` is NULL in 2,000 rows (a/dt=2).| 1      |
    | filled: `x` is NULL in 1 row (a/dt=1).     | filled: `y` is NULL in 1 row (a/dt=1).     | 2      |

    Args:
        whys: What was found, a text for each rule that does not hold, by partition key.
    """
    first, keys = dict[str, str](), dict[str, list[str]]()
    for key in sorted(whys):
        for what in whys[key]:
            name = cause_name(what)
            first.setdefault(name, what)
            if key not in keys.setdefault(name, []):
                keys[name].append(key)
    found = [Cause(tuple(keys[name]), what) for name, what in first.items()]
    return sorted(found, key=lambda cause: -len(cause.keys))


def causes_of_refusal(verdicts: Iterable[Verdict]) -> list[Cause]:
    """Return the causes for which a launch has refused partitions, each with a few rows of the first partition."""
    return causes_of(
        {
            verdict.partition.key: [
                str(replace(finding, examples=finding.examples[:_MOST_EXAMPLES])) for finding in verdict.findings
            ]
            for verdict in verdicts
        }
    )


def causes_in_words(causes: Sequence[Cause]) -> str:
    """Return the first causes in one text, each with how many partitions it is of."""
    more = len(causes) - MOST_CAUSES
    return " ".join([*map(str, causes[:MOST_CAUSES]), *([f"There are {more:,} more causes."] if more > 0 else [])])


def cause_name(what: str) -> str:
    """Return what a cause is recognized by, whichever partition it was found in."""
    for pattern, instead in _OF_ONE_PARTITION:
        what = pattern.sub(instead, what)
    return what
