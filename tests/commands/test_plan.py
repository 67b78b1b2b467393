"""`plan` and `apply`: what a launch would do is known before, and exactly that is done, or nothing."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pytest

from tests.commands.places import Place, below, new_place
from tests.support.launching import ORDERS, TOTALS
from tests.support.shop import multiset, orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAYS = [f"2024-01-0{n}" for n in range(1, 7)]
RANGE = f"{DAYS[0]}...{DAYS[-1]}"
PRICES = "currency: USD\nper_gb: 0.50\nper_hour: 0.14\n"


@pytest.fixture
def place(tmp_path) -> Place:
    return at_first(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Place:
    """A place of which tests only look at what is there."""
    return at_first(tmp_path_factory.mktemp("shared"))


def at_first(root: Path) -> Place:
    """Six days at the source: two published, one corrected since, one that has lost most of its rows, two new."""
    place = new_place(root)
    for day in DAYS:
        place.lake.export(day, orders(day, 4))
    assert place.lake.launch(DAYS[0], DAYS[3]).succeeded
    place.lake.export(DAYS[2], orders(DAYS[2], 4, amount=Decimal("9.99")))
    place.lake.export(DAYS[3], orders(DAYS[3], 1))
    return place


def plan(place: Place, file: Path, *more: str) -> dict[str, Any]:
    result = place.run("plan", ORDERS, "--partition-range", RANGE, "-o", str(file), "--json", *more)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == json.loads(file.read_text())
    return json.loads(result.stdout)


def version(place: Place) -> int:
    return deltalake.DeltaTable(str(place.lake.path())).version()


ACTIONS = ["identical", "identical", "replace", "refused", "create", "create"]


def test_a_plan_is_carried_out_as_it_says(place, tmp_path):
    """Nothing is written by planning; then exactly that is, in a run for each range; a second time nothing is."""
    before = below(place.lake.root)
    made = plan(place, tmp_path / "plan.json", "--reason", "a new export", "--downstream")
    assert below(place.lake.root) == before
    assert [one["action"] for one in made["partitions"]] == ACTIONS
    assert made["launches"] == [[DAYS[2], DAYS[2]], [DAYS[4], DAYS[5]]]
    assert made["downstream"] == {TOTALS: [[DAYS[2], DAYS[2], 1], [DAYS[4], DAYS[5], 2]]}
    assert "`max_shrink` allows 50 %" in made["partitions"][3]["why"]
    assert made["estimate"]["learned_from"] == ORDERS

    applied = place.run("apply", str(tmp_path / "plan.json"), "--json")
    assert applied.exit_code == 0, applied.output
    assert [run["range"] for run in json.loads(applied.stdout)["runs"]] == made["launches"]
    rows = [row for day in (DAYS[0], DAYS[1], DAYS[3], DAYS[4], DAYS[5]) for row in orders(day, 4)]
    assert place.lake.content() == multiset([*rows, *orders(DAYS[2], 4, amount=Decimal("9.99"))])

    after = version(place)
    again = place.run("apply", str(tmp_path / "plan.json"))
    assert again.exit_code == 0, again.output
    assert f"Plan {made['id']} has nothing left to write: 3 of its 3 partitions are published by it." in again.stdout
    assert version(place) == after
    with place.instance() as instance:
        tags = [run.tags for run in instance.get_runs() if run.tags.get("plan") == made["id"]]
    assert sorted(tag["partitions"] for tag in tags) == sorted([DAYS[2], f"{DAYS[4]}...{DAYS[5]}"])
    assert {tag["reason"] for tag in tags} == {"a new export"}


def test_first_load_of_a_table_can_be_planned(tmp_path):
    """The table does not exist when it is planned, nor when the launch begins."""
    place = new_place(tmp_path / "place")
    for day in DAYS:
        place.lake.export(day, orders(day, 4))
    made = plan(place, tmp_path / "plan.json")
    assert {one["action"] for one in made["partitions"]} == {"create"}
    applied = place.run("apply", str(tmp_path / "plan.json"), "--json")
    assert applied.exit_code == 0, applied.output
    assert place.lake.content() == multiset([row for day in DAYS for row in orders(day, 4)])


def update(place: Place, day: str) -> None:
    """Change a row of a day by hand; there are as many as before."""
    table = deltalake.DeltaTable(str(place.lake.path()))
    table.update(predicate=f"dt = '{day}' AND order_id % 4 = 0", updates={"customer": "'corrected by hand'"})


@pytest.mark.prove
def test_what_somebody_changed_after_a_plan_was_carried_out_is_said(place, tmp_path):
    """Its partitions are not called published by it any more, and nothing is written over the change."""
    plan(place, tmp_path / "plan.json")
    assert place.run("apply", str(tmp_path / "plan.json")).exit_code == 0
    update(place, DAYS[2])
    after = version(place)
    refused = place.run("apply", str(tmp_path / "plan.json"))
    assert refused.exit_code == 2, refused.output
    assert (
        f"partition {DAYS[2]}: the plan published it, and somebody else wrote it in version {after}" in refused.stderr
    )
    assert version(place) == after


@pytest.mark.prove
@pytest.mark.parametrize("what", ["source", "row"])
def test_a_plan_that_does_not_hold_any_more_writes_nothing(place, tmp_path, what):
    """What has changed is named, and the table is as it was; an interrupted plan does only what is left."""
    plan(place, tmp_path / "plan.json")
    if what == "source":
        place.lake.export(DAYS[4], orders(DAYS[4], 5))
    else:
        update(place, DAYS[2])
    before = version(place)
    refused = place.run("apply", str(tmp_path / "plan.json"))
    assert refused.exit_code == 2, refused.output
    said = {
        "source": f"source of {DAYS[4]}: it has changed",
        "row": f"table, partition {DAYS[2]}: it was written since; it had 4 rows, now 4",
    }
    assert said[what] in refused.stderr
    assert version(place) == before


def test_what_changes_after_the_check_is_noticed_by_the_launch(place):
    """The launch itself holds source and table against the plan: what was looked at a moment before is not believed."""
    ran = place.lake.launch(DAYS[4], DAYS[5], plan="0123456789ab", planned_state="another state")
    assert not ran.succeeded
    assert "are not what plan `0123456789ab` was made of" in ran.failure
    assert version(place) == 1


@pytest.mark.prove
def test_a_plan_has_the_reason_that_its_table_requires(tmp_path):
    """It is the plan's own: `apply` launches with it."""
    place, file = new_place(tmp_path, reason="required"), str(tmp_path / "plan.json")
    place.lake.export(DAYS[0], orders(DAYS[0]))
    asked = ("plan", ORDERS, "--partition-range", f"{DAYS[0]}...{DAYS[0]}", "-o", file)
    assert place.run(*asked).exit_code == 2
    assert place.run(*asked, "--reason", "new data: the first export").exit_code == 0
    applied = place.run("apply", file)
    assert applied.exit_code == 0, applied.output
    assert place.lake.content() == multiset(orders(DAYS[0]))


@pytest.mark.prove
def test_a_deep_plan_is_certain(place, tmp_path):
    """Rows are read: what is identical was held against the table's own rows, and damage to them is seen."""
    (data,) = place.lake.path().glob(f"dt={DAYS[0]}/*.parquet")
    data.unlink()
    assert [one["action"] for one in plan(place, tmp_path / "quick.json")["partitions"]] == ACTIONS
    deep = plan(place, tmp_path / "deep.json", "--deep")
    found = [one["action"] for one in deep["partitions"]]
    assert (found[0], found[2:]) == ("replace", ACTIONS[2:])
    assert "partition_does_not_shrink" in deep["partitions"][3]["why"]


def test_what_people_read(shared, tmp_path):
    """A line for partitions side by side with the same fate; what it costs; and the cheaper way."""
    (tmp_path / "prices.yaml").write_text(PRICES)
    asked = ("plan", ORDERS, "--partition-range", RANGE, "--prices", str(tmp_path / "prices.yaml"))
    shown = shared.run(*asked).stdout
    for words in (
        "3 of 6 partitions are written (2 created, 1 replaced); 2 are identical, 1 refused, 0 left out.",
        "The cheaper way: 2 partitions are up to date",
        f"launches only {DAYS[2]}, {DAYS[4]}...{DAYS[5]}.",
        "USD, instead of ",
        "No reason is given: a kind suggests what to launch",
    ):
        assert words in shown, shown
    markdown = shared.run(*asked, "--markdown").stdout
    assert f"| {DAYS[4]}...{DAYS[5]} | 2 | create | never published | 0 | 8 | " in markdown
    assert markdown.startswith("### `bronze/orders`: plan `")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("plan", "bronze/others", "--partition-range", RANGE), "There is no table `bronze/others`"),
        (("plan", ORDERS, "--partition-range", RANGE, "--prices", "{wrong}"), "is no price table"),
        (("apply", "{wrong}"), "is no plan that can be applied"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_planned_is_said_in_words(shared, tmp_path, arguments, said):
    """One message, exit code 2, and nothing written."""
    (tmp_path / "wrong").write_text("currency: USD\nper_gb: many\n")
    before = below(shared.lake.root)
    result = shared.run(*(argument.format(wrong=tmp_path / "wrong") for argument in arguments))
    assert (result.exit_code, said in result.stderr) == (2, True), result.output
    assert "Traceback" not in result.output
    assert below(shared.lake.root) == before
