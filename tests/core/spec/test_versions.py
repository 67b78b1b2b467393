"""What a spec says of the version before it: refused where it contradicts itself, and what becomes current together."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from backfill_assets.core.spec.lakehouse import check_together
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.spec.version_sets import (
    VersionPair,
    followed_by,
    left_behind,
    made_of_others,
    made_of_what_goes,
    not_forked,
    pairs_to_switch,
    read_by,
    versions_together,
)
from backfill_assets.core.spec.version_strategy import strategy_of
from backfill_assets.core.spec.versions import is_name, key_of, name_of, number_of
from tests.core.spec.specs import FILES
from tests.core.spec.specs import spec as plain_spec

COLUMNS = {"id": "bigint", "amount": "decimal(18,2)", "at": "timestamp", "note": "string"}


def spec(key: str, source: Any = None, **changes: Any) -> TableSpec:
    facts = {"columns": COLUMNS, "key_columns": ["id"], "event_time": "at", "source": source or FILES}
    return plain_spec(key=key, **{**facts, **changes})


def made_of(*keys: str) -> dict[str, Any]:
    return {"kind": "delta", "tables": list(keys), "transform": "shop.made" if len(keys) > 1 else None}


def problems(*specs: TableSpec) -> list[str]:
    found: list[str] = []
    check_together({one.key: one for one in specs}, lambda key, what: found.append(f"{key}: {what}"))
    return found


@pytest.mark.parametrize(
    ("key", "name", "number"),
    [
        ("b/orders", "b/orders", 1),
        ("b/orders__v2", "b/orders", 2),
        ("b/orders__v10", "b/orders", 10),
        ("b/o__v", "b/o__v", 1),
    ],
)
def test_a_key_says_which_version_it_is(key, name, number):
    """The first has no number; what only looks like one is a name."""
    assert (name_of(key), number_of(key)) == (name, number)
    assert key_of(name, number) == key
    assert is_name(key) == (number == 1)


@pytest.mark.parametrize(
    ("version", "changes", "said"),
    [
        (
            {},
            {"columns": {**COLUMNS, "amount": "decimal(20,4)"}},
            "cast: `amount` is `decimal(20,4)`, and was `decimal(18,2)`",
        ),
        ({"cast": ["amount"]}, {"columns": {**COLUMNS, "amount": "decimal(20,4)"}}, None),
        (
            {},
            {"columns": {k: v for k, v in COLUMNS.items() if k != "note"}},
            "`note` of `b/orders` comes into no column",
        ),
        ({"dropped": ["note"]}, {"columns": {k: v for k, v in COLUMNS.items() if k != "note"}}, None),
        ({"dropped": ["note"]}, {}, "dropped: `note` comes into a column all the same"),
        ({}, {"columns": {**COLUMNS, "channel": "string"}}, "`b/orders` has no column `channel`"),
        ({"new": ["channel"]}, {"columns": {**COLUMNS, "channel": "string"}}, None),
        ({"computed": {"channel": "upper(note)"}}, {"columns": {**COLUMNS, "channel": "string"}}, None),
        ({"renamed": {"note": "remark"}}, {}, "renamed: `b/orders` has no column `remark`"),
        ({"new": ["at"], "dropped": ["at"]}, {}, "`at` says when it happened"),
        ({"cast": ["amunt"]}, {}, "cast: there is no column `amunt`; did you mean `amount`?"),
    ],
)
def test_what_happens_to_each_column_is_said(version, changes, said):
    """A column that is forgotten, or of another type without a word, is refused with the word that is missing."""
    found = problems(spec("b/orders"), spec("b/orders__v2", version_of={"table": "b/orders", **version}, **changes))
    assert bool(found) == bool(said), found
    assert said is None or any(said in one for one in found), found


@pytest.mark.parametrize(
    ("key", "version", "said"),
    [
        ("b/sales", {"table": "b/orders"}, "a new version of `b/orders` is called `b/orders__v2` or higher"),
        ("b/orders__v2", {"table": "b/orders", "before": "b/orders__v3"}, "is no earlier version"),
        ("b/orders__v3", {"table": "b/orders__v2"}, "a new version of"),
        ("b/orders__v2", {"table": "b/orders", "new": ["id"], "renamed": {"id": "x"}}, "two things"),
        ("b/orders__v1", None, "`b/orders__v1` is what a version of `b/orders` is called"),
    ],
)
def test_a_version_has_the_name_of_its_table(key, version, said):
    """And a number behind that of the one before."""
    with pytest.raises(ValidationError, match=said):
        spec(key, version_of=version)


def test_a_source_that_is_a_version_needs_to_know_which():
    """`kind: version` without `version_of`, and one that names another table."""
    with pytest.raises(ValidationError, match="version_of: `kind: version` needs it"):
        spec("b/orders__v2", {"kind": "version", "table": "b/orders"})
    with pytest.raises(ValidationError, match="`b/sales` is no earlier version"):
        spec("b/orders__v2", {"kind": "version", "table": "b/sales"}, version_of={"table": "b/orders"})


FIRST, SECOND = spec("b/orders"), spec("b/orders__v2", version_of={"table": "b/orders"}, time_zone="Europe/Berlin")
COPY = spec("b/orders__v2", {"kind": "version", "table": "b/orders"}, version_of={"table": "b/orders"})


def test_a_table_of_two_versions_is_refused():
    """Directly, and by way of other tables; a version that copies the one before is none."""
    assert not problems(FIRST, COPY)
    both = problems(FIRST, COPY, spec("s/joined", made_of("b/orders", "b/orders__v2")))
    assert any("two versions of one table: what is in both would count twice" in one for one in both)
    by_way = problems(
        FIRST, COPY, spec("s/daily", made_of("b/orders")), spec("g/all", made_of("s/daily", "b/orders__v2"))
    )
    assert any(one.startswith("g/all") and "two versions" in one for one in by_way)
    assert not problems(
        FIRST,
        spec(
            "b/orders__v2",
            {"kind": "version", "table": "b/orders"},
            version_of={"table": "b/orders"},
            time_zone="Europe/Berlin",
        ),
    )


TWO = (
    FIRST,
    COPY,
    spec("s/daily", made_of("b/orders")),
    spec("s/daily__v2", made_of("b/orders__v2"), version_of={"table": "s/daily"}),
)
"""Orders and what is made of them, of each two versions."""


def test_what_becomes_current_together():
    """A version and the versions of all that is made of it, what others are made of first; who is left out is named."""
    specs = {
        one.key: one
        for one in (
            *TWO,
            spec("g/month", made_of("s/daily")),
            spec("g/month__v2", made_of("s/daily__v2"), version_of={"table": "g/month"}),
            spec("g/other", made_of("s/daily")),
            spec("b/rates"),
        )
    }
    pairs = versions_together("b/orders__v2", specs)
    assert pairs == [
        VersionPair("b/orders", "b/orders__v2"),
        VersionPair("s/daily", "s/daily__v2"),
        VersionPair("g/month", "g/month__v2"),
    ]
    assert not_forked(pairs, specs) == ["g/other"]
    assert made_of_others(["s/daily__v2", "g/month__v2"], specs) == {"b/orders": "b/orders__v2"}
    assert read_by("s/daily", specs) == ["g/month", "g/other"]


THREE = {
    one.key: one
    for one in (
        *TWO,
        spec("s/daily__v3", made_of("b/orders__v2"), version_of={"table": "s/daily"}),
    )
}
"""Orders of which there are two versions, and what is made of them: of the second one two."""


@pytest.mark.parametrize(
    ("orders", "daily", "goes_back", "switched"),
    [
        (1, 1, False, "1 to 2"),
        (2, 2, False, "1 to 2"),  # once more, after it was killed
        (2, 3, False, "2 to 3"),
        (2, 2, True, "2 to 1"),
        (2, 3, True, "3 to 2"),
        (1, 1, True, "2 to 1"),
    ],
)
def test_of_several_versions_of_a_table_one_is_switched(orders, daily, goes_back, switched):
    """That which leaves what is current; where the table above was switched before, that which came with it."""
    current = {"b/orders": key_of("b/orders", orders), "s/daily": key_of("s/daily", daily)}
    pairs = versions_together("b/orders__v2", THREE)
    assert len(pairs) == 3
    (first, second) = pairs_to_switch(pairs, current.__getitem__, goes_back=goes_back)
    ends = (second.new, second.before) if goes_back else (second.before, second.new)
    assert (first, " to ".join(str(number_of(key)) for key in ends)) == (pairs[0], switched)


@pytest.mark.parametrize(("daily", "back"), [("s/daily", ["b/orders"]), ("s/daily__v2", ["b/orders", "s/daily"])])
def test_what_never_came_forward_does_not_go_back(daily, back):
    """A table that was left as it was at the cut-over, and got its second version later, is not gone back from."""
    specs = {one.key: one for one in TWO}
    current = {"b/orders": "b/orders__v2", "s/daily": daily}
    pairs = pairs_to_switch(versions_together("b/orders__v2", specs), current.__getitem__, goes_back=True)
    assert [pair.name for pair in pairs] == back


def test_what_is_made_of_a_version_that_goes_does_not_come():
    """One that is made of the second version of the orders is not current beside the first; the first of both are."""
    back = {"b/orders": "b/orders", "s/daily": "s/daily__v2"}
    assert made_of_what_goes(back, THREE) == {"s/daily__v2": "b/orders__v2"}
    assert made_of_what_goes({**back, "s/daily": "s/daily"}, THREE) == {}
    assert made_of_what_goes({"s/daily": "s/daily__v2"}, THREE) == {}, "of what is not switched it may be made"


def test_what_stays_current_is_made_of_nothing_that_goes():
    """The second version of what is made of the orders stays, where the first is not named; what has one version may."""
    current = {"b/orders": "b/orders__v2", "s/daily": "s/daily__v2", "s/other": "s/other"}
    assert left_behind({"b/orders": "b/orders"}, current, THREE) == {"s/daily__v2": "b/orders__v2"}
    assert left_behind({"b/orders": "b/orders", "s/daily": "s/daily"}, current, THREE) == {}
    assert left_behind({"b/orders": "b/orders__v2"}, current, THREE) == {}, "it does not go"


FEED = {"source": {"kind": "jdbc", "connection": "SHOP", "table": "orders"}, "changes": {"capture": "shop"}}
LIVE = {"live": {"path": "events", "starts": "2024-02-01"}, "latest_wins_by": ["at"]}


@pytest.mark.parametrize(
    ("new", "before", "name"),
    [
        (spec("b/orders__v2", version_of={"table": "b/orders"}, **LIVE), spec("b/orders", **LIVE), "own stream"),
        (COPY, spec("b/orders", **LIVE), "copy and follow"),
        (SECOND, spec("b/orders", **LIVE), "frozen"),
        (SECOND, spec("b/orders", **FEED), "frozen"),
        (spec("b/orders__v2", version_of={"table": "b/orders"}, **FEED), spec("b/orders", **FEED), "own feed"),
        (
            spec("s/daily__v2", made_of("b/orders"), version_of={"table": "s/daily"}),
            spec("s/daily"),
            "rebuild from inputs",
        ),
        (SECOND, FIRST, "rebuild"),
    ],
)
def test_how_a_version_comes_up_follows_from_what_the_table_is(new, before, name):
    """As the docstring's table says."""
    assert strategy_of(new, before).name == name


def test_a_version_outlives_the_one_before():
    """Where that is said to be retired; without a word the message names the word. What it copied it reads no more."""
    (said,) = problems(SECOND)
    assert said.endswith("If it was retired and its spec removed, say `retired: true` here")
    both = {"table": "b/orders", "retired": True}
    assert not problems(spec("b/orders__v2", version_of=both))
    alone = spec("b/orders__v2", {"kind": "version", "table": "b/orders"}, version_of=both)
    assert not problems(alone)
    assert (alone.inputs, COPY.inputs[0].table) == ((), "b/orders")
    specs = {one.key: one for one in (FIRST, alone)}
    assert (read_by("b/orders", specs), followed_by("b/orders", specs)) == ([], [])
    assert followed_by("b/orders", {"b/orders__v2": COPY}) == ["b/orders__v2"]
    assert versions_together("b/orders__v2", specs) == [VersionPair("b/orders", "b/orders__v2")]
    assert versions_together("b/orders__v2", {"b/orders__v2": alone}) == []
    third = spec("b/orders__v3", {"kind": "version", "table": "b/orders__v2"}, version_of={"table": "b/orders"})
    assert not problems(alone, third)


@pytest.mark.parametrize(
    ("here", "version", "before", "is_right"),
    [
        ("at", {}, {}, True),
        ("seen", {"renamed": {"seen": "at"}}, {}, True),
        ("at", {"cast": ["at"]}, {"type": "date"}, True),
        ("at", {"cast": ["at"]}, {"type": "date", "time_zone": "America/New_York"}, False),
        ("at", {"computed": {"at": "at + INTERVAL 1 DAY"}, "dropped": ["at"]}, {}, False),
        ("paid_at", {}, {}, False),
    ],
)
def test_a_copy_finds_its_rows_by_when_they_happened(here, version, before, is_right):
    """As the docstring's table says: where another column says that, they lie in other partitions of the one before."""
    columns = {"id": "bigint", "at": before.get("type", "timestamp"), "paid_at": "timestamp"}
    first = spec("b/orders", columns=columns, time_zone=before.get("time_zone", "UTC"))
    others = {"id": "bigint", ("at" if here == "paid_at" else here): "timestamp", "paid_at": "timestamp"}
    copied = {"kind": "version", "table": "b/orders"}
    said = {"columns": others, "event_time": here, "version_of": {"table": "b/orders", **version}}
    found = problems(first, spec("b/orders__v2", copied, **said))
    assert bool(found) != is_right, found
    assert is_right or "would be lost. Name another `source`" in found[0]
    assert not problems(first, spec("b/orders__v2", **said)), "from its own source it may be made so"
