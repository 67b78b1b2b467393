"""What a reason suggests, and where a plan does something else."""

from __future__ import annotations

import pytest

from backfill_assets.core.history.advice import advice_on
from backfill_assets.core.history.forecast import Action, PartitionForecast
from backfill_assets.core.history.plan_document import PlanDocument
from backfill_assets.core.history.reasons import SCOPES, ReasonKind
from tests.core.spec.specs import spec

DATABASE = {"kind": "jdbc", "connection": "SHOP", "table": "public.orders"}


def told(reason, *, of=None, days=(1, 2), action=Action.CREATE, only="all", **more):
    """Return what is said of a plan of some days of January."""
    of = of or spec()
    forecasts = [PartitionForecast(of.grid.partition(f"2024-01-{day:02d}"), action, "") for day in days]
    plan = PlanDocument(of.key, tuple(forecasts), {"reason": reason, "only": only}, {})
    return list(advice_on(plan, of, **{"below": [], "are_named": False, **more}))


@pytest.mark.parametrize(
    ("reason", "begins"), [("", "No reason is given: "), ("because", "`because` begins with no kind")]
)
def test_without_a_kind_the_kinds_are_named(reason, begins):
    """They are what somebody can choose from."""
    (said,) = told(reason)
    assert said.startswith(begins)
    assert all(f"`{kind}`" in said for kind in ReasonKind)


@pytest.mark.parametrize("kind", ReasonKind)
def test_each_kind_suggests_its_scope(kind):
    """In the words of the page, whatever stands behind a colon."""
    assert told(f"{kind}: and why")[0] == f"`{kind}` suggests to launch {SCOPES[kind]}."


@pytest.mark.parametrize(
    ("reason", "plan", "hint"),
    [
        ("new data", {"days": (2, 3)}, "This plan begins at `2024-01-02`, and the table at `2024-01-01`."),
        ("new data", {}, None),
        ("outage", {"action": Action.IDENTICAL}, "2 partitions of this plan are up to date: `--only missing` leaves"),
        (
            "logic changed",
            {"published": ["2024-01-02", "2024-01-03"]},
            "1 partitions behind `2024-01-02` are published",
        ),
        ("logic changed", {"published": ["2024-01-02", "of another grain"]}, None),
        ("bad upstream", {"below": ["silver/a", "silver/b"]}, "Of it are made: `silver/a`, `silver/b`."),
        ("bad upstream", {"below": ["silver/a"], "are_named": True}, None),
    ],
)
def test_where_a_plan_does_something_else_it_is_said(reason, plan, hint):
    """Only then."""
    _, *hints = told(reason, **plan)
    assert [found.startswith(hint) for found in hints] == [True] if hint else hints == []


def test_of_a_database_each_kind_has_its_backfill():
    """With the command; by modified time where the spec names its column."""
    of = spec(source=DATABASE)
    commands = {kind: told(kind, of=of)[1] for kind in ReasonKind}
    assert "`backfill-assets reset bronze/orders`" in commands[ReasonKind.SCHEMA_CHANGED]
    assert "--partition-range A...B" in commands[ReasonKind.OUTAGE]
    assert "--keys A...B" in commands[ReasonKind.BAD_UPSTREAM]
    assert "`backfill-assets gaps bronze/orders -o plan.json`" in commands[ReasonKind.SOURCE_CHANGED]
    assert len(told("", of=of)) == 1 + len(ReasonKind)
    (_, timed) = told("source changed", of=spec(source={**DATABASE, "modified_at": "updated_at"}))
    assert "--modified-since T" in timed
