"""The one answer to what state a partition is in, held against the table of cases in its own documentation."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from backfill_assets.core.state.fence import Fence
from backfill_assets.core.state.partition_status import Known, State, status_of
from backfill_assets.core.state.receipts import PartitionReceipt, PublishedPartition
from backfill_assets.core.state.surveys import Survey
from tests.support.docstring_tables import table_of
from tests.support.fakes import ORDERS, receipt_of

DAY = ORDERS.grid.partition("2024-02-29")
NEXT = ORDERS.grid.partition("2024-03-01")
ROWS, LATE = 3, 2
NO_SURVEY = None


def receipt(
    rows: int = ROWS, *, fingerprint: str = "now", code: str = "code", kind: Any = "publish"
) -> PublishedPartition:
    """A receipt of the day with late rows in it."""
    part = PartitionReceipt(rows, "00", None, None, fingerprint, 0, LATE)
    return PublishedPartition(7, receipt_of({DAY.key: part}, code_version=code, kind=kind), part)


def known_of(case: dict[str, str]) -> Known:
    """What a row of the table says is known."""
    fence = {"after": Fence(DAY.window.start_utc), "before": Fence(DAY.window.end_utc), "none": None}[case["fence"]]
    until = {"complete": DAY.window.end_utc, "incomplete": DAY.window.start_utc, "nothing": None, "-": None}
    published: dict[str, PublishedPartition | None] = {
        "none": {},
        "unread": {DAY.key: None},
        "same": {DAY.key: receipt()},
        "at hand": {DAY.key: receipt()},
        "other": {DAY.key: receipt(fingerprint="before")},
        "restored": {DAY.key: receipt(fingerprint="", kind="put_back")},
        "restored0": {DAY.key: receipt(0, fingerprint="", kind="put_back")},
    }[case["receipt"]]
    if case["code"] == "older":
        published = {DAY.key: receipt(code="")}
    rows = {"-": None, "none": {}, "some": {DAY.key: 5}, "same": {DAY.key: ROWS}, "other": {DAY.key: 4},
            "after": {DAY.key: ROWS}, "newer": None, "gone": {}}[case["rows"]]  # fmt: skip
    late = {"-": None, "none": {}, "same": {DAY.key: LATE}, "more": {DAY.key: 5}, "less": {DAY.key: 1}}[case["late"]]
    return Known(
        published=published,
        fence=fence,
        complete_until=until[case["source"]],
        is_source_known=case["source"] != "-",
        surveys={DAY.key: Survey("now")} if case["source"] == "complete" else NO_SURVEY,
        late_rows=late,
        rows_now=rows,
        written_since={DAY.key: 9} if case["rows"] in ("after", "newer") else {},
        unreadable={DAY.key: "its file `a` does not exist"} if case["rows"] == "gone" else {},
        differing={DAY.key} if case["compared"] == "failed" else frozenset(),
        code_version={"-": "", "same": "code", "older": "code", "other": "new code"}[case["code"]],
    )


@pytest.mark.parametrize("case", table_of(status_of), ids=lambda case: " ".join(case.values()))
def test_every_case_of_the_table(case):
    """Each row of the documented table ends in the state that it names, with a reason in words."""
    (status,) = status_of([DAY], known_of(case))
    assert status.state == case["state"]
    assert status.reason
    assert len(status.states) == len(status.why)


def test_the_table_names_every_state():
    """No state is left out of the documented cases."""
    assert {case["state"] for case in table_of(status_of)} == set(State)


def test_all_that_applies_is_kept_in_order():
    """The strictest state is the answer, and what else is wrong stays beside it in the order of the states."""
    known = replace(
        known_of(dict.fromkeys(["fence", "source", "receipt", "rows", "late", "compared", "code"], "-") | {
            "fence": "none", "source": "complete", "receipt": "other", "rows": "other", "late": "more", "compared": "failed",
            "code": "other",
        })
    )  # fmt: skip
    (status,) = status_of([DAY], known)
    assert status.states == (
        State.FOREIGN, State.DIFFERS, State.STALE_SOURCE, State.STALE_LATE_ROWS, State.STALE_CODE,
    )  # fmt: skip
    assert list(State).index(status.states[0]) == min(list(State).index(state) for state in status.states)


def test_a_partition_at_the_edge_of_what_is_complete():
    """A source that is complete up to the end of a partition is complete for it; a microsecond less is not enough."""
    end = DAY.window.end_utc
    until = [end, end - timedelta(microseconds=1)]
    states = [status_of([DAY], Known(complete_until=at, is_source_known=True))[0].state for at in until]
    assert states == [State.MISSING, State.SOURCE_INCOMPLETE]


def test_each_partition_has_its_own_answer():
    """One question over several partitions answers each, in the order in which they were named."""
    fence = Fence(datetime(2024, 3, 1, tzinfo=UTC))
    states = [status.state for status in status_of([NEXT, DAY], Known({DAY.key: receipt()}, fence))]
    assert states == [State.LIVE, State.PUBLISHED]


def test_what_can_be_compared():
    """Live partitions, and those whose source is not complete, have nothing to be held against."""
    by_state = {
        status_of([DAY], known_of(case))[0].state: status_of([DAY], known_of(case))[0].can_be_compared
        for case in table_of(status_of)
    }
    assert {state for state, can in by_state.items() if not can} == {State.LIVE, State.SOURCE_INCOMPLETE}


def test_what_is_published_and_gone_at_its_source_says_so():
    """A source that lost what was published from it is told apart from one that is still to come."""
    for published, until in (({}, None), ({DAY.key: receipt()}, None), ({DAY.key: receipt()}, DAY.window.start_utc)):
        (status,) = status_of([DAY], Known(published, complete_until=until, is_source_known=True))
        says = "published, and its source has it no more" if published else "its source is not complete for it yet"
        assert (status.state, status.reason) == (State.SOURCE_INCOMPLETE, says)


def test_reasons_name_numbers():
    """The words say how many rows there are, and how many wait."""
    foreign = Known({DAY.key: receipt()}, rows_now={DAY.key: 1234})
    late = Known({DAY.key: receipt()}, late_rows={DAY.key: 1002})
    since = Known({DAY.key: receipt()}, written_since={DAY.key: 9})
    assert status_of([DAY], foreign)[0].reason == "published with 3 rows, and has 1,234: somebody else wrote it"
    assert status_of([DAY], since)[0].reason == "published in version 7, and somebody else wrote it in version 9"
    assert status_of([DAY], late)[0].reason == "stale: 1,000 late rows wait to be folded in"
