"""The fence: where it can stand, who owns which partition, and how it is kept in a table's properties."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.state.fence import Fence, fence_of, first_fence, history_part, is_history, moved, refuse_live
from backfill_assets.errors import NOTHING_WRITTEN, FenceError, LivePartitionsError
from tests.core.state.grids import SHAPES, instant, spec_of
from tests.support.docstring_tables import table_of
from tests.support.fake_live import LIVE_ORDERS
from tests.support.fakes import ORDERS

MICROSECOND = timedelta(microseconds=1)


# -- moving it ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", table_of(moved), ids=lambda row: row["asked for"])
def test_a_fence_comes_to_stand_where_the_docstring_says(row):
    """Every row of the table in `moved` holds."""
    fence = Fence(instant(row["fence now"]))
    assert moved(LIVE_ORDERS, fence, instant(row["asked for"])) == instant(row["moved to"])


@pytest.mark.parametrize(
    ("shape", "asked", "target"),
    [
        ("daily", "2024-03-01T00:00:00.000001Z", "2024-03-02T00:00:00Z"),
        ("daily", "2024-03-02T00:00:00+01:00", "2024-03-02T00:00:00Z"),
        ("weekly", "2024-03-05T00:00:00Z", "2024-03-11T00:00:00Z"),
        ("monthly", "2024-04-01T00:00:01Z", "2024-05-01T00:00:00Z"),
        ("Berlin", "2024-03-30T23:00:01Z", "2024-03-31T22:00:00Z"),
        ("Berlin", "2024-10-26T22:00:01Z", "2024-10-27T23:00:00Z"),
        ("Berlin monthly", "2024-03-31T22:00:00Z", "2024-03-31T22:00:00Z"),
        ("Kolkata", "2024-03-02T00:00:00Z", "2024-03-02T18:30:00Z"),
        ("Kolkata hourly", "2024-03-01T05:00:00Z", "2024-03-01T05:30:00Z"),
    ],
)
def test_a_fence_comes_to_stand_at_the_start_of_a_partition(shape, asked, target):
    """Whatever the grain and the zone, days of 23 and 25 hours included: at the next start that is not before the instant."""
    spec = spec_of(shape)
    fence = first_fence(spec)
    assert moved(spec, fence, instant(asked)) == instant(target)


def test_a_fence_does_not_move_back():
    """What history owns stays history's; the refusal names both places, and is told in the fence's own words."""
    with pytest.raises(FenceError) as caught:
        moved(LIVE_ORDERS, Fence(instant("2024-03-05")), instant("2024-03-03T12:00:00Z"))
    assert str(caught.value) == (
        "`bronze/orders`: the fence is at `2024-03-05T00:00:00+00:00` and cannot be moved back to `2024-03-04T00:00:00+00:00`: "
        "what history owns now would be written by both sides. The fence stays where it is. "
        "A fence only moves forward. Launch the partitions before it from their source to correct them."
    )


def test_a_fence_does_not_lie_before_the_table():
    """There are no partitions there that anybody could own."""
    with pytest.raises(FenceError) as caught:
        moved(LIVE_ORDERS, Fence(instant("2024-01-01")), instant("2024-01-01") - MICROSECOND)
    assert "the table starts at `2024-01-01T00:00:00+00:00`" in str(caught.value)
    assert moved(LIVE_ORDERS, Fence(instant("2024-01-01")), instant("2024-01-01")) == instant("2024-01-01")


def test_a_fence_does_not_lie_behind_the_calendar():
    """The partition that it would be rounded up to cannot be written as a date."""
    with pytest.raises(FenceError, match="would end after the year 9999. The fence stays where it is"):
        moved(LIVE_ORDERS, Fence(instant("2024-03-05")), datetime(9999, 12, 31, 12, tzinfo=UTC))


INSTANTS = st.datetimes(datetime(2024, 1, 1), datetime(2027, 12, 31)).map(lambda when: when.replace(tzinfo=UTC))
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.sampled_from(list(SHAPES)), st.lists(INSTANTS, min_size=1, max_size=6), ZONES)
def test_a_fence_only_moves_forward(shape, asked, zone):
    """However it is moved: never back, never past the instant's own partition, always to a partition's start; twice is once."""
    spec = spec_of(shape)
    fence = first_fence(spec)
    for at in asked:
        try:
            target = moved(spec, fence, at.astimezone(zone))
        except FenceError:
            assert at < fence.at_utc
            continue
        assert target >= max(fence.at_utc, at)
        assert spec.grid.partition_of(target).window.start_utc == target
        assert spec.grid.partition_of(target - MICROSECOND).window.end_utc == target
        assert target == at or spec.grid.partition_of(at).window.end_utc == target
        fence = replace(fence, at_utc=target)
        assert moved(spec, fence, target) == moved(spec, fence, at) == target


# -- the first one -----------------------------------------------------------------------------------------------------


def test_all_partitions_of_a_table_without_a_stream_are_history():
    """All of its partitions are history."""
    assert first_fence(ORDERS) is None
    partitions = ORDERS.grid.between("2024-03-01", "2024-03-05")
    assert history_part(ORDERS, partitions, None) == (partitions, ())
    refuse_live(ORDERS, partitions, None)


# -- who owns what -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_a_fence_parts_partitions(shape):
    """The partition that ends at the fence is history, the one that starts there is live; none lies on both sides."""
    spec = spec_of(shape)
    partitions = spec.grid.until(instant("2024-09-02T12:00:00Z"))[:250]
    for number in range(1, len(partitions)):
        fence = Fence(partitions[number].window.start_utc)
        assert is_history(partitions[number - 1], fence)
        assert not is_history(partitions[number], fence)
        assert history_part(spec, partitions, fence) == (partitions[:number], tuple(partitions[number:]))


@given(st.sampled_from(list(SHAPES)), INSTANTS, INSTANTS)
def test_an_instant_belongs_to_history_exactly_if_it_lies_before_the_fence(shape, at, event):
    """The two sides agree: what the live side takes for late lies in a partition of history, and the other way round."""
    spec = spec_of(shape)
    first = first_fence(spec)
    fence = Fence(moved(spec, first, max(at, first.at_utc)))
    assert is_history(spec.grid.partition_of(event), fence) == (event < fence.at_utc)


def test_a_launch_of_live_partitions_only_is_refused():
    """The refusal says where the fence is, and how a closed partition is sealed."""
    fence = Fence(instant("2024-03-03"))
    with pytest.raises(LivePartitionsError) as caught:
        history_part(LIVE_ORDERS, LIVE_ORDERS.grid.between("2024-03-03", "2024-03-05"), fence)
    assert str(caught.value) == (
        "`bronze/orders`: partition `2024-03-03` and those after it are live: the fence is at `2024-03-03T00:00:00+00:00`. "
        "Nothing was written. Launch partitions before it; or, once these have ended, seal them: "
        "`backfill-assets fence bronze/orders --at 2024-03-06T00:00:00+00:00`."
    )
    assert caught.value.facts == {"fence": instant("2024-03-03")}


def test_a_write_of_history_with_one_live_partition_is_refused():
    """Just before a commit there is no clipping any more: one live partition refuses all of it."""
    fence = Fence(instant("2024-03-03"))
    with pytest.raises(LivePartitionsError, match="partition `2024-03-03` and those after it are live") as caught:
        refuse_live(LIVE_ORDERS, LIVE_ORDERS.grid.between("2024-03-01", "2024-03-03"), fence)
    assert caught.value.state == NOTHING_WRITTEN
    refuse_live(LIVE_ORDERS, LIVE_ORDERS.grid.between("2024-03-01", "2024-03-02"), fence)


# -- as properties -----------------------------------------------------------------------------------------------------

FENCES = st.builds(
    Fence,
    at_utc=INSTANTS,
    epoch=st.integers(1, 1 << 40),
    last_batch=st.integers(-1, 1 << 40),
    stream=st.text(max_size=20),
)
STORED = {
    "backfill_assets.fence": "2024-03-01T00:00:00+00:00",
    "backfill_assets.epoch": "3",
    "backfill_assets.last_batch": "41",
    "backfill_assets.stream": "a1",
}


@given(FENCES)
def test_a_fence_survives_its_properties(fence):
    """What is stored is read back the same, among other properties of the table."""
    assert fence_of({"delta.checkpointInterval": "100", **fence.properties()}, "bronze/orders") == fence


def test_the_form_of_the_properties_does_not_change():
    """Other versions of this project read them, and so do people: names and form stay."""
    assert Fence(instant("2024-03-01"), 3, 41, "a1").properties() == STORED


@pytest.mark.parametrize("properties", [{}, {"delta.checkpointInterval": "100"}])
def test_a_table_without_the_property_has_no_fence(properties):
    """A table that never had a stream has none of the properties."""
    assert fence_of(properties, "bronze/orders") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fence", "tomorrow"),
        ("fence", "2024-03-01T00:00:00"),
        ("epoch", "three"),
        ("epoch", None),
        ("last_batch", "4.5"),
    ],
)
def test_a_damaged_fence_is_an_error(name, value):
    """It is never taken for another fence, or for none; the message shows what is there."""
    stored = {key: text for key, text in {**STORED, f"backfill_assets.{name}": value}.items() if text is not None}
    with pytest.raises(FenceError) as caught:
        fence_of({"delta.checkpointInterval": "100", **stored}, "bronze/orders")
    assert str(stored) in str(caught.value)
