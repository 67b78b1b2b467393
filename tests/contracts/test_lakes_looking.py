"""The contract of `Lake`, what it says of a table: receipts, versions, tallies, and how it differs from its source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backfill_assets.core.history.audit import AuditRule
from backfill_assets.core.history.guards import ALL_KEYS, LIVE_ROWS, Guard, KeyRange, Others
from backfill_assets.core.state.tallies import EMPTY
from backfill_assets.errors import UndoError, UnreadableTableError
from tests.contracts.lakes import DAYS, LIVE_DAY, SPEC, order, orders, parts, publish, scan_of, spec_with, stage


def test_the_newest_receipt_of_each_partition_counts(filled):
    """Which version published it last, and what; a commit of somebody else has no receipt."""
    published = filled.lake.published()
    assert {key: (p.version, p.partition.rows) for key, p in published.items()} == {
        DAYS[0]: (1, 2),
        DAYS[1]: (2, 2),
        DAYS[2]: (1, 2),
        DAYS[3]: (4, 0),
    }
    assert set(published[DAYS[2]].receipt.partitions) == set(DAYS[:3])
    assert filled.lake.version() == 4


def test_rows_are_counted_by_partition(filled):
    """Of the named partitions that have any."""
    assert filled.lake.rows_now(parts(*DAYS[1:], LIVE_DAY)) == {DAYS[1]: 2, DAYS[2]: 3}


def test_a_tally_is_of_the_version_that_is_named(filled):
    """The newest if none is; partitions without rows are left out."""
    lake = filled.lake
    now, at_first = lake.tally(parts(*DAYS)), lake.tally(parts(*DAYS), version=1)
    assert {key: tally.rows for key, tally in now.items()} == {DAYS[0]: 2, DAYS[1]: 2, DAYS[2]: 3}
    assert {key: tally.rows for key, tally in at_first.items()} == dict.fromkeys(DAYS[:3], 2)
    assert now[DAYS[0]] == at_first[DAYS[0]]
    assert now[DAYS[1]].checksum != at_first[DAYS[1]].checksum
    assert lake.tally(parts(*DAYS), version=0) == lake.tally(parts(*DAYS), version=-1) == {}
    assert lake.published()[DAYS[1]].partition.matches(now[DAYS[1]])
    assert not lake.published()[DAYS[2]].partition.matches(now[DAYS[2]])


def test_lost_files_are_told_by_partition(shop):
    """Nothing is lost at first; then one partition cannot be read, its commit lacks files, and the others are tallied."""
    publish(shop, {day: orders(day) for day in DAYS[:3]})
    publish(shop, {DAYS[1]: orders(DAYS[1], amount="2.50")})
    lake = shop.lake
    with lake.failures():
        assert lake.unreadable(parts(*DAYS)) == lake.unreadable(parts(*DAYS), reads=False) == {}
        assert [lake.lost_files(version) for version in (1, 2)] == [[], []]
    shop.lose(DAYS[1])
    assert lake.unreadable(parts(*DAYS)).keys() == lake.unreadable(parts(*DAYS), reads=False).keys() == {DAYS[1]}
    assert [len(lake.lost_files(version)) for version in (1, 2)] == [0, 1]
    with pytest.raises(UnreadableTableError):
        lake.tally(parts(*DAYS))
    assert lake.tally(parts(DAYS[0], DAYS[2])).keys() == {DAYS[0], DAYS[2]}


def test_receipts_are_those_of_the_versions_after_one(filled):
    """By version; with -1 all that there ever were, and none of a commit of somebody else."""
    after = filled.lake.receipts_after
    written = {1: set(DAYS[:3]), 2: {DAYS[1]}, 4: {DAYS[3]}}
    assert {version: set(receipt.partitions) for version, receipt in after(-1).items()} == written
    assert set(after(0)) == {1, 2, 4}
    assert set(after(1)) == {2, 4}
    assert after(4) == {}


def test_what_an_earlier_version_had_is_tallied(filled):
    """As `tally` did then; nothing before there was anything."""
    lake = filled.lake
    assert lake.earlier_tally(parts(*DAYS), version=1) == lake.tally(parts(*DAYS), version=1)
    assert lake.earlier_tally(parts(DAYS[2]), version=4).keys() == {DAYS[2]}
    assert lake.earlier_tally(parts(*DAYS), version=0) == lake.earlier_tally(parts(*DAYS), version=-1) == {}


@pytest.mark.prove
def test_what_was_cleaned_up_is_said_to_be_gone(shop):
    """An undo would put nothing back, which is no tally of no rows."""
    for amount in ("1.00", "2.00"):
        publish(shop, {DAYS[0]: orders(DAYS[0], amount=amount)})
    shop.clean_up(1)
    assert shop.lake.tally(parts(DAYS[0])).keys() == {DAYS[0]}
    with pytest.raises(UndoError):
        shop.lake.earlier_tally(parts(DAYS[0]), version=1)


def test_which_partitions_have_what_was_tallied(filled):
    """By the rows that are there now, whatever a receipt says; a partition without rows holds that there are none."""
    lake = filled.lake
    first, now = lake.tally(parts(*DAYS), version=1), lake.tally(parts(*DAYS))
    assert lake.same_as(now) == set(DAYS[:3])
    assert lake.same_as({**first, DAYS[3]: EMPTY}) == {DAYS[0], DAYS[3]}
    assert lake.same_as({DAYS[0]: EMPTY, DAYS[3]: now[DAYS[0]]}) == frozenset()


def test_the_versions_strictly_between_two_that_wrote_a_partition(filled):
    """Neither end is among them, and commits of others are; an empty partition that was published was written too."""
    wrote = filled.lake.versions_writing
    assert wrote(0, 5, parts(*DAYS[:3])) == [1, 2, 3]
    assert wrote(1, 3, parts(*DAYS[:3])) == [2]
    assert wrote(1, 2, parts(*DAYS)) == []
    assert wrote(0, 5, parts(DAYS[2])) == [1, 3]
    assert wrote(0, 5, parts(DAYS[3])) == [4]
    assert wrote(0, 5, parts(LIVE_DAY)) == []


def test_what_somebody_else_wrote_after_a_receipt_is_known(filled):
    """The newest such version of each partition; our own commits are not somebody else's, nor is what was published over."""
    published = filled.lake.published()
    assert filled.lake.written_by_others(published) == {DAYS[2]: 3}
    assert filled.lake.written_by_others({DAYS[0]: published[DAYS[0]]}) == {}
    assert filled.lake.written_by_others({DAYS[2]: replace(published[DAYS[2]], version=3)}) == {}
    assert filled.lake.written_by_others({}) == {}


def test_all_rows_lie_in_partitions(filled):
    """No value of the partition column that is none; what others put there is in the tests of other writers."""
    assert filled.lake.rows_outside_grid() == {}


def test_columns_are_held_against_the_spec(filled):
    """No difference, a column that the table lacks, one that the spec lacks, and one of another type."""
    assert filled.lake.schema_problems() == []
    columns = {name: c.type for name, c in SPEC.columns.items()}
    more = filled.with_spec(spec_with(columns={**columns, "coupon": "string"}))
    assert more.schema_problems() == ["`coupon` is missing"]
    fewer = filled.with_spec(spec_with(columns={name: columns[name] for name in columns if name != "amount"}))
    assert fewer.schema_problems() == ["`amount` is not in the spec"]
    other = filled.with_spec(spec_with(columns={**columns, "amount": "double"}))
    assert other.schema_problems() == ["`amount` is `decimal(18,2)`, not `double`"]


def test_the_table_is_compared_with_its_source_row_by_row(filled):
    """Rows that only one side has, by partition and as often as they come; a partition without any is left out."""
    files = {
        DAYS[0]: orders(DAYS[0]),
        DAYS[1]: [order(20, DAYS[1], amount="2.50"), order(21, DAYS[1]), order(22, DAYS[1])],
        DAYS[2]: orders(DAYS[2]),
    }
    with stage(filled, scan_of(filled, files)) as staged:
        found = filled.lake.differences(staged, parts(*files), version=4)
        assert {key: (d.only_in_source, d.only_in_table) for key, d in found.items()} == {
            DAYS[1]: (2, 1),
            DAYS[2]: (0, 1),
        }
        assert all(difference.examples for difference in found.values())
        earlier = filled.lake.differences(staged, parts(*files), version=1)
        assert {key: (d.only_in_source, d.only_in_table) for key, d in earlier.items()} == {DAYS[1]: (2, 1)}


def test_rows_that_the_source_neither_has_nor_supersedes_are_missing_from_it(filled):
    """A later version covers a row, an earlier one or one of the same age with another value does not, nor another key."""
    files = {
        DAYS[0]: [order(10, DAYS[0]), order(11, DAYS[0], amount="9.75")],
        DAYS[1]: [order(20, DAYS[1], updated="2024-03-01"), order(21, DAYS[1], updated="2024-01-01")],
        DAYS[2]: orders(DAYS[2]),
    }
    with stage(filled, scan_of(filled, files)) as staged:
        found = filled.lake.rows_at_stake(staged, parts(*files), LIVE_ROWS)
        assert filled.lake.rows_at_stake(staged, parts(DAYS[0]), LIVE_ROWS).keys() == {DAYS[0]}
    assert {key: (f.rule, f.rows, f.examples) for key, f in found.items()} == {
        DAYS[0]: (AuditRule.LIVE_ROWS_ARE_COVERED, 1, (f"order_id=11 at {DAYS[0]} 06:00:00Z",)),
        DAYS[1]: (AuditRule.LIVE_ROWS_ARE_COVERED, 1, (f"order_id=21 at {DAYS[1]} 06:00:00Z",)),
        DAYS[2]: (AuditRule.LIVE_ROWS_ARE_COVERED, 1, (f"order_id=32 at {DAYS[2]} 06:00:00Z",)),
    }


@pytest.mark.prove
def test_a_row_is_superseded_in_its_own_partition_alone(filled):
    """A key may come once in each: a later row of another partition of the chunk says nothing of this one's."""
    files = {
        DAYS[0]: [order(11, DAYS[0])],
        DAYS[1]: [*orders(DAYS[1], amount="2.50"), order(10, DAYS[1], updated="2024-06-01")],
    }
    with stage(filled, scan_of(filled, files)) as staged:
        found = filled.lake.rows_at_stake(staged, parts(*files), LIVE_ROWS)
    assert {key: (f.rows, f.examples) for key, f in found.items()} == {
        DAYS[0]: (1, (f"order_id=10 at {DAYS[0]} 06:00:00Z",)),
    }


def test_keys_that_the_source_lost_are_at_stake(filled):
    """A row with other values keeps its key, and so does one that moved into another partition of the chunk."""
    files = {
        DAYS[0]: [order(10, DAYS[0], amount="9.75")],
        DAYS[1]: [*orders(DAYS[1]), order(11, DAYS[1])],
        DAYS[2]: [order(30, DAYS[2])],
    }
    with stage(filled, scan_of(filled, files)) as staged:
        found = filled.lake.rows_at_stake(staged, parts(*files), ALL_KEYS)
    assert {key: (f.rule, f.rows) for key, f in found.items()} == {DAYS[2]: (AuditRule.KEYS_ARE_KEPT, 2)}


def test_where_else_a_key_is_staged_says_whether_it_is_at_stake(filled):
    """In a partition that is written too it is kept; in one that is refused it would be in neither."""
    files = {DAYS[0]: orders(DAYS[0])[1:], DAYS[1]: [*orders(DAYS[1]), order(10, DAYS[1])], DAYS[2]: orders(DAYS[2], 1)}
    first, second, third = (parts(day)[0] for day in files)
    with stage(filled, scan_of(filled, files)) as staged:
        alone = filled.lake.rows_at_stake(staged, [first, third], ALL_KEYS)
        beside = filled.lake.rows_at_stake(staged, [first, third], ALL_KEYS, Others(written=(second,)))
        refused = filled.lake.rows_at_stake(staged, [first, third], ALL_KEYS, Others(refused=(second,)))
    assert {DAYS[0], DAYS[2]} == alone.keys()
    assert {DAYS[2]} == beside.keys()
    assert {DAYS[0]: 1} == {key: finding.rows for key, finding in refused.items()}


@pytest.mark.prove
def test_keys_that_have_left_are_not_at_stake(filled):
    """Only they: that one has left its partition says nothing of the others, nor of the same key in another partition."""
    files = {day: [] for day in DAYS[:3]}
    gone = filled.frame([order(10, DAYS[0]), order(11, DAYS[2])])
    with stage(filled, scan_of(filled, files)) as staged:
        every = filled.lake.rows_at_stake(staged, parts(*files), ALL_KEYS)
        rest = filled.lake.rows_at_stake(staged, parts(*files), ALL_KEYS, Others(gone=gone))
    assert {key: finding.rows for key, finding in every.items()} == {DAYS[0]: 2, DAYS[1]: 2, DAYS[2]: 3}
    assert {key: finding.rows for key, finding in rest.items()} == {DAYS[0]: 1, DAYS[1]: 2, DAYS[2]: 3}


@pytest.mark.prove
def test_a_key_in_a_refused_partitions_file_is_at_stake_wherever_its_row_lies(filled):
    """Its event time is another day's or none: a file is one day's, and with that day the row is not written."""
    stray = {**order(10, DAYS[1]), "ordered_at": None}
    files = {DAYS[0]: orders(DAYS[0])[1:], DAYS[1]: [*orders(DAYS[1]), stray]}
    first, second = (parts(day)[0] for day in files)
    with stage(filled, scan_of(filled, files)) as staged:
        found = filled.lake.rows_at_stake(staged, [first], ALL_KEYS, Others(refused=(second,)))
    assert {DAYS[0]: 1} == {key: finding.rows for key, finding in found.items()}


def test_rows_outside_a_range_of_keys_are_at_stake_when_they_are_others(filled):
    """Inside it rows come, go and change; outside none may, and a new one is one that comes."""
    files = {
        DAYS[0]: [order(10, DAYS[0], amount="9.75"), *orders(DAYS[0])[1:]],
        DAYS[1]: orders(DAYS[1], amount="2.50"),
        DAYS[2]: [*orders(DAYS[2], 3), order(99, DAYS[2])],
    }
    only = Guard(AuditRule.OTHER_KEYS_ARE_UNCHANGED, KeyRange("order_id", "10", "19"))
    with stage(filled, scan_of(filled, files)) as staged:
        found = filled.lake.rows_at_stake(staged, parts(*files), only)
        rest = filled.lake.rows_at_stake(staged, parts(*files), replace(only, keys=KeyRange("order_id", "9", "99")))
    assert {key: (f.rule, f.rows) for key, f in found.items()} == {DAYS[2]: (AuditRule.OTHER_KEYS_ARE_UNCHANGED, 1)}
    assert rest == {}
