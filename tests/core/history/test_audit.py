"""The audit: each rule with its wording, and what it does not hold against a partition."""

from __future__ import annotations

import pytest

from backfill_assets.core.history.audit import (
    NO_EVIDENCE,
    AuditRule,
    Evidence,
    Finding,
    audit,
    loss,
    shrinks_too_much,
    with_examples,
)
from backfill_assets.core.state.tallies import EMPTY, Tally
from tests.support.docstring_tables import table_of
from tests.support.fakes import ORDERS, spec_with

DAY = ORDERS.grid.partition("2024-02-29")


def verdict_of(spec=ORDERS, *, tally, superseded_rows=0, evidence=NO_EVIDENCE, rows_now=0):
    return audit(spec, DAY, tally=tally, superseded_rows=superseded_rows, evidence=evidence, rows_now=rows_now)


def findings_of(*args, **named):
    return [str(finding) for finding in verdict_of(*args, **named).findings]


@pytest.mark.parametrize(
    ("tally", "finding"),
    [
        (
            Tally(rows=5, nulls={"order_id": 1}),
            "required_columns_are_filled: `order_id` is NULL in 1 row (2024/02/29).",
        ),
        (
            Tally(rows=5, stray_rows=1),
            "rows_inside_partition: 1 row of 5 has an event time outside 2024-02-29 (2024/02/29); `layout: flat` with `complete_until` reads each row where its event time says.",
        ),
        (
            Tally(rows=5, duplicate_keys=1),
            "keys_are_unique: 1 row repeats a key (`order_id`), and `latest_wins_by` does not say which one counts (2024/02/29).",
        ),
        (Tally(rows=4, unreadable_rows=1), "values_fit_their_types: 1 row cannot be read (2024/02/29)."),
    ],
)
def test_a_rule_that_does_not_hold_is_a_finding(tally, finding):
    """Each rule that the tally alone shows broken is one sentence, with how many rows, and where they lie."""
    verdict = verdict_of(
        tally=tally, evidence=Evidence(raw_rows=tally.rows + tally.unreadable_rows, place="2024/02/29")
    )
    assert not verdict.passed
    assert [str(f) for f in verdict.findings] == [finding]


@pytest.mark.parametrize(
    ("tally", "superseded_rows", "raw_rows", "finding", "rows"),
    [
        (
            Tally(rows=3),
            0,
            5,
            "rows_are_accounted_for: the source has 5 rows, but 3 staged + 0 superseded + 0 unreadable are 3 (2024/02/29).",
            2,
        ),
        (
            Tally(rows=3),
            1,
            1,
            "rows_are_accounted_for: the source has 1 row, but 3 staged + 1 superseded + 0 unreadable are 4 (2024/02/29).",
            3,
        ),
    ],
)
def test_rows_that_are_missing_or_too_many_are_found(tally, superseded_rows, raw_rows, finding, rows):
    """What was staged, superseded and unreadable is held against what the source says it has."""
    verdict = verdict_of(
        tally=tally, superseded_rows=superseded_rows, evidence=Evidence(raw_rows=raw_rows, place="2024/02/29")
    )
    assert [str(f) for f in verdict.findings] == [finding]
    assert verdict.findings[0].rows == rows


def test_a_partition_with_rows_is_not_emptied():
    """No staged rows where the table has some is refused, and the message says what would allow it."""
    assert findings_of(tally=EMPTY, rows_now=1_440, evidence=Evidence(raw_rows=0, place="2024/02/29")) == [
        "partition_is_not_emptied: the source has no rows, and the table has 1,440; "
        "`empty: allowed` in the spec would let a launch remove them (2024/02/29)."
    ]


def test_empty_allowed_does_not_excuse_rows_that_were_lost():
    """Where the source says that it has rows, none staged is a fault even with `empty: allowed`."""
    verdict = verdict_of(spec_with(empty="allowed"), tally=EMPTY, rows_now=9, evidence=Evidence(raw_rows=9))
    assert [f.rule for f in verdict.findings] == [AuditRule.ROWS_ARE_ACCOUNTED_FOR]


@pytest.mark.parametrize("row", table_of(shrinks_too_much), ids=lambda row: "-".join(row.values()))
def test_what_is_too_much_to_lose(row):
    """Every row of the table in `shrinks_too_much` holds."""
    found = shrinks_too_much(float(row["max_shrink"]), int(row["rows_now"]), int(row["rows"]))
    assert found == (row["too much"] == "yes")


@pytest.mark.parametrize("row", table_of(loss), ids=lambda row: "-".join(row.values()))
def test_losses_are_measured_against_the_table(row):
    """Every row of the table in `loss` holds."""
    known = None if row["table has"] == "unknown" else int(row["table has"])
    deleted, allow = int(row["deleted"].replace("-", "0")), row["allow_shrink"] == "yes"
    found = loss(ORDERS, known, int(row["staged"]), deleted_rows=deleted, allow_shrink=allow)
    assert (found.rule.value if found else "none") == row["finding"]


def test_a_partition_that_shrinks_is_refused():
    """It is said how many rows there were, how many there are, and what would let them go; a fault is said alone."""
    verdict = audit(
        ORDERS,
        DAY,
        tally=Tally(rows=100),
        superseded_rows=0,
        evidence=Evidence(raw_rows=100, place="2024/02/29"),
        rows_now=1_440,
    )
    (finding,) = verdict.findings
    assert finding.rows == 1_340
    assert str(finding) == (
        "partition_does_not_shrink: the table has 1,440 rows, and 100 would replace them (1,440 → 100): 93.1 % fewer, "
        "and `max_shrink` allows 50 %. `allow_shrink: true` in the launch's config publishes them (2024/02/29)."
    )


def test_one_cause_is_one_finding():
    """Where the source itself says what is wrong, the missing rows and the emptiness that follow are not named again."""
    missing = Finding(AuditRule.SOURCE_IS_PRESENT, 0, "there is no folder `2024/02/29`.")
    verdict = verdict_of(
        tally=Tally(unreadable_rows=1), rows_now=5, evidence=Evidence(raw_rows=10, findings=(missing,))
    )
    assert verdict.findings == (missing,)


def test_faults_of_the_rows_are_named_beside_those_of_the_source():
    """What the source says does not hide NULLs, strays or repeated keys."""
    evidence = Evidence(raw_rows=5, findings=(Finding(AuditRule.FILES_ARE_READABLE, 0, "`a` cannot be read."),))
    tally = Tally(rows=5, nulls={"order_id": 1}, stray_rows=1, duplicate_keys=1)
    assert [f.rule for f in verdict_of(tally=tally, evidence=evidence).findings] == [
        AuditRule.FILES_ARE_READABLE,
        AuditRule.REQUIRED_COLUMNS_ARE_FILLED,
        AuditRule.ROWS_INSIDE_PARTITION,
        AuditRule.KEYS_ARE_UNIQUE,
    ]


def test_a_verdict_reads_as_one_line():
    """The partition first, then what is wrong with it, with a few of the rows."""
    verdict = verdict_of(tally=Tally(rows=5, nulls={"order_id": 2}, stray_rows=1))
    named = with_examples(verdict, {AuditRule.REQUIRED_COLUMNS_ARE_FILLED: ["row 1", "row 2"]})
    assert str(named) == (
        "2024-02-29: required_columns_are_filled: `order_id` is NULL in 2 rows. For example: row 1; row 2. "
        "rows_inside_partition: 1 row of 5 has an event time outside 2024-02-29; `layout: flat` with `complete_until` reads each row where its event time says."
    )
    assert named.partition == DAY
