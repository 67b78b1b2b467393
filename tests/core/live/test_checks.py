"""What the checks around the fence conclude from what is known of a live table."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from backfill_assets.core.live.checks import ChangedFile, LiveStatus, landed_files_are_as_read, live_is_writing
from backfill_assets.core.live.receipts import LiveReceipt
from backfill_assets.core.spec.live import LiveStream
from backfill_assets.core.state.fence import Fence

LIVE = LiveStream(path="events", starts="2024-01-03", silent_after_seconds=900)
NOW = datetime(2024, 1, 5, 12, tzinfo=UTC)


def status(seconds_ago: float | None) -> LiveStatus:
    receipt = LiveReceipt("id", "bronze/orders", "stream", 1, 7, "2024-01-03T00:00:00+00:00")
    newest = None if seconds_ago is None else (NOW - timedelta(seconds=seconds_ago), receipt)
    return LiveStatus(Fence(datetime(2024, 1, 3, tzinfo=UTC), 1, "stream"), newest, {}, {}, {})


@pytest.mark.parametrize(
    ("seconds_ago", "passed", "said"),
    [
        (None, False, "No batch was ever written."),
        (0, True, "Batch 7 was written 0 s ago"),
        (900, True, "Batch 7 was written 900 s ago"),
        (901, False, "More than 900 s is an outage"),
        (-60, True, "Batch 7 was written -60 s ago"),
        (-61, False, "61 s from now by this one: one of them is wrong, and an outage would not be seen."),
    ],
)
def test_silence_is_an_outage_and_so_is_a_wrong_clock(seconds_ago, passed, said):
    """A writer whose clock is ahead looks alive long after it died; clocks of two machines may differ by a minute."""
    check = live_is_writing(status(seconds_ago), LIVE, NOW)
    assert check.passed is passed
    assert said in check.what


def test_the_writers_own_clock_counts_where_it_is_older():
    """After a commit from the future Delta gives later ones its time: a writer that died an hour ago looks alive."""
    said = NOW - timedelta(hours=1) + timedelta(seconds=LIVE.max_future_seconds)
    committed, receipt = status(10).newest
    check = live_is_writing(
        replace(status(10), newest=(committed, replace(receipt, until_utc=said.isoformat()))), LIVE, NOW
    )
    assert not check.passed
    assert "was written 3,600 s ago" in check.what


def files(names: str, acknowledged: str = "") -> list[ChangedFile]:
    return [ChangedFile(name, 5, "by Ann" if name in acknowledged else "") for name in names]


@pytest.mark.parametrize(
    ("changed", "count", "passed", "is_warning", "said"),
    [
        ([], 0, True, False, "None of 0 files"),
        ([], 3, True, False, "None of 3 files has changed"),
        (files("a"), 3, False, False, "1 of 3 files have changed since the stream listed them (`a`)."),
        (files("a"), 3, False, False, "`backfill-assets live bronze/orders --acknowledge a`"),
        (files("abcd"), 9, False, False, "(`a`, `b`, `c`, ...)"),
        (files("ab", "a"), 3, False, False, "1 of 3 files have changed since the stream listed them (`b`)."),
        (
            files("ab", "ab"),
            3,
            True,
            False,
            "None of 1 other files has changed since it was listed. 2 changed, and somebody has dealt with them "
            "(`a` by Ann; `b` by Ann).",
        ),
        (None, 0, False, True, "or its checkpoint is not in its usual place"),
    ],
)
def test_a_file_that_changed_after_it_was_listed_is_an_error(changed, count, passed, is_warning, said):
    """What is not known is a warning: it is neither green nor an error. What somebody has dealt with is told, and green."""
    check = landed_files_are_as_read(changed, count, "bronze/orders")
    assert (check.passed, check.is_warning) == (passed, is_warning)
    assert said in check.what


@pytest.mark.parametrize("changed", [None, []])
def test_a_file_that_spark_does_not_see_is_an_error(changed):
    """Whatever else is known of the stream: it does not list a file that Java cannot name, or cannot find."""
    check = landed_files_are_as_read(changed, 3, "bronze/orders", unseen=["file:/b", "file:/a\\xe9"])
    assert (check.passed, check.is_warning) == (False, False)
    assert check.what.startswith(
        "Spark does not see 2 files (first `file:/a\\xe9`): their names are not UTF-8, or they are links that lead nowhere. "
        "Once that is put right they are read. "
    )
    assert check.numbers["files_unseen"] == 2
