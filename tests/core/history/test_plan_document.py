"""A plan as a document: written and read, and held against what is there when it is applied."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from backfill_assets.core.history.forecast import Action, foresee
from backfill_assets.core.history.plan_document import (
    PlanDocument,
    digest_of,
    drift,
    facts_of,
    in_ranges,
    plan_from_json,
    table_of,
)
from backfill_assets.core.state.fence import Fence
from backfill_assets.errors import ConfigurationError
from tests.core.history.world import KEYS, World
from tests.support.docstring_tables import table_of as cases_of
from tests.support.fakes import launch_with, orders_of, spec_with

LIVE = {"path": "events", "starts": "2024-03-02"}
SPEC = spec_with(live=LIVE, latest_wins_by=["updated_at"])
HISTORY = KEYS[:5]


def forecast_of(world, keys=HISTORY, spec=None, only="all"):
    spec = spec or world.spec
    launch = launch_with(code_version="code", only=only)
    return foresee(spec, [spec.grid.partition(key) for key in keys], world.source, world.lake, launch)


def plan_of(world, keys=HISTORY):
    found = forecast_of(world, keys)
    config = {"only": "all", "allow_shrink": False, "reason": "a test"}
    return PlanDocument(world.spec.key, found.partitions, config, facts_of(world.spec, found, "code"))


@pytest.fixture
def world():
    """A table of which the second and the third day were published, beside a stream."""
    made = World(SPEC)
    made.run(KEYS[1:3], code_version="code")
    made.correct(KEYS[2], amount=5)
    return made


def test_a_plan_is_read_as_it_was_written(world):
    """Nothing of it is lost on the way; its id is the same, and says nothing of when it was made."""
    plan = replace(plan_of(world), made_at="2024-03-05T00:00:00+00:00", downstream={"silver/sales": [["a", "b", 2]]})
    read = plan_from_json(plan.to_json(), "plan.json", world.spec)
    assert read == plan
    assert read.id == plan.id == replace(plan, made_at="later").id
    assert table_of(plan.to_json(), "plan.json") == "bronze/orders"


def test_what_is_launched_is_what_is_written(world):
    """One launch for each run of partitions side by side that are created or replaced."""
    plan = plan_of(world)
    assert [one.action for one in plan.partitions] == [
        Action.CREATE,
        Action.IDENTICAL,
        Action.REPLACE,
        Action.CREATE,
        Action.CREATE,
    ]
    assert [[one.partition.key for one in run] for run in plan.launches()] == [[KEYS[0]], KEYS[2:5]]
    assert in_ranges([one.partition for one in plan.written]) == [[KEYS[0], KEYS[0], 1], [KEYS[2], KEYS[4], 3]]
    assert len({digest_of(run) for run in plan.launches()}) == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nothing", "it is no JSON"),
        ("[]", "it has no `backfill_assets_plan`"),
        ("{}", "it has no `backfill_assets_plan`"),
        ('{"backfill_assets_plan": 2, "table": "bronze/orders"}', "it is of format 2"),
        ('{"backfill_assets_plan": 1, "table": "bronze/orders"}', "it lacks 'partitions'"),
    ],
)
def test_what_is_not_a_plan_is_refused(text, why):
    """The message names the file, what is wrong with it, and how one is made."""
    with pytest.raises(ConfigurationError, match="no plan that can be applied") as refused:
        plan_from_json(text, "the file", SPEC)
    assert why in refused.value.what
    assert "backfill-assets plan" in refused.value.remedy


@pytest.mark.parametrize("name", ["table", "config", "partitions", "facts"])
def test_a_plan_that_somebody_edited_is_refused(world, name):
    """What it does is in its id: another action, another partition, another config is another plan."""
    body = json.loads(plan_of(world).to_json())
    edited = {
        "table": "bronze/others",
        "config": {**body["config"], "allow_shrink": True},
        "partitions": body["partitions"][:-1],
        "facts": {**body["facts"], "code_version": "other"},
    }
    with pytest.raises(ConfigurationError, match="somebody has changed it"):
        plan_from_json(json.dumps({**body, name: edited[name]}), "plan.json", SPEC)


def change(world, what):
    """Make one change, and return the spec and the code version afterwards."""
    spec, code = world.spec, "code"
    match what:
        case "nothing":
            pass
        case "another partition was written":
            world.run(KEYS[1:2], rewrite_identical=True, code_version="code")
        case "the transform, or the spec":
            code = "other"
        case "a column was added":
            spec, code = (
                spec_with(
                    live=LIVE,
                    latest_wins_by=["updated_at"],
                    columns={**SPEC.model_dump(mode="json", exclude_unset=True)["columns"], "note": "string"},
                ),
                "other",
            )
        case "a guard of the spec":
            spec = spec_with(live=LIVE, latest_wins_by=["updated_at"], max_shrink=0.9)
        case "a partition's files":
            world.source.files[KEYS[0]] = orders_of(world.spec, KEYS[0], 5)
        case "a partition was published by another run":
            world.run(KEYS[2:3], code_version="code")
        case "somebody wrote rows to a partition":
            world.lake.commit_as_somebody_else({KEYS[3]: orders_of(world.spec, KEYS[3], 2)})
        case "somebody changed rows of a partition":
            world.lake.commit_as_somebody_else({KEYS[2]: orders_of(world.spec, KEYS[2], amount=99)})
        case "a late row came":
            world.lake.late_rows = orders_of(world.spec, KEYS[0], 1)
        case "what the launch would do with a partition":
            world.source.complete_until_utc = world.spec.grid.partition(KEYS[3]).window.end_utc
        case _:
            raise AssertionError(what)
    return spec, code


@pytest.mark.parametrize(
    "row", [row for row in cases_of(drift) if "fence" not in row["changed since"]], ids=lambda row: row["changed since"]
)
def test_what_has_changed_since_is_named(world, row):
    """Every row of the table in `drift` holds, those of the fence in a test with one."""
    plan = plan_of(world)
    spec, code = change(world, row["changed since"])
    found = drift(plan, spec, forecast_of(world, [one.partition.key for one in plan.written], spec), code)
    named = {one.split()[0].rstrip(":,") for one in found}
    assert named == ({*row["named"].split(", ")} if row["named"] != "-" else set())


def test_what_somebody_else_has_published_is_no_change_of_its_source(world):
    """A launch of what is missing does not survey it any more; that it is there is named, and no source is blamed."""
    plan = replace(plan_of(world), partitions=forecast_of(world, only="missing").partitions)
    assert KEYS[0] in {one.partition.key for one in plan.written}
    world.run(KEYS[:1], code_version="code")
    now = forecast_of(world, [one.partition.key for one in plan.written], only="missing")
    assert drift(plan, world.spec, now, "code") == [
        f"table, partition {KEYS[0]}: it was published since, as its source has it"
    ]


def test_a_fence_that_moved_is_named(world):
    """And each partition that belongs to the stream now."""
    plan = plan_of(world)
    now = forecast_of(world, [one.partition.key for one in plan.written])
    moved = replace(
        now,
        partitions=(*now.partitions[:-1], replace(now.partitions[-1], action=Action.LEFT_OUT, why="it is live")),
        fence=Fence(datetime(2024, 3, 1, tzinfo=UTC)),
    )
    found = drift(plan, world.spec, moved, "code")
    assert {one.split()[0].rstrip(":,") for one in found} == {"fence", "partition"}
