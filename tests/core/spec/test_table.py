"""The specification of a table: short forms, and every refusal in the words that `dg check defs` shows."""

from __future__ import annotations

import pytest

from backfill_assets.core.spec.table import TableSpec
from tests.core.spec.specs import FILES, refusal_of, spec

# -- what a spec is ----------------------------------------------------------------------------------------------------

TABLES = {"kind": "delta", "tables": ["bronze/orders"]}


@pytest.mark.parametrize(
    ("source", "grain", "most", "most_with_a_pace"),
    [
        (FILES, "daily", 1_464, 366),
        ({"kind": "jdbc", "connection": "SHOP_DATABASE", "table": "public.orders"}, "daily", 366, 366),
        (TABLES, "daily", 366, 366),
        (TABLES, "hourly", 1_464, 1_464),
        ({**TABLES, "transform": ".transform.made", "transform_by": "partition"}, "daily", 31, 31),
    ],
)
def test_a_commit_holds_more_of_what_is_bounded_by_its_bytes(source, grain, most, most_with_a_pace):
    """A survey of files says how many bytes a chunk has; of other sources only the number of partitions bounds it.

    So does a pace: it is kept between chunks, and a launch of one would read as fast as it can.
    """

    def most_of(**more):
        return spec(key="silver/orders", source=source, grain=grain, **more).max_partitions_per_chunk

    assert most_of() == most
    assert most_of(pace={"max_rows_per_second": 5}) == most_with_a_pace
    assert most_of(chunk={"max_partitions": 9}) == 9


def test_a_spec_survives_a_round_trip_through_json():
    """A spec that is written as JSON and read again is the same."""
    made = spec(
        key_columns=["order_id"],
        latest_wins_by=["created_at"],
        time_zone="Europe/Berlin",
        grain="monthly",
        checks={"severity": "warn", "separate": ["keys_are_unique"]},
        source={
            "kind": "delta",
            "tables": ["bronze/raw", {"table": "bronze/more", "start_offset": -1}],
            "transform": ".t.f",
        },
        tags={"team": "sales"},
        chunk={"max_partitions": 12},
    )
    assert TableSpec.model_validate_json(made.model_dump_json(exclude_unset=True)) == made
    assert TableSpec.model_validate(made.model_dump(exclude_unset=True)) == made


def test_columns_in_which_null_is_refused():
    """NULL is refused in what is `not null`, in key columns and in the event time; in the columns' order."""
    columns = {"a": "int", "b": "int not null", "c": "int", "created_at": "timestamp"}
    assert spec(columns=columns, key_columns=["c"]).required_columns == ["b", "c", "created_at"]


# -- the table ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["orders", "Bronze/orders", "1ronze/orders", "bronze/../x"])
def test_a_key_that_is_not_layer_and_name_is_refused(key):
    """A key is a folder and an asset key at once, so its form is narrow."""
    assert refusal_of(spec, key=key) == (
        f"`{key}`: a key is `layer/name`, both of small letters, digits and `_`, for example `bronze/orders`"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key_columns": ["order_ID"]}, "key_columns: there is no column `order_ID`; did you mean `order_id`?"),
        ({"key_columns": ["order_id", "order_id"]}, "key_columns: `order_id`, `order_id` names a column twice"),
        ({"event_time": "created"}, "event_time: there is no column `created`; did you mean `created_at`?"),
        ({"event_time": "amount"}, "event_time: `amount` is a `decimal(18,2)`; it must be a `timestamp` or a `date`"),
        ({"latest_wins_by": ["created"]}, "latest_wins_by: there is no column `created`; did you mean `created_at`?"),
        ({"statistics_columns": ["amont"]}, "statistics_columns: there is no column `amont`; did you mean `amount`?"),
        (
            {"partition_column": "Amount"},
            "partition_column: `Amount` is among the columns; it is added by itself, so rename one, "
            "for example `partition_column: partition_day`",
        ),
        ({"partition_column": "order day"}, "`order day`: a column name has no space and none of `,;{}()=`"),
        ({"partition_column": "_ba_day"}, "`_ba_day`: names that start with `_ba_` are reserved for this project's own columns"),
        (
            {"grain": "weekly", "start": "2024-01-03"},
            "start: `2024-01-03` is not the first day of a weekly partition; the one that holds it starts on `2024-01-01`",
        ),
        ({"time_zone": "Europe/Berln"}, "there is no time zone `Europe/Berln`; did you mean `Europe/Berlin`?"),
        (
            {"grain": "hourly", "time_zone": "Australia/Lord_Howe"},
            "time_zone: the clocks of `Australia/Lord_Howe` move by part of an hour, and an hour of it is not always an hour long; "
            "use `time_zone: UTC`, or `grain: daily`",
        ),
        ({"colour": "blue"}, "Extra inputs are not permitted"),
        ({"chunk": {"max_partitions": 2001}}, "Input should be less than or equal to 2000"),
        (
            {"checks": {"separate": ["rows_match"]}},
            "Input should be 'rows_match_source', 'keys_are_unique', 'rows_inside_partition' or 'schema_matches'",
        ),
    ],
)  # fmt: skip
def test_a_spec_that_contradicts_itself_is_refused(changes, message):
    """Each contradiction is named with the value and what would be right."""
    assert refusal_of(spec, **changes) == message
