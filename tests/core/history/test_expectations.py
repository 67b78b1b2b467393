"""Guards: a partition whose measures are not what its spec expects is refused, and the table keeps what it had."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from backfill_assets.core.history.audit import ALL_ROWS, AuditRule
from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.expectations import is_within
from backfill_assets.core.history.guards import ALL_KEYS
from backfill_assets.core.history.preview import preview
from backfill_assets.core.state.receipts import Measured
from backfill_assets.errors import UnreadableSourceError
from tests.core.history.world import BAD, KEYS, World, published_keys, refused_keys
from tests.support.docstring_tables import table_of
from tests.support.fakes import launch_with, orders_of, spec_with

SUM = {"measure": "sum(amount)", "within": 0.1}


def world_with(*expected, **changes):
    return World(spec_with(expect=list(expected), **changes))


def sets(world, key, *amounts, coupons=None):
    """Give a partition of the source one row for each amount."""
    rows = orders_of(world.spec, key, len(amounts))
    for n, (row, amount) in enumerate(zip(rows, amounts, strict=True)):
        row["amount"] = None if amount is None else Decimal(amount)
        row["coupon"] = coupons[n] if coupons else None
    world.source.files[key] = rows


def why(outcomes):
    (refused,) = [outcome for outcome in outcomes if getattr(outcome, "verdict", None)]
    (finding,) = refused.verdict.findings
    assert finding.rule is AuditRule.MEASURES_ARE_AS_EXPECTED
    return finding.what


@pytest.mark.parametrize("row", table_of(is_within), ids=lambda row: f"{row['was']} {row['now']}")
def test_within_is_what_the_docstring_says(row):
    """Every row of the table of cases."""
    was, now = (None if row[side] == "none" else Decimal(row[side]) for side in ("was", "now"))
    assert is_within(Decimal(row["within"]), was, now) is (row["holds"] == "yes")


def test_halved_revenue_is_refused():
    """The partition keeps what it had; the others are published; and the refusal says from what to what."""
    world = world_with(SUM)
    world.run()
    before = world.lake.content()[BAD]
    sets(world, BAD, "0.50", "0.50", "0.50")
    sets(world, KEYS[-1], "1.05", "1.05", "1.05")
    outcomes = world.run()
    assert refused_keys(outcomes) == [BAD]
    assert why(outcomes) == (
        "`sum(amount)`: 3 in the table and 1.50 now, -0.5 of it, where `within: 0.1` is allowed. `allow_unexpected: "
        "true` in the launch's config publishes it."
    )
    assert world.lake.content()[BAD] == before
    assert published_keys(outcomes) == [[key for key in KEYS if key != BAD]]
    assert published_keys(world.run([BAD], allow_unexpected=True)) == [[BAD]]


def test_what_was_measured_is_in_the_receipt():
    """Before and after; nothing before where there was nothing; also where it was let through."""
    world = world_with(SUM)
    world.run([BAD])
    sets(world, BAD, "9.00")
    world.run([BAD], allow_unexpected=True, allow_shrink=True)
    told = [receipt.partitions[BAD].measures for receipt in world.lake.receipts().values()]
    assert told == [(Measured("sum(amount)", "", None, "3"),), (Measured("sum(amount)", "", "3", "9.00"),)]


def test_what_others_wrote_is_what_the_table_has():
    """It is compared with the rows that are there, whoever wrote them."""
    world = world_with(SUM)
    world.run()
    world.lake.commit_as_somebody_else({BAD: orders_of(world.spec, BAD, amount=100)})
    assert refused_keys(world.run([BAD])) == [BAD]


def test_groups_are_compared_one_by_one():
    """A value that is on one side only counts as 0 on the other; NULL is a group too."""
    world = world_with({**SUM, "by": "coupon"})
    sets(world, BAD, "10", "10", "5", coupons=["A", "B", None])
    world.run([BAD])
    sets(world, BAD, "10", "10", "5", coupons=["A", "C", None])
    outcomes = world.run([BAD])
    assert why(outcomes).startswith(
        "`sum(amount) by coupon`: `B` 10 in the table and 0 now, -1 of it, where `within: 0.1` is allowed; "
        "`C` 0 in the table and 10 now, where"
    )
    assert {m.group for m in world.lake.published()[BAD].partition.measures} == {"A", "B", None}


@pytest.mark.parametrize(
    ("expected", "amounts", "refused"),
    [
        ({"measure": "sum(amount)", "at_least": 0, "at_most": 10}, ["4", "5"], False),
        ({"measure": "sum(amount)", "at_least": 0, "at_most": 10}, ["4", "7"], True),
        ({"measure": "min(amount)", "at_least": 0}, ["-1", "5"], True),
        ({"measure": "avg(amount)", "at_most": 2.9}, ["1", "5"], True),
        ({"measure": "count(*)", "at_least": 3}, ["1", "5"], True),
        ({"measure": "null_share(amount)", "at_most": 0.3}, ["1", None], True),
        ({"measure": "avg(amount)", "at_least": 1}, [None], False),
    ],
)
def test_a_measure_has_bounds(expected, amounts, refused):
    """They hold for a first publish too, where there is nothing to compare with; of no value nothing can be said."""
    world = world_with(expected)
    sets(world, BAD, *amounts)
    assert bool(refused_keys(world.run([BAD]))) is refused


def test_bounds_are_of_what_is_there():
    """A group that was there once, and is compared for another guard, breaks no bound that it does not reach."""
    world = world_with({"measure": "avg(amount)", "by": "coupon", "at_least": 1}, {"measure": "count(*)", "within": 5})
    sets(world, BAD, "10", "10", coupons=["A", "B"])
    world.run([BAD])
    sets(world, BAD, "10", "11", coupons=["A", "A"])
    assert refused_keys(world.run([BAD])) == []


def test_what_cannot_be_read_is_not_compared_with():
    """A damaged file of the table must not keep a launch from writing it anew; the others are compared."""
    world = world_with(SUM)
    world.run([BAD, KEYS[-1]])
    measures = world.lake.measures

    def damaged(partitions, *, staged=None, version=None):
        if staged is None and BAD in {p.key for p in partitions}:
            raise UnreadableSourceError("A file is lost.", state="", remedy="")
        return measures(partitions, staged=staged, version=version)

    world.lake.measures = damaged
    sets(world, BAD, "900")
    sets(world, KEYS[-1], "900")
    assert refused_keys(world.run([BAD, KEYS[-1]], allow_shrink=True)) == [KEYS[-1]]
    assert any("Nothing is compared with what the table has of 2024-02-28" in said for said in world.said)


def test_all_that_is_not_as_expected_is_named():
    """One finding for each measure, so that nobody has to launch twice to see the second."""
    world = world_with({"measure": "count(*)", "at_most": 1}, {"measure": "max(amount)", "at_most": 0})
    (refused,) = world.run([BAD])
    assert [finding.what.partition(":")[0] for finding in refused.verdict.findings] == ["`count(*)`", "`max(amount)`"]


@pytest.mark.parametrize("chunk", [1, 2, 30])
@pytest.mark.parametrize(("of", "compared"), [("previous", KEYS[1]), ("week_before", "2024-02-21")])
def test_other_partitions_are_as_they_were_when_the_launch_began(of, compared, chunk):
    """Whatever the chunks are: what this launch has just written is not what its later chunks are compared with."""
    world = world_with({**SUM, "of": of})
    sets(world, compared, "100")
    world.run([compared])
    for key in KEYS:
        sets(world, key, "105")
    assert refused_keys(world.run(chunk=chunk)) == []
    sets(world, BAD, "120")
    outcomes = world.run(chunk=chunk)
    assert refused_keys(outcomes) == [BAD]
    assert ("a week before" in why(outcomes)) is (of == "week_before")


def test_what_is_identical_is_not_judged_again():
    """A launch of what the table has already is no refusal, whatever the week before was."""
    world = world_with({**SUM, "of": "previous"})
    world.run([BAD])
    sets(world, KEYS[1], "900")
    world.run([KEYS[1]], allow_unexpected=True)
    assert refused_keys(world.run([BAD], published=world.lake.published())) == []


def test_no_rows_are_for_empty_to_say():
    """Where `empty: allowed` lets all rows go, a measure of none says nothing."""
    world = world_with(SUM, empty="allowed")
    world.run([BAD])
    world.source.files[BAD] = []
    assert published_keys(world.run([BAD])) == [[BAD]]
    assert world.lake.published()[BAD].partition.measures == ()


@pytest.mark.parametrize("of", ["published", "previous"])
def test_a_preview_says_what_a_launch_would_refuse(of):
    """Also where it is the partition before that says so."""
    world = world_with({**SUM, "of": of})
    world.run(KEYS[:2] if of == "previous" else KEYS[:3])
    sets(world, KEYS[2], "9.00", "9.00", "9.00")
    partition = world.spec.grid.partition(KEYS[2])
    shown = preview(
        world.spec, partition, world.source, world.lake, launch_with(), take=lambda _: (), effects=Effects()
    )
    assert [finding.rule for finding in shown.verdict.findings] == [AuditRule.MEASURES_ARE_AS_EXPECTED]
    assert refused_keys(world.run([KEYS[2]])) == [KEYS[2]]


@pytest.mark.parametrize("chunk", [30, 1])
def test_a_key_is_kept_whose_new_partition_is_refused(chunk):
    """It moves to a day that is not as expected: that keeps what it has, and so does the day that the key would leave."""
    world = world_with({"measure": "max(amount)", "within": 0.1})
    world.run()
    moved, before = world.source.files[KEYS[0]][0], world.lake.content()
    world.source.files[KEYS[0]] = world.source.files[KEYS[0]][1:]
    at = world.source.files[KEYS[1]][0]["created_at"]
    world.source.files[KEYS[1]] = [*world.source.files[KEYS[1]], {**moved, "created_at": at, "amount": Decimal(900)}]
    outcomes = world.run(chunk=chunk, guards=(ALL_KEYS,), allow_shrink=True)
    assert refused_keys(outcomes) == KEYS[:2]
    assert {key: world.lake.content()[key] for key in KEYS[:2]} == {key: before[key] for key in KEYS[:2]}


@pytest.mark.parametrize("also", [True, False])
def test_a_key_that_a_feed_saw_move_is_kept_while_its_new_partition_is_refused(also, monkeypatch):
    """A feed says of the day that the key left that rows are gone: that is no loss, unless they are nowhere then."""
    world = world_with({"measure": "max(amount)", "within": 0.1})
    world.run()
    moved, before = world.source.files[KEYS[0]].pop(), world.lake.content()
    at, scan = world.source.files[KEYS[1]][0]["created_at"], world.source.scan
    world.source.files[KEYS[1]].append({**moved, "created_at": at, "amount": Decimal(900)})
    left = world.spec.grid.partition(KEYS[0])

    def with_the_day_that_it_left(partitions, surveys):
        named = [left, *partitions] if also else partitions
        found = scan(named, {**world.source.survey(named), **surveys})
        said = {KEYS[0]: replace(found.evidence[KEYS[0]], deleted_rows=ALL_ROWS)}
        prints = {key: survey.fingerprint for key, survey in world.source.survey(named).items()}
        return replace(found, evidence=found.evidence | said, also=(left,) if also else (), fingerprints=prints)

    monkeypatch.setattr(world.source, "scan", with_the_day_that_it_left)
    outcomes = world.run(KEYS[also:2], guards=(ALL_KEYS,), allow_shrink=True)
    assert sorted(refused_keys(outcomes)) == KEYS[:2]
    assert world.lake.content() == before
    allowed = world.run(KEYS[also:2], guards=(ALL_KEYS,), allow_shrink=True, allow_unexpected=True)
    assert refused_keys(allowed) == []
    assert world.lake.content() == world.source_content()
