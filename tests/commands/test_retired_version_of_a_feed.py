"""A version of a table that follows a database is retired: nothing that has landed is given up with it, or it is said."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backfill_assets import TableSpec, build_lakehouse_table, lakehouse_definitions
from backfill_assets.runs.resources import Lakehouse
from tests.commands.places import Place, new_place
from tests.commands.test_version_of_a_feed import FIRST, SECOND, copied_definitions, copying, make_hole
from tests.commands.versions import run
from tests.live.changes.test_excluded import customer
from tests.live.changes.test_lacking import lacking_although_away
from tests.live.changes.test_modes import take_back
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
        assert (told[SECOND]["problem"], told[SECOND]["following"]) == ("", f"version make {SECOND}")
    world.land()
    assert len(published_keys(world.launch())) == 5
    for step in ("make", "copy", "cutover"):
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
    run(place, "copy", SECOND, definitions=both())
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


def days_of_a_feed() -> tuple[datetime, str, str]:
    """Return when a feed began, and the two days since: each begins after it, and is launched by `live` alone."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    yesterday = today - timedelta(days=1)
    return yesterday - timedelta(hours=1), f"{yesterday:%Y-%m-%d}", f"{today:%Y-%m-%d}"


@pytest.mark.prove
def test_a_day_that_live_has_not_launched_yet_is_not_given_up_with_a_version(spark, tmp_path):
    """Its row has landed, and is in no partition: neither in the first version's nor, for that reason, in the copy's."""
    begun, yesterday, today = days_of_a_feed()
    place, world, definitions = live_and_launched(spark, tmp_path, begun=begun)
    for step in ("make", "copy", "cutover"):
        run(place, step, SECOND, definitions=definitions())
    world.execute(customer(900, yesterday))
    world.land()
    told = {one["key"]: one for one in run(place, "status", definitions=definitions())["versions"]}
    assert "\n1 partitions lack changes, the oldest for " in told[FIRST]["live"], "of today, nobody knows of any"
    refused = refused_to_retire(place, definitions)
    said = (
        f"2 partitions of `{FIRST}`, `{yesterday}` to `{today}`, lack changes that have landed, or rows that were never"
    )
    assert said in refused
    with world.capturing():
        world.launch_now(world.spec.grid.between(yesterday, today))
    run(place, "copy", SECOND, definitions=definitions())
    run(place, "retire", FIRST, "--yes", FIRST, definitions=definitions(is_retired=True))
    assert multiset(rows_in(f"{place.lake.root}/tables/{SECOND}"), COLUMNS) == world.rows()


def test_a_day_that_was_not_launched_before_another_feed_is_not_given_up_with_a_version(spark, tmp_path):
    """The new feed has no change of it, be its row in the feed before or in the hole, and no launch has read it."""
    begun, yesterday, today = days_of_a_feed()
    place, world, definitions = live_and_launched(spark, tmp_path, begun=begun)
    world.execute(customer(900, yesterday))
    world.land()
    assert world.source.reader.read()
    make_hole(world, customer(901, today))
    assert world.source.reader.read(is_new_feed=True)
    world.launch()
    assert lacking_although_away(world.refresh()) is not None, "the two days"
    for step in ("make", "copy", "cutover"):
        run(place, step, SECOND, definitions=definitions())
    told = {one["key"]: one for one in run(place, "status", definitions=definitions())["versions"]}
    assert "\n2 partitions lack changes, the oldest for " in told[FIRST]["live"]
    said = f"2 partitions of `{FIRST}`, `{yesterday}` to `{today}`, lack changes that have landed, or were missed between two"
    assert said in refused_to_retire(place, definitions)
    with world.capturing():
        done = world.refresh().once()
        assert published_keys(done.outcomes) == [yesterday, today]
        assert world.refresh().once().lacking_since is None
    run(place, "copy", SECOND, definitions=definitions())
    run(place, "retire", FIRST, "--yes", FIRST, definitions=definitions(is_retired=True))
    assert multiset(rows_in(f"{place.lake.root}/tables/{SECOND}"), COLUMNS) == world.rows()


def begin_anew(place: Place, world: World, definitions: Callable[..., Any]) -> None:
    """Lose a change of the first version's feed, and go on behind it."""
    make_hole(world, "UPDATE customers SET balance = 7 WHERE id = 100")
    assert place.run("live", FIRST, "--once", "--new-stream", definitions=definitions()).exit_code == 0


@pytest.mark.prove
def test_what_was_missed_between_two_feeds_is_not_given_up_with_a_version(spark, tmp_path):
    """All that another feed has brought may lack something, whether or not it was touched since."""
    place, world, definitions = live_and_launched(spark, tmp_path)
    for step in ("make", "copy", "cutover"):
        run(place, step, SECOND, definitions=definitions())
    begin_anew(place, world, definitions)
    told = {one["key"]: one for one in run(place, "status", definitions=definitions())["versions"]}
    assert "\n5 partitions lack changes, the oldest for " in told[FIRST]["live"]
    said = f"5 partitions of `{FIRST}`, `2024-01-01` to `2024-01-05`, lack changes that have landed, or were missed between"
    assert said in refused_to_retire(place, definitions)
    world.launch()
    run(place, "copy", SECOND, definitions=definitions())
    run(place, "retire", FIRST, "--yes", FIRST, definitions=definitions(is_retired=True))
    assert multiset(rows_in(f"{place.lake.root}/tables/{SECOND}"), COLUMNS) == world.rows()


@pytest.mark.prove
def test_what_was_taken_back_is_not_given_up_with_a_version(spark, tmp_path):
    """A launch that an undo has taken back to what another feed had brought, and one to nothing, with a row since."""
    place, world, definitions = live_and_launched(spark, tmp_path)
    begin_anew(place, world, definitions)
    world.launch(world.partitions[:4])
    (fifth,) = world.launch(world.partitions[4:], run_id="fifth")
    sixth_day = world.spec.grid.between("2024-01-06", "2024-01-06")
    (sixth,) = world.launch(sixth_day, run_id="sixth")
    for launched in (sixth, fifth):
        take_back(world, launched)
    assert world.refresh().once().lacking_since is not None, "what the hole had is not there again"
    for step in ("make", "copy", "cutover"):
        run(place, step, SECOND, definitions=definitions())
    world.execute(customer(900, "2024-01-06"))
    world.land()
    assert f"2 partitions of `{FIRST}`, `2024-01-05` to `2024-01-06`, lack " in refused_to_retire(place, definitions)
    world.launch([world.partitions[4], *sixth_day])
    world.execute(customer(901, "2124-02-03"))
    world.land()
    run(place, "copy", SECOND, definitions=definitions())
    told = run(place, "retire", FIRST, "--yes", FIRST, definitions=definitions(is_retired=True))
    assert (
        told["left_to_do"][0]
        == "Rows have landed of time to come, `2124-02-03` to `2124-02-03`: no copy will have them."
    )


def test_a_day_that_began_after_the_first_feed_is_no_past_of_another_one(spark, tmp_path):
    """`live` launches it by itself, whichever feed brings its rows by now."""
    world = new_world(spark, tmp_path)
    world.land()
    world.begin_feed(datetime(2024, 1, 5, 23, tzinfo=UTC))
    assert len(published_keys(world.launch())) == 5
    make_hole(world, "INSERT INTO customers VALUES (900, 'new', 1, NULL, TRUE, '2024-01-06 05:00Z')")
    assert world.source.reader.read(is_new_feed=True)
    refresh = world.refresh()
    refresh.now = refresh.source.now = lambda: datetime(2024, 1, 6, 12, tzinfo=UTC)
    with world.capturing():
        assert published_keys(refresh.once().outcomes) == ["2024-01-06"]


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
        for step in ("make", "copy", "cutover"):
            run(place, step, key, definitions=all_three(is_retired=False))
    refused = run(place, "retire", SECOND, "--yes", SECOND, code=2, definitions=all_three(is_retired=True))
    assert f"`{SECOND}` is a copy of `{FIRST}`, which goes on" in " ".join(refused.split())


@pytest.mark.prove
def test_what_was_taken_back_before_another_feed_is_not_given_up_with_a_version(spark, tmp_path):
    """A first launch, undone to nothing, whose row was changed in the feed before: no change of the new one tells of it."""
    place, world, definitions = live_and_launched(spark, tmp_path)
    sixth_day = world.spec.grid.between("2024-01-06", "2024-01-06")
    world.execute(customer(900, "2024-01-06"))
    (sixth,) = world.launch(sixth_day, run_id="sixth")
    take_back(world, sixth)
    for _ in range(2):  # all of it is in the one before
        begin_anew(place, world, definitions)
    world.launch()
    for step in ("make", "copy", "cutover"):
        run(place, step, SECOND, definitions=definitions())
    said = f"1 partitions of `{FIRST}`, `2024-01-06` to `2024-01-06`, lack changes that have landed, or were missed between"
    assert said in refused_to_retire(place, definitions)
    told = place.run(
        "version", "retire", FIRST, "--yes", FIRST, "--except", "it is gone", definitions=definitions(is_retired=True)
    )
    assert told.exit_code == 0, told.stderr
    assert "Given up: 1 partitions, `2024-01-06` to `2024-01-06`, lack changes" in " ".join(told.stderr.split())
    noted = place.run("history", FIRST, "--json", definitions=definitions()).stdout
    assert '"it is gone"' in noted, "why"
    assert "1 partitions, `2024-01-06` to `2024-01-06`, lack changes" in noted, "and what"


@pytest.mark.prove
def test_a_version_whose_feed_cannot_be_read_is_given_up_for_a_reason(spark, tmp_path):
    """Nobody knows what it lacks; that its rows are elsewhere, somebody has to say."""
    place, world, definitions = live_and_launched(spark, tmp_path)
    for step in ("make", "copy", "cutover"):
        run(place, step, SECOND, definitions=definitions())
    make_hole(world, "UPDATE customers SET balance = 7 WHERE id = 100")
    refused = refused_to_retire(place, definitions)
    assert "the files of the feed have a hole" in refused
    assert "If that cannot be, `--except` gives up what nobody can see." in refused
    options = ("--yes", FIRST, "--except", "it was compared by hand")
    told = place.run("version", "retire", FIRST, *options, definitions=definitions(is_retired=True))
    assert told.exit_code == 0, told.stderr
    assert "Given up: what nobody can see: `bronze/customers`: the files of the feed have a hole" in " ".join(
        told.stderr.split()
    )
