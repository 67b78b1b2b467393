"""Versions of a table that follows a database: what the feed has landed is given up with none of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backfill_assets import TableSpec, build_lakehouse_table, lakehouse_definitions
from backfill_assets.core.live.feed import FeedFile
from backfill_assets.live.changes.at_one_position import AtOnePosition
from backfill_assets.runs.resources import Lakehouse
from tests.commands.places import Place, new_place
from tests.commands.versions import run
from tests.live.changes.test_at_one_position import differing, versions_of
from tests.live.changes.world import COLUMNS, DAYS, World, customers_spec, new_world
from tests.support.shop import published_keys

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

FIRST, SECOND = "bronze/customers", "bronze/customers__v2"


def copying(first: TableSpec, *, is_retired: bool = False) -> TableSpec:
    """Customers by month, with wider amounts, copied from the first version, which alone follows the database."""
    facts = first.model_dump(mode="json", exclude_unset=True, exclude={"changes"})
    facts |= {"key": SECOND, "grain": "monthly", "columns": {**COLUMNS, "balance": "decimal(20,4)"}}
    facts |= {"source": {"kind": "version", "table": FIRST}}
    return TableSpec.model_validate(
        facts | {"version_of": {"table": FIRST, "cast": ["balance"], "retired": is_retired}}
    )


def copied_definitions(world: World, place: Place) -> Callable[..., Any]:
    """Return what makes definitions of both, of which the second says or not that it copies no more."""

    def both(*, is_retired: bool = False) -> Any:
        second = copying(world.spec, is_retired=is_retired)
        return lakehouse_definitions(
            build_lakehouse_table(world.spec),
            build_lakehouse_table(second, inputs={FIRST: world.spec}),
            lakehouse=Lakehouse(root=str(place.lake.root)),
        )

    return both


def following(first: TableSpec, backfill: str) -> TableSpec:
    """Customers by month, which follow the database as the first version does."""
    facts = first.model_dump(mode="json", exclude_unset=True)
    facts |= {"key": SECOND, "grain": "monthly", "version_of": {"table": FIRST}}
    return TableSpec.model_validate(facts | {"changes": {"capture": facts["changes"]["capture"], "backfill": backfill}})


@pytest.mark.parametrize(("backfill", "is_copied"), [("automatic", False), ("manual", True), ("excluded", False)])
def test_what_to_type_for_a_version_that_follows(tmp_path, backfill, is_copied):
    """Its own writer is started; nothing is to be copied that it brings by itself, or that no launch may read."""
    first = customers_spec("SHOP", "shop", changes={"backfill": backfill})
    both = lakehouse_definitions(
        build_lakehouse_table(first),
        build_lakehouse_table(following(first, backfill)),
        lakehouse=Lakehouse(root=str(tmp_path / "lake")),
    )
    commands = run(new_place(tmp_path), "plan", SECOND, definitions=both)["commands"]
    steps = [
        "version make",
        f"live {SECOND}",
        *(["version copy"] if is_copied else []),
        "version compare",
        "version cutover",
    ]
    assert len(commands) == len(steps)
    assert [
        step for step, command in zip(steps, commands, strict=True) if not command.startswith(f"backfill-assets {step}")
    ] == []


def followed_twice(spark, tmp_path: Path) -> tuple[World, Callable[..., Any]]:
    """Return customers of which both versions were launched, and what runs a command of `version` on both."""
    place = new_place(tmp_path)
    world = new_world(spark, place.lake.root)
    world.land()
    assert len(published_keys(world.launch())) == 5
    definitions = lakehouse_definitions(
        build_lakehouse_table(world.spec),
        build_lakehouse_table(following(world.spec, "manual")),
        lakehouse=Lakehouse(root=str(place.lake.root)),
    )

    def on_both(*arguments: str, code: int = 0) -> Any:
        if arguments[0] == "live":
            result = place.run(*arguments, "--once", definitions=definitions)
            return (result.exit_code, " ".join(result.stderr.split()))
        return run(place, *arguments, code=code, definitions=definitions)

    on_both("make", SECOND)
    with world.capturing():
        on_both("copy", SECOND)
    return world, on_both


def make_hole(world: World, statement: str, reads: Callable[[], object] = lambda: None) -> None:
    """Land two changes, let somebody read them, and take away all but the second: nobody else has read the first."""
    for each in (statement, "UPDATE customers SET balance = balance WHERE id = 1"):
        world.execute(each)
        world.land()
    reads()
    *gone, _ = sorted(file for path in world.folder.iterdir() if (file := FeedFile.named(path.name)))
    for file in gone:
        (world.folder / file.name).unlink()


def test_versions_are_compared_though_their_feed_has_a_hole(spark, tmp_path):
    """What both have is compared as it is, the hole is named, and equal rows of a table that nothing follows are told apart."""
    world, on_both = followed_twice(spark, tmp_path)
    assert on_both("live", SECOND)[0] == 0
    make_hole(world, "UPDATE customers SET balance = 2 WHERE id = 1", lambda: on_both("live", FIRST))
    world.execute("UPDATE customers SET balance = 3 WHERE id = 2")
    world.land()
    assert on_both("live", FIRST)[0] == 0
    (found,) = on_both("compare", SECOND, "--wait", "0", code=1)["tables"]
    assert [(day["day"], day["only_before"], day["only_new"]) for day in found["differing"]] == [("2024-01-01", 2, 2)]
    assert found["not_followed"] == {FIRST: [], SECOND: ["2024-01-01"]}
    world.execute("UPDATE customers SET balance = id WHERE id < 3")
    world.land()
    assert on_both("live", FIRST)[0] == 0
    (found,) = on_both("compare", SECOND, "--wait", "0", code=1)["tables"]
    assert (found["differing"], found["equal"]) == ([], False), "the hole is in the feed of the new one"
    refused = " ".join(str(on_both("cutover", SECOND, "--wait", "0", code=2)).split())
    assert "no change of the database comes into 1 partitions of `bronze/customers__v2`" in refused


@pytest.mark.prove
def test_a_version_whose_feed_has_a_hole_may_be_left(spark, tmp_path):
    """It is no reason to stay there; and nobody goes back to it as if it were whole."""
    world, on_both = followed_twice(spark, tmp_path)
    assert [on_both("live", key)[0] for key in (FIRST, SECOND)] == [0, 0]
    make_hole(world, "UPDATE customers SET balance = balance WHERE id = 2")
    assert [on_both("live", key)[0] for key in (FIRST, SECOND)] == [2, 2]
    exit_code, said = on_both("live", SECOND, "--new-stream")
    assert exit_code == 0, said
    (found,) = on_both("compare", SECOND, "--wait", "0")["tables"]
    assert found["not_followed"] == {FIRST: [], SECOND: []}, "nothing comes into either"
    with world.capturing():
        on_both("copy", SECOND)
    (found,) = on_both("compare", SECOND, "--wait", "0")["tables"]
    assert found["not_followed"].pop(SECOND) == []
    assert found["not_followed"][FIRST][:5] == list(DAYS)
    on_both("cutover", SECOND, "--wait", "0")
    refused = " ".join(str(on_both("rollback", SECOND, "--wait", "0", code=2)).split())
    assert f"partitions of `{FIRST}`, `{DAYS[0]}` to " in refused
    assert "until they are launched, or their feed can be read on" in refused


def test_a_version_that_other_code_has_made_is_waited_for(spark, tmp_path, monkeypatch):
    """Where the database is never read, a refresh folds the whole feed anew after a change of the code: not yet done."""
    place = new_place(tmp_path)
    world = new_world(spark, place.lake.root, changes={"backfill": "excluded"})
    world.land()
    world.execute("UPDATE customers SET balance = 7 WHERE id = 1")
    world.land()

    def both(zone: str) -> Any:
        facts = world.spec.model_dump(mode="json", exclude_unset=True)
        facts["source"] |= {"timestamps_without_zone": zone}
        return lakehouse_definitions(
            build_lakehouse_table(TableSpec.model_validate(facts)),
            build_lakehouse_table(following(world.spec, "excluded")),
            lakehouse=Lakehouse(root=str(place.lake.root)),
        )

    has_come, wait = list[bool](), AtOnePosition.wait
    monkeypatch.setattr(AtOnePosition, "wait", lambda *args: has_come.append(wait(*args)) or has_come[-1])
    run(place, "make", SECOND, definitions=both("UTC"))
    for key in (FIRST, SECOND):
        assert place.run("live", key, "--once", definitions=both("UTC")).exit_code == 0
    for zone in ("UTC", "Europe/Berlin"):
        run(place, "compare", SECOND, "--wait", "0", definitions=both(zone))
    assert has_come == [True, True, False, False, False], "before what is read, and after it"


@pytest.mark.prove
def test_a_day_that_begins_while_they_are_compared_is_no_difference(spark, tmp_path):
    """Each launches it in its own turn, the first one before it is read, and the second one a moment later."""
    versions = versions_of(new_world(spark, tmp_path), grain="daily")
    versions.first.land()
    for world in versions.both:
        world.begin_feed(datetime(2024, 1, 5, 23, tzinfo=UTC))
        assert published_keys(world.launch()) == list(DAYS)
    sixth, its_sixth = (world.spec.grid.between("2024-01-06", "2024-01-06") for world in versions.both)

    def begin() -> None:
        versions.first.execute("INSERT INTO customers VALUES (900, 'new', 1, NULL, TRUE, '2024-01-06 05:00Z')")
        versions.first.launch(sixth)

    found = versions.compared(begin, later=lambda: versions.second.launch(its_sixth))
    assert (differing(found), versions.waits) == ({}, 3)
    assert found.is_equal


@pytest.mark.prove
def test_a_past_that_is_still_to_be_loaded_is_not_given_up_with_a_version(spark, tmp_path):
    """`automatic` loads it in its own turn: a copy that was made before has only what was there."""
    place = new_place(tmp_path)
    world = new_world(spark, place.lake.root, changes={"backfill": "automatic"})
    world.land()
    assert world.source.reader.read()
    assert len(published_keys(world.launch(world.partitions[3:]))) == 2
    definitions = copied_definitions(world, place)
    for step in ("make", "copy", "cutover"):
        run(place, step, SECOND, definitions=definitions())
    refused = run(place, "retire", FIRST, "--yes", FIRST, code=2, definitions=definitions(is_retired=True))
    said = " ".join(refused.split())
    assert f"partitions of `{FIRST}`, `2024-01-01` to " in said
    assert "or rows that were never read from its database, and" in said
