"""What a launch would do, held against what it then does: over a source and a table in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_assets.core.history.audit import AuditRule, Evidence, Finding
from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.forecast import WRITES, Action, action_of, foresee
from backfill_assets.core.history.outcomes import Identical, Published, Refused
from backfill_assets.core.history.plan import LeftOut
from backfill_assets.core.history.preview import preview
from backfill_assets.core.state.partition_status import PartitionStatus, State
from tests.core.history.world import KEYS, World
from tests.support.docstring_tables import table_of
from tests.support.fakes import ORDERS, launch_with, orders_of, spec_with

DAY = ORDERS.grid.partition("2024-02-29")
GAP = Finding(AuditRule.SOURCE_IS_PRESENT, 0, "a gap")


def number(text):
    return None if text == "-" else int(text)


@pytest.mark.parametrize("row", table_of(action_of), ids=lambda row: "-".join(row.values()))
def test_what_is_done_is_what_its_docstring_says(row):
    """Every row of the table in `action_of` holds."""
    had = number(row["had"]) or 0
    action, why = action_of(
        ORDERS,
        PartitionStatus(DAY, (State(row["state"]),), ("for a reason",)),
        Evidence(None, (GAP,) if row["says"] == "a gap" else ()),
        rows=number(row["rows"]),
        rows_now=had,
        launch=launch_with(),
    )
    assert action.value == row["action"]
    assert why


def foreseen(world, keys=KEYS, *, deep=False, **how):
    launch = launch_with(run_id="plan", **how)
    return foresee(
        world.spec, [world.spec.grid.partition(key) for key in keys], world.source, world.lake, launch, deep=deep
    )


def actions(forecast):
    return {found.partition.key: found.action for found in forecast.partitions}


def done(outcomes):
    """What a launch did with each partition, in the words of a forecast."""
    found = {}
    for outcome in outcomes:
        match outcome:
            case Published():
                found |= {p.key: "written" for p in outcome.partitions}
            case Identical():
                found |= {p.key: "identical" for p in outcome.partitions}
            case Refused(verdict=verdict):
                found[verdict.partition.key] = "refused"
            case LeftOut():
                found |= {p.key: "identical" if outcome.published else "left out" for p in outcome.partitions}
    return found


def in_short(action):
    return "written" if action in WRITES else action.value


CHANGES = {
    "corrected": lambda world, key: world.correct(key, amount=7),
    "shrunk": lambda world, key: world.source.files[key].__delitem__(slice(1, None)),
    "emptied": lambda world, key: world.source.files.__setitem__(key, []),
    "gone": lambda world, key: world.source.files.__delitem__(key),
    "grown": lambda world, key: world.source.files.__setitem__(key, orders_of(world.spec, key, 5)),
    "written by somebody": lambda world, key: world.lake.commit_as_somebody_else({key: orders_of(world.spec, key, 9)}),
    "doubled": lambda world, key: world.source.files[key].append({**world.source.files[key][0], "amount": 7}),
}


@pytest.mark.parametrize("first", [KEYS, KEYS[:3], []], ids=["all published", "half published", "none published"])
@settings(max_examples=40, deadline=None)
@given(
    changed=st.dictionaries(st.sampled_from(KEYS[:4]), st.sampled_from(sorted(CHANGES))),
    only=st.sampled_from(["all", "missing"]),
)
def test_a_launch_does_what_was_foreseen(first, changed, only):
    """With a deep look always; without one wherever it says that it does not write."""
    world = World()
    if first:
        world.run(first)
    for key, change in sorted(changed.items()):
        CHANGES[change](world, key)
    before = world.lake.version(), world.lake.content()
    quick, deep = foreseen(world, only=only), foreseen(world, only=only, deep=True)
    assert (world.lake.version(), world.lake.content()) == before, "it only looks"
    did = done(world.run(only=only, published=world.lake.published()))
    assert {key: in_short(action) for key, action in actions(deep).items()} == did
    for key, action in actions(quick).items():
        assert in_short(action) == did[key] or changed.get(key) == "doubled", (key, changed)


def test_rows_and_receipts_are_told():
    """How many rows there are, and would be, by whom it was published, and what lies at the source."""
    world = World()
    world.run(KEYS[:2])
    world.source.files[KEYS[0]] = orders_of(world.spec, KEYS[0], 5)
    found = foreseen(world).partitions
    assert [(one.rows_now, one.rows, one.files) for one in found[:3]] == [(3, 5, 1), (3, 3, 1), (0, 3, 1)]
    assert found[0].receipt_id == world.lake.receipts()[1].receipt_id
    assert found[2].receipt_id == ""
    assert found[0].size_bytes == 500


def test_rows_that_nobody_published_are_counted():
    """A partition that somebody else filled is replaced, not created; what was written since its receipt is counted again."""
    world = World()
    world.run(KEYS[:1])
    for key, rows in zip(KEYS[:4], (4, 4, 9, 9), strict=False):
        world.lake.commit_as_somebody_else({key: orders_of(world.spec, key, rows)})
    world.lake.uncountable = {KEYS[3]}
    found = foreseen(world).partitions
    assert [(one.action, one.rows_now) for one in found[:5]] == [
        (Action.REPLACE, 4),
        (Action.REPLACE, 4),
        (Action.REFUSED, 9),
        (Action.REFUSED, None),
        (Action.CREATE, 0),
    ]
    assert "somebody else wrote it" in found[0].why
    assert "9 → 3" in found[2].why
    allowed = foreseen(world, allow_shrink=True).partitions
    assert {one.action for one in allowed[:4]} == {Action.REPLACE}


def test_what_is_live_or_not_complete_is_left_out_and_no_error():
    """A plan of partitions that cannot be launched says why, of each."""
    world = World(spec_with(live={"path": "events", "starts": "2024-03-01"}, latest_wins_by=["updated_at"]))
    forecast = foreseen(world, [*KEYS[-2:], "2024-03-05"])
    assert set(actions(forecast).values()) == {Action.LEFT_OUT}
    assert "live" in forecast.partitions[0].why


def test_one_that_rewrites_finds_nothing_identical():
    """`rewrite_identical` replaces what is as it would be."""
    world = World()
    world.run()
    assert set(actions(foreseen(world, rewrite_identical=True)).values()) == {Action.REPLACE}


def test_what_comes_along_is_said_and_shown_of_none_but_what_was_asked_for(monkeypatch):
    """A partition that lacks changes is written with the one that is launched: a deep plan says so, and a preview can be made."""
    world = World()
    world.run(KEYS[:2])
    (first, second), scan = map(world.spec.grid.partition, KEYS[:2]), world.source.scan

    def with_another(partitions, surveys):
        named = [first, *partitions]
        prints = {key: survey.fingerprint for key, survey in world.source.survey(named).items()}
        return replace(scan(named, world.source.survey(named)), also=(first,), fingerprints=prints)

    monkeypatch.setattr(world.source, "scan", with_another)
    world.correct(*KEYS[:2])
    launch = launch_with(code_version="code")
    found = foresee(world.spec, [second], world.source, world.lake, launch, deep=True)
    assert [one.partition for one in found.partitions] == [second]
    assert found.remarks == (f"1 partitions that lack changes are written with them, first `{first.key}`.",)
    shown = preview(world.spec, second, world.source, world.lake, launch, take=lambda _: [], effects=Effects())
    assert shown.verdict.partition == second


def test_a_preview_shows_rows_that_the_table_has():
    """They are looked at, so they are kept."""
    world, launch = World(), launch_with(code_version="code")
    world.run(code_version="code")
    shown = preview(
        world.spec, DAY, world.source, world.lake, launch, take=lambda staged: list(staged.rows), effects=Effects()
    )
    assert (shown.is_identical, len(shown.sample)) == (True, shown.tally.rows)
