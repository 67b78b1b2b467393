"""The contract of `Lake.stage`: rows read once, late rows joined, one row per key, and a tally of each partition."""

from __future__ import annotations

from decimal import Decimal

import pytest

from backfill_assets.core.history.audit import AuditRule, Finding, Verdict
from backfill_assets.core.state.surveys import NO_LATE
from tests.contracts.conftest import STAGED, shop_of
from tests.contracts.lakes import (
    DAYS,
    SPEC,
    multiset,
    order,
    orders,
    parts,
    publish,
    receipt_for,
    scan_by_time,
    scan_of,
    stage,
)
from tests.support.fakes import PROBLEM

pytestmark = pytest.mark.parametrize("lake_kind", STAGED, indirect=True, scope="module")


@pytest.fixture(scope="module")
def desk(lake_kind, request, tmp_path_factory):
    """A shop whose table is not looked at: rows are staged, and never published."""
    made = shop_of(lake_kind, request, tmp_path_factory.mktemp("desk"))
    made.lake.create()
    return made


def spoiled(day):
    """Return rows that break every rule that a row can break, and one that breaks none."""
    return [
        order(1, day),
        order(2, DAYS[1]),
        order(None, day),
        {**order(3, day), PROBLEM: "`amount`: `abc` is no number"},
    ]


@pytest.mark.parametrize("way", [scan_of, scan_by_time])
def test_rows_are_tallied_where_they_are_kept(desk, way):
    """In the partition of their file, or of their event time."""
    files = {DAYS[0]: orders(DAYS[0]), DAYS[2]: orders(DAYS[2], 3)}
    rows = files if way is scan_of else [row for rows in files.values() for row in rows]
    with stage(desk, way(desk, rows)) as staged:
        assert {key: (tally.rows, tally.stray_rows) for key, tally in staged.tallies.items()} == {
            DAYS[0]: (2, 0),
            DAYS[2]: (3, 0),
        }
        first = staged.tallies[DAYS[0]]
        assert first.first_event_utc == first.last_event_utc == files[DAYS[0]][0]["ordered_at"]
        assert (first.null_keys, first.duplicate_keys, first.unreadable_rows, first.nulls) == (0, 0, 0, {})
        assert (staged.superseded_rows, staged.late) == ({}, NO_LATE)


def test_the_checksum_knows_rows_and_not_their_order(desk):
    """Equal rows give equal checksums in whatever order and file, another value or another count gives another one."""
    rows = orders(DAYS[0], 3)
    checksums = []
    for given in (rows, rows[::-1], [*rows[:2], order(2, DAYS[0], amount="9.00")], rows[:2]):
        with stage(desk, scan_of(desk, {DAYS[0]: given})) as staged:
            checksums.append(staged.tallies[DAYS[0]].checksum)
    assert checksums[0] == checksums[1]
    assert len(set(checksums)) == 3


def test_what_is_wrong_with_rows_is_counted(desk):
    """Strays, keys that are NULL, rows that cannot be read (which are in no other number), and columns without any value."""
    files = {DAYS[0]: spoiled(DAYS[0]), DAYS[1]: [order(20, DAYS[1], amount=None)]}
    with stage(desk, scan_of(desk, files)) as staged:
        wrong, empty = staged.tallies[DAYS[0]], staged.tallies[DAYS[1]]
    assert (wrong.rows, wrong.stray_rows, wrong.null_keys, wrong.unreadable_rows) == (3, 1, 1, 1)
    assert (wrong.nulls, wrong.empty_columns) == ({"order_id": 1}, ())
    assert (empty.rows, empty.nulls, empty.empty_columns) == (1, {}, ("amount",))


@pytest.mark.parametrize("turn", [1, -1], ids=["as they come", "reversed"])
def test_of_rows_with_the_same_key_the_latest_wins(desk, turn):
    """NULL is before every instant; of rows that are equally late always the same one wins, whatever their order."""
    rows = [
        order(1, DAYS[0], amount="1.00", updated="2024-02-01"),
        order(1, DAYS[0], amount="2.00", updated="2024-02-03"),
        order(1, DAYS[0], amount="3.00", updated=None),
        order(2, DAYS[0], amount="4.00", updated=None),
    ]
    ties = [order(3, DAYS[0], amount=amount, updated="2024-02-02") for amount in ("5.00", "6.00")]
    with stage(desk, scan_of(desk, {DAYS[0]: [*rows, *ties][::turn]})) as staged:
        assert dict(staged.superseded_rows) == {DAYS[0]: 3}
        assert (staged.tallies[DAYS[0]].rows, staged.tallies[DAYS[0]].duplicate_keys) == (3, 0)
        checksum = staged.tallies[DAYS[0]].checksum
    expected = []
    for tie in ties:
        with stage(desk, scan_of(desk, {DAYS[0]: [rows[1], rows[3], tie]})) as staged:
            expected.append(staged.tallies[DAYS[0]].checksum)
    assert checksum in expected
    assert _winner_of_ties.setdefault(type(desk), checksum) == checksum


_winner_of_ties: dict[type, int] = {}
"""By implementation: what came out in the first order of the rows."""


def test_a_stray_row_wins_over_nothing(desk):
    """A file with rows of other partitions fails; they must not replace rows of a partition that has none of its faults."""
    files = {DAYS[0]: [order(20, DAYS[1], updated="2024-03-01")], DAYS[1]: orders(DAYS[1])}
    with stage(desk, scan_of(desk, files)) as staged:
        assert staged.tallies[DAYS[0]].stray_rows == 1
        assert (staged.tallies[DAYS[1]].rows, dict(staged.superseded_rows)) == (2, {})


@pytest.mark.prove
@pytest.mark.parametrize("way", [scan_of, scan_by_time])
@pytest.mark.parametrize("updated", ["2024-03-01", None], ids=["newer", "without a time"])
def test_a_row_that_cannot_be_read_neither_wins_nor_loses(desk, way, updated):
    """It would replace a good row, or be superseded by one and never be heard of: its partition fails, and the good row stays."""
    good, bad = order(1, DAYS[0], updated="2024-02-01"), {**order(1, DAYS[0], updated=updated), PROBLEM: "no number"}
    twice = [order(2, DAYS[0], updated=at) for at in ("2024-02-01", "2024-02-02")]
    rows = [good, bad, *twice]
    with stage(desk, way(desk, {DAYS[0]: rows} if way is scan_of else rows)) as staged:
        tally = staged.tallies[DAYS[0]]
        assert (tally.rows, tally.unreadable_rows, dict(staged.superseded_rows)) == (2, 1, {DAYS[0]: 1})


def test_a_row_of_another_days_file_that_cannot_be_read_wins_over_nothing(desk):
    """Its own day fails; the day whose key it has keeps each of its rows, and passes."""
    bad = {**order(20, DAYS[1], updated="2024-03-01"), PROBLEM: "no number"}
    with stage(desk, scan_of(desk, {DAYS[0]: [bad], DAYS[1]: orders(DAYS[1])})) as staged:
        assert staged.tallies[DAYS[0]].unreadable_rows == 1
        assert (staged.tallies[DAYS[1]].rows, dict(staged.superseded_rows)) == (2, {})
        assert staged.tallies[DAYS[1]].duplicate_keys == 0


@pytest.mark.parametrize("keys", [["order_id"], []], ids=["keys", "no keys"])
def test_without_an_order_duplicates_are_counted(unmade, keys):
    """A table with keys and no `latest_wins_by` counts rows beyond the first of each key; one without keys keeps them all."""
    lake = unmade.with_spec(SPEC.model_copy(update={"latest_wins_by": [], "key_columns": keys, "live": None}))
    scan = scan_of(unmade, {DAYS[0]: [*orders(DAYS[0], 3), order(10, DAYS[0], amount="8.00")]})
    with lake.stage(scan, NO_LATE) as staged:
        tally = staged.tallies[DAYS[0]]
        assert (tally.rows, tally.duplicate_keys, staged.superseded_rows) == (4, 1 if keys else 0, {})


def test_rows_that_break_a_rule_are_named(desk):
    """By key and event time, with where a stray row belongs; no row that breaks no rule, and no other partition's."""
    files = {DAYS[0]: spoiled(DAYS[0])[:3], DAYS[1]: orders(DAYS[1], 5)}
    verdicts = [
        Verdict(partition, tuple(Finding(rule, 1, "it is broken.") for rule in AuditRule))
        for partition in parts(DAYS[0])
    ]
    with stage(desk, scan_of(desk, files)) as staged:
        assert desk.lake.examples(staged, verdicts) == {
            DAYS[0]: {
                AuditRule.ROWS_INSIDE_PARTITION: [f"order_id=2 at {DAYS[1]} 06:00:00Z (belongs to {DAYS[1]})"],
                AuditRule.REQUIRED_COLUMNS_ARE_FILLED: [f"order_id=NULL at {DAYS[0]} 06:00:00Z"],
            }
        }


# -- late rows ---------------------------------------------------------------------------------------------------------


@pytest.mark.prove
def test_of_late_rows_as_new_as_each_other_the_fuller_one_wins(shop):
    """The same event landed twice, and before the second time a column was added: its value is not left to chance."""
    keys = range(50, 62)
    for number, amount in enumerate([None, "1.25"]):
        late_rows = [order(key, DAYS[0], amount=amount) for key in keys]
        shop.live.append_late(shop.frame(late_rows), ("late:a", number))
    late = shop.lake.late(parts(DAYS[0]))
    with stage(shop, scan_of(shop, {DAYS[0]: orders(DAYS[0])}), late) as staged:
        assert dict(staged.superseded_rows) == {DAYS[0]: len(keys)}
        shop.lake.overwrite(staged, parts(DAYS[0]), receipt_for(shop, staged, [DAYS[0]], late_version=late.version))
    assert {row["amount"] for row in shop.rows() if row["order_id"] in keys} == {Decimal("1.25")}


@pytest.mark.prove
def test_late_rows_are_joined_as_they_were_when_they_were_counted(shop):
    """All late rows of the named partitions, at the pinned version: those that come afterwards wait for the next launch."""
    newer = order(10, DAYS[0], amount="9.00", updated="2024-03-01")
    older = order(11, DAYS[0], amount="9.00", updated="2024-01-01")
    shop.live.append_late(shop.frame([newer, older, order(50, DAYS[0]), order(60, DAYS[3])]), ("late:a", 0))
    late = shop.lake.late(parts(DAYS[0], DAYS[1]))
    assert dict(late.rows) == {DAYS[0]: 3}
    shop.live.append_late(shop.frame([order(51, DAYS[0])]), ("late:a", 1))

    with stage(shop, scan_of(shop, {DAYS[0]: orders(DAYS[0]), DAYS[1]: orders(DAYS[1])}), late) as staged:
        assert (staged.late, dict(staged.superseded_rows)) == (late, {DAYS[0]: 2})
        days = [DAYS[0], DAYS[1]]
        shop.lake.overwrite(staged, parts(*days), receipt_for(shop, staged, days, late_version=late.version))
    expected = [newer, orders(DAYS[0])[1], order(50, DAYS[0])]
    assert multiset(shop.rows()) == multiset([*expected, *orders(DAYS[1])])

    publish(shop, {DAYS[0]: orders(DAYS[0])})
    assert multiset(shop.rows()) == multiset([*expected, order(51, DAYS[0]), *orders(DAYS[1])])


def test_a_late_row_that_is_as_new_as_the_sources_is_superseded(shop):
    """It is a copy of the source's, however much it differs: as one from before a column was added, which has no value there."""
    rows = orders(DAYS[0], 6)
    shop.live.append_late(shop.frame([{**row, "amount": None} for row in rows]), ("late:a", 0))
    publish(shop, {DAYS[0]: rows})
    assert multiset(shop.rows()) == multiset(rows)


@pytest.mark.prove
def test_late_rows_are_joined_to_a_source_without_files(shop):
    """A source that keeps rows by their event time alone gets them the same way."""
    shop.live.append_late(shop.frame([order(50, DAYS[0])]), ("late:a", 0))
    with stage(shop, scan_by_time(shop, orders(DAYS[0])), shop.lake.late(parts(DAYS[0]))) as staged:
        assert {key: tally.rows for key, tally in staged.tallies.items()} == {DAYS[0]: 3}


@pytest.mark.prove
def test_rows_that_are_known_need_not_be_kept(shop):
    """They are kept all the same where any content is another, and where late rows are joined."""
    files, lake = {DAYS[0]: orders(DAYS[0]), DAYS[2]: orders(DAYS[2], 3)}, shop.lake
    with stage(shop, scan_of(shop, files)) as first:
        known = {key: tally.content for key, tally in first.tallies.items()}
    with lake.stage(scan_of(shop, files), NO_LATE, unique=known, keeps=False) as again:
        assert again.kept is None
        assert (again.tallies, again.superseded_rows) == (first.tallies, first.superseded_rows)
    for other in ({**files, DAYS[1]: orders(DAYS[1])}, {**files, DAYS[0]: orders(DAYS[0], 1)}):
        with lake.stage(scan_of(shop, other), NO_LATE, unique=known, keeps=False) as changed:
            assert changed.kept is not None
    shop.live.append_late(shop.frame([order(50, DAYS[0])]), ("late:a", 0))
    late = lake.late(parts(*files))
    with lake.stage(scan_of(shop, files), late, unique=known, keeps=False) as joined:
        assert (joined.kept is not None, joined.tallies[DAYS[0]].rows) == (True, 3)


@pytest.mark.prove
def test_rows_that_were_not_kept_cannot_be_saved(shop):
    """Read again, they may be others than those that were audited. The table is as it was."""
    files = {DAYS[0]: orders(DAYS[0])}
    publish(shop, files)
    with stage(shop, scan_of(shop, files)) as staged:
        known = {key: tally.content for key, tally in staged.tallies.items()}
    version = shop.lake.version()
    with shop.lake.stage(scan_of(shop, files), NO_LATE, unique=known, keeps=False) as unkept:
        receipt = receipt_for(shop, unkept, list(files))
        with pytest.raises(ValueError, match="tallied and not kept"):
            shop.lake.overwrite(unkept, parts(*files), receipt)
    assert shop.lake.version() == version
