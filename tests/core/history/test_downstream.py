"""Which partitions of other tables are made of some: held against what each of them says that it reads."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_assets.core.history.downstream import made_of, window_read
from backfill_assets.core.spec.table import TableSpec
from tests.support.fakes import ORDERS

STARTS = {"hourly": "2024-01-01", "daily": "2024-01-03", "weekly": "2024-01-01", "monthly": "2024-01-01"}


def made(key, *tables, grain="daily", **offsets):
    spec = ORDERS.model_dump(mode="json", exclude_unset=True)
    spec["columns"]["coupon"] = "string"
    read = [{"table": table, **offsets} for table in tables]
    source = {"kind": "delta", "tables": read, "transform": "shop.made.rows"}
    return TableSpec.model_validate({**spec, "key": key, "grain": grain, "start": STARTS[grain], "source": source})


def keys(found):
    return {key: [p.key for p in partitions] for key, partitions in found.items()}


def days(*names):
    return [ORDERS.grid.partition(name) for name in names]


def test_the_whole_way_down():
    """A day is in its week of days, and the table that is made of that; tables beside it are not touched."""
    specs = {
        spec.key: spec
        for spec in (
            ORDERS,
            made("silver/sales", "bronze/orders"),
            made("gold/months", "silver/sales", grain="monthly"),
            made("silver/others", "bronze/others"),
        )
    }
    assert keys(made_of("bronze/orders", days("2024-02-28", "2024-03-01"), specs)) == {
        "silver/sales": ["2024-02-28", "2024-03-01"],
        "gold/months": ["2024-02-01", "2024-03-01"],
    }
    assert made_of("gold/months", days("2024-03-01"), specs) == {}


def test_each_comes_after_what_it_is_made_of():
    """Who launches them in this order makes none of what is still as it was, be it read by two ways."""
    specs = {
        spec.key: spec
        for spec in (
            ORDERS,
            made("gold/a", "bronze/orders", "silver/b"),
            made("silver/b", "bronze/orders", "silver/c"),
            made("silver/c", "bronze/orders"),
        )
    }
    found = made_of("bronze/orders", days("2024-02-28"), specs)
    assert list(found) == ["silver/c", "silver/b", "gold/a"]
    assert keys(found) == {key: ["2024-02-28"] for key in found}


@settings(max_examples=150, deadline=None)
@given(
    st.sets(st.integers(0, 50), min_size=1, max_size=6),
    st.sampled_from(sorted(STARTS)),
    st.integers(-3, 0),
    st.integers(0, 3),
)
def test_it_is_the_reverse_of_what_is_read(chosen, grain, back, ahead):
    """Of all partitions around, exactly those whose window of the input holds one of the changed days."""
    spec = made("silver/made", "bronze/orders", grain=grain, start_offset=back, end_offset=ahead)
    grid = ORDERS.grid
    all_days = [grid.partition_of(grid.start_utc)]
    for _ in range(50):
        all_days.append(grid.following(all_days[-1]))
    changed = [all_days[number] for number in chosen]
    (reading,) = spec.source.inputs
    around = [spec.grid.partition_of(spec.grid.start_utc)]
    while around[-1].window.end_utc < all_days[-1].window.end_utc or len(around) < 8:
        around.append(spec.grid.following(around[-1]))
    around += [spec.grid.following(around[-1])]
    wanted = []
    for partition in around:
        window = window_read(spec, partition, reading)
        if any(d.window.start_utc < window.end_utc and window.start_utc < d.window.end_utc for d in changed):
            wanted.append(partition.key)
    found = [p.key for p in made_of("bronze/orders", changed, {spec.key: spec}).get("silver/made", [])]
    assert [key for key in found if key in {p.key for p in around}] == wanted
