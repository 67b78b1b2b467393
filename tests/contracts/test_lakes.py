"""The contract of `Lake`, what it writes: whole partitions, in one commit, or nothing; over lists and over Delta alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backfill_assets.core.state.fence import first_fence
from backfill_assets.core.state.surveys import NO_LATE
from backfill_assets.core.state.tallies import total
from backfill_assets.errors import CommitConflictError, LivePartitionsError, UnsafeWriteError
from tests.contracts.conftest import EVERY_KIND
from tests.contracts.lakes import (
    DAYS,
    FENCE,
    LIVE_DAY,
    SPEC,
    multiset,
    order,
    orders,
    parts,
    publish,
    receipt_for,
    scan_of,
    spec_with,
    stage,
)

pytestmark = pytest.mark.parametrize("lake_kind", EVERY_KIND, indirect=True, scope="module")

RANGE = {day: orders(day) for day in DAYS[:3]}
EVERYTHING = multiset(row for rows in RANGE.values() for row in rows)


# -- a table that was never made ---------------------------------------------------------------------------------------


def test_a_table_that_was_never_made_can_be_looked_at(unmade):
    """It has no version, no rows and no receipts, the fence that it will be made with, and looking makes nothing."""
    lake, partitions = unmade.lake, parts(*DAYS)
    assert lake.version() == -1
    assert lake.published() == lake.receipts_after(-1) == lake.receipts_after(0) == {}
    assert lake.fence() == first_fence(SPEC) == FENCE
    assert lake.late(partitions) == NO_LATE
    assert lake.earlier_tally(partitions, version=-1) == {}
    assert lake.rows_now(partitions) == lake.tally(partitions) == lake.tally(partitions, version=-1) == {}
    assert lake.versions_writing(-1, 0, partitions) == []
    assert lake.schema_problems() == []
    assert not unmade.is_anything_there()


def test_only_making_it_makes_a_table(unmade):
    """A write into a table that is not there would make one that nothing checks, so it is refused."""
    with stage(unmade, scan_of(unmade, RANGE)) as staged:
        receipt = receipt_for(unmade, staged, list(RANGE))
        with pytest.raises(UnsafeWriteError):
            unmade.lake.overwrite(staged, parts(*RANGE), receipt)
    assert unmade.lake.version() == -1


def test_making_a_table_twice_makes_it_once(shop):
    """It has one version, without rows, and the spec's first fence; making it again changes nothing."""
    assert (shop.lake.version(), shop.rows(), shop.lake.fence()) == (0, [], FENCE)
    shop.lake.create()
    assert shop.lake.version() == 0


@pytest.mark.prove
def test_a_table_without_a_stream_has_no_fence(unmade):
    """Neither before it is made nor afterwards."""
    lake = unmade.with_spec(spec_with(live=None))
    assert lake.fence() is None
    lake.create()
    assert lake.fence() is None


# -- the one overwrite -------------------------------------------------------------------------------------------------


def test_an_overwrite_twice_is_the_same_and_the_neighbours_stay(shop):
    """The same rows again leave the same content; other rows replace those of their own partition alone."""
    publish(shop, RANGE)
    assert multiset(shop.rows()) == EVERYTHING
    publish(shop, RANGE)
    assert multiset(shop.rows()) == EVERYTHING
    publish(shop, {DAYS[1]: orders(DAYS[1], 1, amount="9.75")})
    assert multiset(shop.rows()) == multiset([*RANGE[DAYS[0]], order(20, DAYS[1], amount="9.75"), *RANGE[DAYS[2]]])


def test_a_range_equals_its_parts(shop):
    """Each partition alone, in reverse order, leaves what the whole range leaves: rows and tallies."""
    publish(shop, RANGE)
    whole = shop.lake.tally(parts(*RANGE))
    for day in reversed(RANGE):
        publish(shop, {day: RANGE[day]})
    assert multiset(shop.rows()) == EVERYTHING
    assert shop.lake.tally(parts(*RANGE)) == whole


def test_no_rows_leave_an_empty_partition(shop):
    """A partition without rows is emptied, and one that had none is published as empty too."""
    publish(shop, {DAYS[0]: orders(DAYS[0]), DAYS[1]: orders(DAYS[1])})
    commit = publish(shop, {DAYS[0]: [], DAYS[2]: []})
    assert multiset(shop.rows()) == multiset(orders(DAYS[1]))
    assert (commit.rows, commit.size_bytes, commit.written) == ({}, {}, (0, 0))
    published = shop.lake.published()
    assert {day: published[day].partition.rows for day in DAYS[:3]} == {DAYS[0]: 0, DAYS[1]: 2, DAYS[2]: 0}


def test_the_receipt_equals_what_is_read_back(shop):
    """Version, rows and checksum: what the commit says, what its receipt says, and what is in the table."""
    with stage(shop, scan_of(shop, RANGE)) as staged:
        receipt = receipt_for(shop, staged, list(RANGE), reason="a test", late_version=None)
        commit = shop.lake.overwrite(staged, parts(*RANGE), receipt)
        assert commit.written == total(staged.tallies.values())
    assert commit.version == shop.lake.version() == 1
    assert dict(commit.rows) == dict.fromkeys(RANGE, 2)
    assert set(commit.size_bytes) == set(RANGE)
    published = shop.lake.published()
    assert {key: (p.version, p.receipt) for key, p in published.items()} == dict.fromkeys(RANGE, (1, receipt))
    read_back = shop.lake.tally(parts(*RANGE), version=commit.version)
    assert all(published[key].partition.matches(tally) for key, tally in read_back.items())
    assert set(read_back) == set(RANGE)


def test_only_the_named_partitions_of_a_staged_chunk_are_written(shop):
    """A partition that failed the audit is neither in the predicate nor among the rows: its old rows stay."""
    publish(shop, {DAYS[1]: orders(DAYS[1], amount="7.00")})
    with stage(shop, scan_of(shop, RANGE)) as staged:
        passed = [DAYS[0], DAYS[2]]
        commit = shop.lake.overwrite(staged, parts(*passed), receipt_for(shop, staged, passed))
        assert commit.written == total(staged.tallies[day] for day in passed)
    assert multiset(shop.rows()) == multiset([*RANGE[DAYS[0]], *orders(DAYS[1], amount="7.00"), *RANGE[DAYS[2]]])


# -- what is refused leaves the table as it was ------------------------------------------------------------------------


def test_stray_rows_are_refused(shop):
    """A row outside the partitions that are to be replaced cannot be written, though its file belongs there."""
    with stage(shop, scan_of(shop, {DAYS[0]: [*orders(DAYS[0]), order(99, DAYS[1])]})) as staged:
        receipt = receipt_for(shop, staged, [DAYS[0]])
        with pytest.raises(UnsafeWriteError, match="outside the partitions"):
            shop.lake.overwrite(staged, parts(DAYS[0]), receipt)
    assert (shop.lake.version(), shop.rows()) == (0, [])


@pytest.mark.prove
def test_stray_rows_among_those_of_other_partitions_are_refused_or_found(shop):
    """Where only some partitions of a chunk are written, a stray row makes the commit differ from what was audited."""
    files = {DAYS[0]: [*orders(DAYS[0]), order(99, DAYS[1])], DAYS[1]: orders(DAYS[1])}
    with stage(shop, scan_of(shop, files)) as staged:
        receipt = receipt_for(shop, staged, [DAYS[0]])
        try:
            commit = shop.lake.overwrite(staged, parts(DAYS[0]), receipt)
        except UnsafeWriteError:
            assert shop.lake.version() == 0
        else:
            assert commit.written != total([staged.tallies[DAYS[0]]])
            assert commit.rows[DAYS[0]] != staged.tallies[DAYS[0]].rows
    assert 99 not in [row["order_id"] for row in shop.rows()]


def test_a_live_partition_is_refused(shop):
    """What the live stream owns is neither overwritten nor restored, alone or among partitions of history."""
    for days in ([LIVE_DAY], [DAYS[3], LIVE_DAY]):
        with stage(shop, scan_of(shop, {day: orders(day) for day in days})) as staged:
            receipt = receipt_for(shop, staged, days)
            with pytest.raises(LivePartitionsError):
                shop.lake.overwrite(staged, parts(*days), receipt)
            with pytest.raises(LivePartitionsError):
                shop.lake.restore(parts(*days), version=0, receipt=receipt)
    assert (shop.lake.version(), shop.rows()) == (0, [])


def test_an_overtaken_chunk_is_refused(shop):
    """Another commit wrote one of its partitions after it was staged: it may be older, and does not get in. A retry does."""
    with stage(shop, scan_of(shop, RANGE)) as staged:
        receipt = receipt_for(shop, staged, list(RANGE))
        publish(shop, {DAYS[1]: orders(DAYS[1], amount="2.00")})
        for attempt in (
            lambda: shop.lake.overwrite(staged, parts(*RANGE), receipt),
            lambda: shop.lake.restore(parts(*RANGE), version=0, receipt=receipt),
        ):
            with pytest.raises(CommitConflictError):
                attempt()
        assert shop.lake.version() == 1
        assert multiset(shop.rows()) == multiset(orders(DAYS[1], amount="2.00"))
        others = [DAYS[0], DAYS[2]]
        shop.lake.overwrite(
            staged, parts(*others), replace(receipt, partitions={d: receipt.partitions[d] for d in others})
        )
    publish(shop, RANGE)
    assert multiset(shop.rows()) == EVERYTHING


@pytest.mark.prove
def test_a_chunk_overtaken_by_an_empty_one_is_refused(shop):
    """A publish of a partition without rows is newer content too, although it wrote and removed no file."""
    with stage(shop, scan_of(shop, {DAYS[0]: orders(DAYS[0])})) as staged:
        receipt = receipt_for(shop, staged, [DAYS[0]])
        publish(shop, {DAYS[0]: []})
        with pytest.raises(CommitConflictError):
            shop.lake.overwrite(staged, parts(DAYS[0]), receipt)
    assert shop.rows() == []


# -- restore -----------------------------------------------------------------------------------------------------------


def test_restore_puts_an_earlier_version_back_and_says_so(shop):
    """The named partitions hold what they held then; the others stay, and the receipt of the newest commit is its own."""
    publish(shop, {DAYS[0]: orders(DAYS[0]), DAYS[1]: orders(DAYS[1])})
    publish(shop, {day: orders(day, 3, amount="5.00") for day in DAYS[:3]})
    with stage(shop, scan_of(shop, {})) as nothing:
        receipt = receipt_for(shop, nothing, [DAYS[0], DAYS[2]], kind="put_back", receipt_id="back")
        commit = shop.lake.restore(parts(DAYS[0], DAYS[2]), version=1, receipt=receipt)
    assert commit.version == shop.lake.version() == 3
    assert dict(commit.rows) == {DAYS[0]: 2}
    assert multiset(shop.rows()) == multiset([*orders(DAYS[0]), *orders(DAYS[1], 3, amount="5.00")])
    published = shop.lake.published()
    assert (published[DAYS[0]].version, published[DAYS[0]].receipt) == (3, receipt)
    assert published[DAYS[1]].version == 2
