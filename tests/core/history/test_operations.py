"""What was done to a table, as its receipts, its log and what was not published tell it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from backfill_assets.core.history.operations import LoggedOperation, batches_as_one, operations_of
from backfill_assets.core.state.attempts import Attempt
from backfill_assets.core.state.fence import Fence
from backfill_assets.core.state.receipts import UNDOES, PartitionReceipt, Run
from backfill_assets.core.state.table_facts import facts_of
from tests.support.docstring_tables import table_of
from tests.support.fakes import ORDERS, receipt_of

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
DAY_1, DAY_2 = "2024-01-01", "2024-01-02"


def at(version):
    return NOON + timedelta(minutes=version)


def of(rows, before):
    return PartitionReceipt(rows, "", None, None, "", rows_before=before)


def published(version, run, rows, **changes):
    """The receipt of a commit that took a minute, ten seconds of which after it was made."""
    times = {
        "began_at": (at(version) - timedelta(seconds=60)).isoformat(),
        "made_at": (at(version) - timedelta(seconds=10)).isoformat(),
    }
    partitions = {key: of(*counts) for key, counts in rows.items()}
    return receipt_of(partitions, run_id=run, root_run_id=run, receipt_id=f"id {version}", **times, **changes)


RECEIPTS = {
    1: published(1, "run A", {DAY_1: (10, 0)}, reason="new data", by="ann"),
    2: published(2, "run A", {DAY_2: (20, 0)}, reason="new data", by="ann"),
    3: published(3, "run B", {DAY_1: (5, 10)}, plan="a1b2"),
    4: published(4, "run C", {DAY_1: (10, 5)}, kind="put_back", source={"version": 2, UNDOES: ["id 3"]}),
    5: published(5, "run D", {DAY_1: (10, 10)}, kind="put_back", source={"version": 4}),
    10: published(10, "", {}, kind="reset", flow="year_2023"),
}
WORDS = {"CREATE TABLE", "SET TBLPROPERTIES", "ADD COLUMNS", "DELETE", "OPTIMIZE"}


def commit_of(version, what):
    """A commit as the table of cases names it; those with receipts are writes to Delta."""
    name = next((word for word in WORDS if what.startswith(word)), "WRITE")
    if what == "a batch":
        return LoggedOperation(version, at(version), "STREAMING UPDATE", {}, "batch", "s1", 7)
    set_ = {
        "of a fence": Fence(NOON).properties(),
        "of ours": facts_of(ORDERS),
        "of another": {"delta.appendOnly": "true"},
    }
    properties = next((those for words, those in set_.items() if words in what), {})
    return LoggedOperation(version, at(version), name, properties)


CASES = table_of(operations_of)
LOGGED = [commit_of(int(row["version"]), row["its commit"]) for row in CASES]


def test_each_commit_is_what_the_docstring_says():
    """Every row of the table of cases; one without a word of its own belongs to the operation before it."""
    found = operations_of(RECEIPTS, LOGGED, [])
    assert [one.what for one in found] == [row["what"] for row in CASES if row["what"]]
    told = {one.versions[0]: one for one in found}
    assert (told[1].versions, told[1].partitions, told[1].rows_before, told[1].rows_after) == (
        (1, 2),
        (DAY_1, DAY_2),
        0,
        30,
    )
    assert (told[1].seconds, told[1].by, told[1].reason, told[1].run_id) == (120.0, "ann", "new data", "run A")
    assert (told[3].rows_before, told[3].rows_after, told[3].why) == (10, 5, "plan a1b2")
    assert (told[4].rows_before, told[4].rows_after) == (5, 10)
    assert (told[6].versions, told[6].rows_after, told[6].by) == ((6, 7), 14, "stream s1")
    assert told[8].why == "history before 2024-03-01 12:00 UTC, epoch 1"
    assert told[13].why == "the table was given event_time, grain, key_columns, time_zone"
    assert told[11].why == "2 commits: DELETE (1), OPTIMIZE (1)"


def test_commits_of_others_do_not_split_a_launch():
    """A launch whose chunks alternate with batches and foreign commits is one line, and so is what goes on beside it."""
    receipts = {version: published(version, "run A", {f"2024-01-0{version}": (10, 0)}) for version in (1, 4, 7)}
    beside = [commit_of(version, "DELETE" if version % 3 == 0 else "a batch") for version in (2, 3, 5, 6, 8)]
    found = operations_of(receipts, beside, [])
    assert [(one.what, one.versions) for one in found] == [
        ("somebody else", (3, 6)),
        ("published", (1, 7)),
        ("live batches", (2, 8)),
    ]
    assert found[1].rows_after == 30


def test_batches_that_were_stored_as_one_tell_the_same():
    """As their commits tell one by one; batches of another stream are their own."""
    more = [commit_of(version, "a batch") for version in (23, 24, 26)]
    logged = [*LOGGED, *more, replace(more[0], version=27, stream="s2")]
    stored = batches_as_one(logged)
    assert len(stored) < len(logged)
    assert operations_of(RECEIPTS, stored, []) == operations_of(RECEIPTS, logged, [])


def test_the_log_may_have_forgotten_all_of_it():
    """Receipts alone tell what was published; then it took until the receipt was made."""
    found = operations_of(RECEIPTS, [], [])
    assert [one.what for one in found] == ["published", "published", "undone", "restored", "reset"]
    assert found[1].seconds == 50.0


def test_what_was_not_published_stands_where_it_happened():
    """A refusal names its partitions and why, in the order of time."""
    refused = Attempt(
        at(2).replace(second=30).isoformat(),
        "refused",
        2,
        Run("run A"),
        partitions={DAY_2: "a gap", DAY_1: "a gap"},
    )
    failed = Attempt((at(20)).isoformat(), "failed", 12, Run("run E", by="bob"), why="the disk is full")
    found = operations_of(RECEIPTS, LOGGED, [failed, refused])
    assert [one.what for one in found][1:4] == ["published", "refused", "published"]
    assert (found[2].partitions, found[2].why) == ((DAY_1, DAY_2), "a gap")
    assert (found[-1].what, found[-1].why, found[-1].by, found[-1].versions) == (
        "failed",
        "the disk is full",
        "bob",
        None,
    )


def test_receipts_of_the_first_formats_have_no_times():
    """What was published before receipts had times is told first."""
    (found,) = operations_of({1: receipt_of({DAY_1: of(3, 0)})}, [], [])
    assert (found.seconds, found.rows_after, found.at.year) == (None, 3, 1970)


def test_a_partition_that_a_launch_published_twice_is_counted_once():
    """It was overtaken, and read the partition again: what was there before the first counts, and what the last left."""
    receipts = {
        1: published(1, "run A", {DAY_1: (10, 0)}),
        2: published(2, "run B", {DAY_1: (20, 990), DAY_2: (7, 0)}),
        3: published(3, "run B", {DAY_1: (30, 20)}),
        4: published(4, "run B", {DAY_1: (40, None)}),
    }
    first, both = operations_of(receipts, [], [])
    assert (first.rows_before, first.rows_after) == (0, 10)
    assert (both.versions, both.partitions, both.rows_before, both.rows_after) == ((2, 4), (DAY_1, DAY_2), 990, 47)
