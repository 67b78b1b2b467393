"""Versions of a table that follows a database: what the feed has landed is given up with none of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backfill_assets import TableSpec, build_lakehouse_table, lakehouse_definitions
from backfill_assets.core.live.feed import FeedFile
from backfill_assets.runs.resources import Lakehouse
from tests.commands.places import Place, new_place
from tests.commands.versions import run
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


@pytest.mark.prove
@pytest.mark.parametrize("backfill", ["automatic", "manual", "excluded"])
def test_a_version_that_follows_needs_a_writer(tmp_path, monkeypatch, backfill):
    """The command that starts it comes next; nothing is launched that it brings by itself, or that no launch may read."""
    monkeypatch.delenv("SHOP", raising=False)
    first = customers_spec("SHOP", "shop", changes={"backfill": backfill})
    both = lakehouse_definitions(
        build_lakehouse_table(first),
        build_lakehouse_table(following(first, backfill)),
        lakehouse=Lakehouse(root=str(tmp_path / "lake")),
    )
    place = new_place(tmp_path)
    found = run(place, "deploy", SECOND, "--check", code=1, definitions=both)
    assert [words.partition("    #")[0] for words in found["next"]] == [
        f"backfill-assets live {SECOND}",
        f"backfill-assets version deploy {SECOND}",
    ]
    said = run(place, "deploy", SECOND, code=2, definitions=both)
    assert ("`SHOP`" in said, f"`{FIRST}` was not made" in said) == (backfill == "manual", backfill != "manual"), said


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

    on_both("deploy", SECOND, "--empty")
    with world.capturing():
        on_both("deploy", SECOND)
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


@pytest.mark.prove
def test_a_version_whose_feed_has_a_hole_may_be_left(spark, tmp_path):
    """It is no reason to stay there; and nobody goes back to it as if it were whole."""
    world, on_both = followed_twice(spark, tmp_path)
    assert [on_both("live", key)[0] for key in (FIRST, SECOND)] == [0, 0]
    make_hole(world, "UPDATE customers SET balance = balance WHERE id = 2")
    assert [on_both("live", key)[0] for key in (FIRST, SECOND)] == [2, 2]
    exit_code, said = on_both("live", SECOND, "--new-stream")
    assert exit_code == 0, said
    (found,) = on_both("deploy", SECOND, "--check", "--patience", "0")["compared"]
    assert found["not_followed"] == {FIRST: [], SECOND: []}, "nothing comes into either"
    with world.capturing():
        on_both("deploy", SECOND)
    (found,) = on_both("deploy", SECOND, "--check", "--patience", "0")["compared"]
    assert found["not_followed"].pop(SECOND) == []
    assert found["not_followed"][FIRST][:5] == list(DAYS)
    on_both("cutover", SECOND, "--patience", "0")
    refused = " ".join(str(on_both("rollback", SECOND, "--patience", "0", code=2)).split())
    assert f"partitions of `{FIRST}`, `{DAYS[0]}` to " in refused
    assert "until they are launched, or their feed can be read on" in refused
