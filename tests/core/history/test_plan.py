"""The plan of a launch over a source and a table in memory: what is written, what is left out and why, and no effects."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta

import pytest

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.plan import Launch, LaunchPlan, plan_launch
from backfill_assets.core.history.planned_state import planned_digest
from backfill_assets.core.history.publish import materialize
from backfill_assets.core.state.fence import Fence
from backfill_assets.errors import (
    LivePartitionsError,
    PlanDriftError,
    SchemaMismatchError,
    SourceIncompleteError,
    WindowError,
)
from tests.support.fake_lake import FakeLake
from tests.support.fakes import ORDERS, FakeSource, files_of, orders_of, spec_with

FIRST, LAST = "2024-02-27", "2024-03-01"
KEYS = ["2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01"]
LIVE = {"path": "events", "starts": "2024-03-01"}
KEYED = spec_with(live=LIVE, latest_wins_by=["updated_at"])


class World:
    """A source with four days, and a table."""

    def __init__(self, spec=ORDERS):
        self.spec = spec
        self.source = FakeSource(spec, files_of(spec, FIRST, LAST))
        self.lake = FakeLake(spec)

    def partitions(self, keys=KEYS):
        return [self.spec.grid.partition(key) for key in keys]

    def plan(self, keys=KEYS, **how) -> LaunchPlan:
        launch = Launch(**{"run_id": "run", "root_run_id": "run", "code_version": "code", **how})
        return plan_launch(self.spec, self.partitions(keys), self.source, self.lake, launch)

    def publish(self, keys=KEYS, **how):
        launch = Launch(**{"run_id": "run", "root_run_id": "run", "code_version": "code", **how})
        return list(materialize(self.spec, self.partitions(keys), self.source, self.lake, launch))


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


def test_a_plan_of_nothing_is_refused():
    """An empty or reversed range is an error, not a launch that does nothing."""
    with pytest.raises(WindowError, match="no partition is named"):
        World().plan([])


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


def test_missing_leaves_out_what_is_published(published):
    """`only: missing` writes what is new, and what the source has changed."""
    assert chunk_keys(published.plan(only="missing")) == []
    published.source.files["2024-02-28"] = orders_of(ORDERS, "2024-02-28", amount=2)
    plan = published.plan(only="missing")
    assert chunk_keys(plan) == [["2024-02-28"]]
    assert left_out(plan) == [
        (["2024-02-27", "2024-02-29", "2024-03-01"], "their receipt names the source's content as it is now", True)
    ]


def test_missing_takes_other_code_for_stale(published):
    """A partition that another spec or transform made is launched again."""
    assert chunk_keys(published.plan(only="missing", code_version="new")) == [KEYS]


def test_missing_launches_what_differs(published):
    """A partition whose newest comparison failed is not taken for done, whatever its receipt says."""
    assert chunk_keys(published.plan(only="missing", differing=frozenset({"2024-02-29"}))) == [["2024-02-29"]]


@pytest.mark.parametrize("left", [0, 2, 3], ids=["emptied", "lost a row", "as many rows"])
def test_missing_launches_what_somebody_else_wrote(published, left):
    """A partition that has not the rows of its receipt, or was written since, is launched again, and not recorded as published."""
    rows = orders_of(ORDERS, "2024-02-28", amount=50)[:left]
    published.lake.commit_as_somebody_else({"2024-02-28": rows})
    assert chunk_keys(published.plan(only="missing")) == [["2024-02-28"]]


def test_a_reexecution_leaves_out_what_its_own_chain_published(published):
    """What an earlier attempt of the same run published stays; what another run did is written again."""
    assert chunk_keys(published.plan(is_reexecution=True)) == []
    assert chunk_keys(published.plan(is_reexecution=True, root_run_id="another")) == [KEYS]


def test_an_ordinary_launch_asks_for_no_receipts(published, monkeypatch):
    """A launch that writes all it names plans without a look at the table."""
    known = published.lake.published()
    for name in ("published", "rows_now", "late"):
        monkeypatch.setattr(published.lake, name, lambda *_: pytest.fail("it looked at the table"))
    assert chunk_keys(published.plan(published=known)) == [KEYS]
    assert chunk_keys(published.plan(allow_shrink=True)) == [KEYS]


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


def test_the_work_of_a_plan_grows_with_its_partitions(monkeypatch):
    """A plan that leaves most of ten years out compares no partition with every other: it would take minutes."""
    world, hashed, hash_of_value = World(), 0, Partition.__hash__
    world.source = FakeSource(ORDERS, files_of(ORDERS, "2024-01-01", "2024-12-31", 1))
    keys = list(world.source.files)
    world.publish(keys[:-1])

    def counted(partition: Partition) -> int:
        nonlocal hashed
        hashed += 1
        return hash_of_value(partition)

    monkeypatch.setattr(Partition, "__hash__", counted)
    assert chunk_keys(world.plan(keys, only="missing")) == [keys[-1:]]
    assert hashed < 10 * len(keys)


def test_foreign_rows_are_named_where_a_stream_writes():
    """Partitions with rows that no publish put there are marked, so that none of them gets lost; unless that is allowed."""
    world = World(KEYED)
    world.lake.add_version({}, fence=Fence(datetime(2024, 3, 1, tzinfo=UTC), stream="s"))
    world.publish(KEYS[:1])
    world.lake.commit_as_somebody_else({"2024-02-28": orders_of(KEYED, "2024-02-28")})
    assert {partition.key for partition in world.plan(KEYS[:3]).foreign} == {"2024-02-28"}
    assert world.plan(KEYS[:3], discard_uncovered_rows=True).foreign == frozenset()


def test_a_source_of_other_columns_is_found_before_anything_is_read():
    """The plan itself fails where the source does not have the spec's columns."""
    world = World()
    world.source.schema_problem = "`amount` is missing"
    with pytest.raises(SchemaMismatchError):
        world.plan()
    assert world.source.staged_keys == []


def test_surveys_are_part_of_the_plan():
    """What the source had when it was planned goes with the plan, for every partition that is written."""
    world = World()
    plan = world.plan()
    assert plan.surveys == world.source.survey(world.partitions())
    late = datetime.now(UTC) + timedelta(days=1)
    assert all(survey.changed_utc is None or survey.changed_utc < late for survey in plan.surveys.values())
