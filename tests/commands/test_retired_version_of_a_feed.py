"""A version of a table that follows a database is retired: nothing that has landed is given up with it, or it is said."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from backfill_assets import TableSpec, build_lakehouse_table, lakehouse_definitions
from backfill_assets.runs.resources import Lakehouse
from tests.commands.places import Place, new_place
from tests.commands.test_version_of_a_feed import FIRST, SECOND, copied_definitions, copying, make_hole
from tests.commands.versions import run
from tests.live.changes.world import COLUMNS, World, new_world
from tests.support.shop import multiset, published_keys, rows_in

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

THIRD = "bronze/customers__v3"


@pytest.mark.prove
def test_changes_that_wait_are_not_given_up_with_a_version(spark, tmp_path, monkeypatch):
    """They have landed for the first one, and its copy follows nothing else: they would be in no table, and nobody told."""
    place = new_place(tmp_path)
    world = new_world(spark, place.lake.root)

    both = copied_definitions(world, place)
    with monkeypatch.context() as unset:
        unset.delenv(world.spec.source.variables[0])
        told = {one["key"]: one for one in run(place, "status", definitions=both())["versions"]}
        assert "to hold the address of its database" in told[FIRST]["problem"], "and the others are told of"
        assert (told[SECOND]["problem"], told[SECOND]["following"]) == ("", f"version deploy {SECOND}")
    world.land()
    assert len(published_keys(world.launch())) == 5
    for step in ("deploy", "cutover"):
        run(place, step, SECOND, definitions=both())
    world.execute("UPDATE customers SET balance = 5 WHERE id = 1", "DELETE FROM customers WHERE id = 2")
    time.sleep(2)
    world.land()

    def retire(code: int) -> str:
        told = run(place, "retire", FIRST, "--yes", FIRST, code=code, definitions=both(is_retired=True))
        return " ".join(str(told).split())

    told = {one["key"]: one for one in run(place, "status", definitions=both())["versions"]}
    assert "\n1 partitions lack changes, the oldest for " in told[FIRST]["live"]
    (looked,) = json.loads(place.run("status", FIRST, "--json", definitions=both()).stdout)["tables"]
    assert "\n1 partitions lack changes, the oldest for " in looked["live"]
    assert 2 < looked["lag"]["seconds"] < looked["lag"]["most_seconds"] == 900, "since it was changed"
    refused = retire(2)
    assert (
        f"1 partitions of `{FIRST}`, `2024-01-01` to `2024-01-01`, lack changes that have landed, and `{SECOND}`"
        in refused
    )
    assert f"`backfill-assets live {FIRST} --once`, a launch of what that leaves out, then `backfill-assets" in refused
    assert place.run("live", FIRST, "--once", definitions=both()).exit_code == 0
    assert "1 of its partitions" in retire(2)
    run(place, "deploy", SECOND, definitions=both())
    assert "`_changes`" in retire(0), "its folder is to be removed too"
    assert multiset(rows_in(f"{place.lake.root}/tables/{SECOND}"), COLUMNS) == world.rows()
    refused = place.run("live", FIRST, "--once", definitions=both(is_retired=True))
    assert (refused.exit_code, "is a version that was retired" in " ".join(refused.stderr.split())) == (2, True)


def live_and_launched(
    spark, tmp_path: Path, *, begun: datetime | None = None
) -> tuple[Place, World, Callable[..., Any]]:
    """Return customers of which the first version follows and is launched, and what makes the definitions of both.

    Args:
        begun: When its feed is to have begun; without it, now.
    """
    place = new_place(tmp_path)
    world = new_world(spark, place.lake.root)
    world.land()
    definitions = copied_definitions(world, place)
    if begun:
        world.begin_feed(begun)
    else:
        assert place.run("live", FIRST, "--once", definitions=definitions()).exit_code == 0
    assert len(published_keys(world.launch())) == 5
    return place, world, definitions


def refused_to_retire(place: Place, definitions: Callable[..., Any]) -> str:
    """Return why the first version is not retired."""
    retired = definitions(is_retired=True)
    return " ".join(run(place, "retire", FIRST, "--yes", FIRST, code=2, definitions=retired).split())


def begin_anew(place: Place, world: World, definitions: Callable[..., Any]) -> None:
    """Lose a change of the first version's feed, and go on behind it."""
    make_hole(world, "UPDATE customers SET balance = 7 WHERE id = 100")
    assert place.run("live", FIRST, "--once", "--new-stream", definitions=definitions()).exit_code == 0


@pytest.mark.prove
def test_what_was_missed_between_two_feeds_is_not_given_up_with_a_version(spark, tmp_path):
    """All that another feed has brought may lack something, whether or not it was touched since."""
    place, world, definitions = live_and_launched(spark, tmp_path)
    for step in ("deploy", "cutover"):
        run(place, step, SECOND, definitions=definitions())
    begin_anew(place, world, definitions)
    told = {one["key"]: one for one in run(place, "status", definitions=definitions())["versions"]}
    assert "\n5 partitions lack changes, the oldest for " in told[FIRST]["live"]
    said = f"5 partitions of `{FIRST}`, `2024-01-01` to `2024-01-05`, lack changes that have landed, or were missed between"
    assert said in refused_to_retire(place, definitions)
    world.launch()
    run(place, "deploy", SECOND, definitions=definitions())
    run(place, "retire", FIRST, "--yes", FIRST, definitions=definitions(is_retired=True))
    assert multiset(rows_in(f"{place.lake.root}/tables/{SECOND}"), COLUMNS) == world.rows()


@pytest.mark.prove
def test_a_copy_is_not_retired_before_what_it_copies(spark, tmp_path):
    """What comes into the first version would come into no later one any more, and nobody would be told."""
    place = new_place(tmp_path)
    world = new_world(spark, place.lake.root)
    second = copying(world.spec)
    facts = second.model_dump(mode="json", exclude_unset=True) | {"key": THIRD}
    facts |= {"source": {"kind": "version", "table": SECOND}, "version_of": {"table": FIRST}}

    def all_three(*, is_retired: bool) -> Any:
        third = TableSpec.model_validate(facts | {"version_of": {"table": FIRST, "retired": is_retired}})
        return lakehouse_definitions(
            build_lakehouse_table(world.spec),
            build_lakehouse_table(second, inputs={FIRST: world.spec}),
            build_lakehouse_table(third, inputs={SECOND: second}),
            lakehouse=Lakehouse(root=str(place.lake.root)),
        )

    world.land()
    assert len(published_keys(world.launch())) == 5
    refused = run(place, "retire", SECOND, "--yes", SECOND, code=2, definitions=all_three(is_retired=True))
    assert f"Readers have `{FIRST}`: retire `{THIRD}` first" in " ".join(refused.split())
    for key in (SECOND, THIRD):
        for step in ("deploy", "cutover"):
            run(place, step, key, definitions=all_three(is_retired=False))
    refused = run(place, "retire", SECOND, "--yes", SECOND, code=2, definitions=all_three(is_retired=True))
    assert f"`{SECOND}` is a copy of `{FIRST}`, which goes on" in " ".join(refused.split())
