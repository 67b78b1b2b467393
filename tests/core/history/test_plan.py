"""The plan of a launch over a source and a table in memory: what is written, what is left out and why, and no effects."""

from __future__ import annotations

import copy
from datetime import UTC, datetime

import pytest

from backfill_assets.core.history.plan import LaunchPlan, plan_launch
from backfill_assets.core.history.planned_state import planned_digest
from backfill_assets.core.state.fence import Fence
from backfill_assets.errors import LivePartitionsError, PlanDriftError, SourceIncompleteError
from tests.core.history import world
from tests.support.fakes import ORDERS, FakeSource, files_of, launch_with, orders_of, spec_with

KEYS = ["2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01"]
LIVE = {"path": "events", "starts": "2024-03-01"}
KEYED = spec_with(live=LIVE, latest_wins_by=["updated_at"])


class World(world.World):
    """A source with four days, and a table."""

    def __post_init__(self):
        super().__post_init__()
        self.source = FakeSource(self.spec, files_of(self.spec, KEYS[0], KEYS[-1]))

    def plan(self, keys=KEYS, **how) -> LaunchPlan:
        launch = launch_with(**{"code_version": "code", **how})
        return plan_launch(self.spec, list(map(self.spec.grid.partition, keys)), self.source, self.lake, launch)

    def publish(self, keys=KEYS):
        return self.run(keys, code_version="code")


@pytest.fixture
def published():
    """Four days that were published once."""
    world = World()
    world.publish()
    return world


def chunk_keys(plan: LaunchPlan) -> list[list[str]]:
    return [[partition.key for partition in chunk] for chunk in plan.chunks]


def left_out(plan: LaunchPlan) -> list[tuple[list[str], str, bool]]:
    return [([partition.key for partition in out.partitions], out.why, out.published) for out in plan.left_out]


def test_a_plan_names_every_partition_once():
    """Each partition that was asked for is in one chunk, or left out with a reason."""
    world = World()
    plan = world.plan([*KEYS, "2024-03-02"], max_partitions_per_chunk=3)
    assert chunk_keys(plan) == [KEYS[:2], KEYS[2:]]
    assert left_out(plan) == [(["2024-03-02"], "the source is not complete for them yet; they stay missing", False)]


@pytest.mark.parametrize(
    "how", [{}, {"only": "missing"}, {"is_reexecution": True}, {"discard_uncovered_rows": True}], ids=str
)
@pytest.mark.parametrize("spec", [ORDERS, KEYED], ids=["history alone", "with a stream"])
def test_planning_has_no_effect(spec, how):
    """Whatever is asked, source and table are the same afterwards, and no rows were read."""
    world = World(spec)
    world.lake.versions[-1].__dict__.update(
        fence=Fence(datetime(2024, 3, 1, tzinfo=UTC), stream="s") if spec.live else None
    )
    world.publish(KEYS[:2])
    before = copy.deepcopy(
        (world.lake.versions, world.source.files, world.source.staged_keys, world.lake.script.passed)
    )
    first = world.plan(KEYS[:3], **how)
    assert world.plan(KEYS[:3], **how) == first
    after = (world.lake.versions, world.source.files, world.source.staged_keys, world.lake.script.passed)
    assert after == before


def test_live_partitions_are_left_out():
    """What lies at or after the fence belongs to the stream; a plan of such partitions alone is refused."""
    world = World(KEYED)
    assert chunk_keys(world.plan()) == [KEYS[:3]]
    assert left_out(world.plan())[0][::2] == (["2024-03-01"], False)
    with pytest.raises(LivePartitionsError):
        world.plan(["2024-03-01"])


def test_a_launch_that_may_find_nothing_has_an_empty_plan():
    """Where nothing can be written yet, a schedule's launch leaves everything out instead of failing, each part with its reason."""
    world = World(KEYED)
    world.source.complete_until_utc = None
    with pytest.raises(SourceIncompleteError):
        world.plan()
    plan = world.plan(may_find_nothing=True)
    assert plan.chunks == ()
    assert [keys for keys, _, _ in left_out(plan)] == [["2024-03-01"], KEYS[:3]]
    assert left_out(plan)[1][1].endswith("they stay missing")


def test_missing_launches_what_differs(published):
    """A partition whose newest comparison failed is not taken for done, whatever its receipt says."""
    assert chunk_keys(published.plan(only="missing", differing=frozenset({"2024-02-29"}))) == [["2024-02-29"]]


@pytest.mark.parametrize("left", [0, 2, 3], ids=["emptied", "lost a row", "as many rows"])
def test_missing_launches_what_somebody_else_wrote(published, left):
    """A partition that has not the rows of its receipt, or was written since, is launched again, and not recorded as published."""
    rows = orders_of(ORDERS, "2024-02-28", amount=50)[:left]
    published.lake.commit_as_somebody_else({"2024-02-28": rows})
    assert chunk_keys(published.plan(only="missing")) == [["2024-02-28"]]


def test_a_plan_of_other_partitions_is_refused(published):
    """A launch that carries out a plan names what source and table were; if one of them changed nothing is planned."""
    receipt_id = published.lake.receipts()[1].receipt_id
    surveys = published.plan().surveys
    planned = planned_digest({key: (survey.fingerprint, receipt_id, 0, 0) for key, survey in surveys.items()})
    assert chunk_keys(published.plan(plan="p1", planned_state=planned)) == [KEYS]
    same = copy.deepcopy(published)
    published.source.files[KEYS[1]] = orders_of(published.spec, KEYS[1], 5)
    same.lake.commit_as_somebody_else({KEYS[1]: orders_of(same.spec, KEYS[1], 3, amount=9)})
    for changed in (published, same):
        with pytest.raises(PlanDriftError, match="are not what plan `p1` was made of"):
            changed.plan(plan="p1", planned_state=planned)


def test_foreign_rows_are_named_where_a_stream_writes():
    """Partitions with rows that no publish put there are marked, so that none of them gets lost; unless that is allowed."""
    world = World(KEYED)
    world.lake.add_version({}, fence=Fence(datetime(2024, 3, 1, tzinfo=UTC), stream="s"))
    world.publish(KEYS[:1])
    world.lake.commit_as_somebody_else({"2024-02-28": orders_of(KEYED, "2024-02-28")})
    assert {partition.key for partition in world.plan(KEYS[:3]).foreign} == {"2024-02-28"}
    assert world.plan(KEYS[:3], discard_uncovered_rows=True).foreign == frozenset()
