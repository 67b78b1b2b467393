"""Why partitions were refused, by cause."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from backfill_assets.core.history.audit import AuditRule, Finding, Verdict
from backfill_assets.core.history.causes import causes_in_words, causes_of, causes_of_refusal
from tests.support.docstring_tables import table_of
from tests.support.fakes import ORDERS

DAYS = [(date(2024, 3, 1) + timedelta(days=n)).isoformat() for n in range(60)]


@pytest.mark.parametrize("case", table_of(causes_of))
def test_one_cause_has_one_line(case):
    """Every row of the table of cases: only files, rows, days and numbers may differ."""
    found = causes_of({DAYS[0]: [case["in one partition"]], DAYS[1]: [case["in another"]]})
    assert len(found) == int(case["causes"])


def test_sixty_refused_days_are_two_lines():
    """Each has its count, its days as a range, and no more than two rows of the first day."""

    def verdict(number: int, day: str) -> Verdict:
        path = f"landing/dt={day}/orders.csv"
        finding = (
            Finding(AuditRule.KEYS_ARE_UNIQUE, number, f"{number + 1} rows repeat a key ({path}).", ("a", "b", "c"))
            if number < 40
            else Finding(AuditRule.SCHEMA_MATCHES, 0, f"`{path}` has no column `amount`.")
        )
        return Verdict(ORDERS.grid.partition(day), (finding,))

    repeated, lacking = causes_of_refusal([verdict(number, day) for number, day in enumerate(DAYS)])
    assert str(repeated) == (
        f"40 partitions ({DAYS[0]}...{DAYS[39]}): {DAYS[0]}: keys_are_unique: 1 rows repeat a key "
        f"(landing/dt={DAYS[0]}/orders.csv). For example: a; b."
    )
    assert str(lacking).startswith(f"20 partitions ({DAYS[40]}...{DAYS[59]}): {DAYS[40]}: schema_matches: ")


def test_partition_with_two_faults_has_two_causes():
    """It is counted for each of them, and once for a fault that several of its files have."""
    found = causes_of({DAYS[0]: ["a: `x/1` is bad.", "a: `x/2` is bad.", "b: it is empty."]})
    assert [str(cause) for cause in found] == [
        f"1 partition ({DAYS[0]}): a: `x/1` is bad.",
        f"1 partition ({DAYS[0]}): b: it is empty.",
    ]


def test_many_causes_are_counted():
    """The text names five, and says how many more there are."""
    found = causes_of({DAYS[0]: [f"rule {letter}: bad." for letter in "abcdefg"]})
    assert causes_in_words(found).endswith("There are 2 more causes.")
