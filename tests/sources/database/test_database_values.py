"""Values of a database: each arrives as it is, to the last digit and microsecond, or fails its partition by name."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from backfill_assets.errors import SchemaMismatchError
from tests.sources.database.world import new_world
from tests.support.shop import published_keys, refusals, rows_in

ALL_TYPES = """
CREATE TYPE mood AS ENUM ('glad', 'it''s "fine"');
CREATE DOMAIN cents AS integer CHECK (value >= 0);
CREATE TABLE orders (
  order_id bigint NOT NULL, at timestamptz NOT NULL, flag boolean, small smallint, whole integer, wide integer,
  price numeric(38,18), open numeric, big numeric, words text, short varchar(9), padded char(5), raw bytea, day date,
  single real, double_ double precision, id uuid, doc json, docb jsonb, feeling mood, cents cents, clock time, host inet,
  "odd, name" text
);
"""
COLUMNS = {
    "order_id": "bigint not null", "at": "timestamp not null", "flag": "boolean", "small": "smallint", "whole": "int",
    "wide": "bigint", "price": "decimal(38,18)", "open": "decimal(20,4)", "big": "string", "words": "string",
    "short": "string", "padded": "string", "raw": "binary", "day": "date", "single": "float", "double_": "double",
    "id": "string", "doc": "string", "docb": "string", "feeling": "string", "cents": "int", "clock": "string",
    "host": "string",
}  # fmt: skip
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)

CASES: list[dict[str, Any]] = [
    {"flag": True, "small": -32768, "whole": 2**31 - 1, "wide": -(2**31), "cents": 7},
    {"flag": False, "small": 32767, "whole": -(2**31), "wide": 2**31 - 1},
    {"price": Decimal("12345678901234567890.123456789012345678")},
    {"price": Decimal("-0.000000000000000001"), "open": Decimal("1.5"), "big": "1" * 60},
    {"price": Decimal("0"), "open": Decimal("-9999999999999999.9999"), "big": "NaN"},
    {"words": "", "short": " a ", "padded": "ab"},
    {"words": "é 漢字 😀 \t \n \r ' \" \\ ; -- $$ \u2028 \x01", "short": "NULL"},
    {"words": "x" * 100_000, "raw": bytes(range(256))},
    {"raw": b"", "day": date(1582, 10, 10), "id": "123e4567-e89b-12d3-a456-426614174000"},
    {"day": date(1, 1, 1), "doc": '{"b": 1,  "a": [1.10, null]}', "docb": '{"a": 1.10}'},
    {"day": date(9999, 12, 31), "feeling": 'it\'s "fine"', "clock": "23:59:59.999999", "host": "::1/128"},
    {"day": date(1970, 1, 1), "single": 0.1, "double_": 0.1},
    {"single": float("inf"), "double_": float("-inf")},
    {"single": float("nan"), "double_": float("nan")},
    {"single": -0.0, "double_": 5e-324},
    {"double_": 1.7976931348623157e308},
    {},
]
"""One row each, of which the columns that are not named are NULL."""


def test_every_type_arrives_as_it_is(spark, tmp_path):
    """What another reader finds in the table is what PostgreSQL's own client reads there, for each type and its extremes."""
    world = new_world(spark, tmp_path, make=ALL_TYPES, columns=COLUMNS, event_time="at", key_columns=[])
    world.insert([{"order_id": number, "at": NOON, **case} for number, case in enumerate(CASES)])

    assert published_keys(world.launch()) == [p.key for p in world.partitions]
    found = sorted(rows_in(world.lake.path), key=lambda row: row["order_id"])
    expected = sorted(world.rows(), key=lambda row: row["order_id"])
    assert len(found) == len(expected) == len(CASES)
    for mine, theirs in zip(found, expected, strict=True):
        for name in COLUMNS:
            assert same(name, mine[name], theirs[name]), (name, mine[name], theirs[name])


def same(name: str, mine: Any, theirs: Any) -> bool:
    """Say whether a value of the lakehouse is one of PostgreSQL, as Python reads both."""
    if theirs is None or mine is None:
        return mine is theirs
    if name in ("doc", "docb"):
        return mine in ('{"b": 1,  "a": [1.10, null]}', '{"a": 1.10}')  # as it was written, spaces and digits and all
    if name == "host":
        return mine == "::1"
    if name == "single":
        return repr(mine) == repr(theirs) or abs(mine - theirs) < 1e-8
    if isinstance(mine, float):
        return repr(mine) == repr(theirs)
    return mine == (theirs if isinstance(theirs, type(mine)) else str(theirs))


DOMAINS = """
CREATE TYPE mood AS ENUM ('glad');
CREATE DOMAIN money1 AS numeric(18,2);
CREATE DOMAIN money2 AS money1 CHECK (value >= 0);
CREATE DOMAIN moment1 AS timestamptz; CREATE DOMAIN moment2 AS moment1 NOT NULL; CREATE DOMAIN moment3 AS moment2;
CREATE DOMAIN mood1 AS mood; CREATE DOMAIN mood2 AS mood1;
CREATE DOMAIN spans AS interval; CREATE DOMAIN spans2 AS spans;
CREATE TABLE orders (order_id bigint, ordered_at moment3, amount money2, feeling mood2, "Took" spans2);
INSERT INTO orders VALUES (1, '2024-01-01 10:00Z', 1.25, 'glad', '1 day');
"""


@pytest.mark.prove
def test_domain_over_domains_is_read_as_its_base(spark, tmp_path):
    """However many lie in between: a number, an event time, an enum; the base is what is proposed."""
    columns = {"order_id": "bigint", "ordered_at": "timestamp", "amount": "decimal(18,2)", "feeling": "string"}
    world = new_world(spark, tmp_path, make=DOMAINS, columns=columns)
    assert [(column.name, column.proposed) for column in world.source.columns()] == [*columns.items(), ("Took", None)]
    assert published_keys(world.launch()) == [p.key for p in world.partitions]
    (found,) = rows_in(world.lake.path)
    assert (found["ordered_at"], found["amount"]) == (datetime(2024, 1, 1, 10, tzinfo=UTC), Decimal("1.25"))
    assert found["feeling"] == "glad"


INSTANTS = [
    "0001-01-01 00:00:00+00", "1582-10-04 23:59:59.999999+00", "1582-10-10 00:00:00+00", "1883-11-18 12:03:57+00",
    "1969-12-31 23:59:59.999999+00", "1970-01-01 00:00:00+00", "2024-03-31 01:59:59.999999+00",
    "2024-10-27 00:30:00+00", "2024-10-27 01:30:00+00", "2262-04-11 23:47:16.854776+00", "9999-12-31 23:59:59.999999+00",
]  # fmt: skip


@pytest.mark.prove
def test_instants_keep_their_microsecond(spark, tmp_path):
    """Before calendars changed, before time zones, in the hour that clocks show twice, and to the last one there is."""
    table = "CREATE TABLE orders (order_id bigint, ordered_at timestamptz NOT NULL, seen timestamptz)"
    columns = {"order_id": "bigint", "ordered_at": "timestamp", "seen": "timestamp"}
    world = new_world(spark, tmp_path, make=table, columns=columns)
    values = ", ".join(f"({number}, '2024-01-01 10:00+00', '{at}')" for number, at in enumerate(INSTANTS))
    world.execute(f"INSERT INTO orders VALUES {values}")
    world.launch()
    found = {row["order_id"]: row["seen"] for row in rows_in(world.lake.path)}
    assert found == {number: datetime.fromisoformat(at) for number, at in enumerate(INSTANTS)}


BAD = [
    ("numeric", "decimal(18,2)", "'NaN'", "`bad0`: NaN is no decimal(18,2)"),
    ("numeric", "decimal(18,2)", "'-Infinity'", "`bad1`: -Infinity is no decimal(18,2)"),
    ("numeric", "decimal(18,2)", "1.234", "`bad2`: 1.234 is no decimal(18,2)"),
    ("numeric", "decimal(18,2)", "10000000000000000", "`bad3`: 10000000000000000 is no decimal(18,2)"),
    ("numeric(20,4)", "decimal(20,2)", "0.0001", "`bad4`: 0.0001 is no decimal(20,2)"),
    ("date", "date", "'infinity'", "`bad5`: infinity is no date of the years 1 to 9999"),
    ("date", "date", "'0044-03-15 BC'", "`bad6`: 0044-03-15 BC is no date of the years 1 to 9999"),
    ("timestamptz", "timestamp", "'-infinity'", "`bad7`: -infinity is no instant of the years 1 to 9999"),
    ("timestamptz", "timestamp", "'10000-01-01 00:00+00'", "`bad8`: 10000-01-01 00:00:00+00 is no instant"),
    ("timestamp", "timestamp", "'2024-03-31 02:30'", "`bad9`: 2024-03-31 02:30:00 is no instant"),
    ("timestamp", "timestamp", "'infinity'", "`bad10`: infinity is no instant"),
]
"""A type there, one here, a value that is none of it, and what is said."""


def test_what_cannot_be_a_value_fails_its_partition_and_is_named(spark, tmp_path):
    """Nothing is rounded, cut or made NULL: each partition is refused with the row's key and value, others are published."""
    bad = ", ".join(f"bad{number} {column}" for number, (column, *_) in enumerate(BAD))
    table = f"CREATE TABLE orders (order_id bigint, ordered_at timestamptz NOT NULL, {bad})"
    columns = {"order_id": "bigint", "ordered_at": "timestamp"} | {
        f"bad{n}": kind for n, (_, kind, *_) in enumerate(BAD)
    }
    world = new_world(spark, tmp_path, make=table, columns=columns, of={"timestamps_without_zone": "Europe/Berlin"})
    days = world.spec.grid.between("2024-01-01", f"2024-01-{len(BAD) + 1:02d}")
    for number, (_, _, value, _) in enumerate(BAD):
        world.execute(
            f"INSERT INTO orders (order_id, ordered_at, bad{number}) VALUES ({number}, '{days[number].key} 10:00Z', {value})",
            f"INSERT INTO orders (order_id, ordered_at) VALUES (100, '{days[number].key} 11:00Z')",
        )
    world.execute(f"INSERT INTO orders (order_id, ordered_at) VALUES (200, '{days[-1].key} 11:00Z')")

    outcomes = world.launch(days)
    assert published_keys(outcomes) == [days[-1].key]
    refused = refusals(outcomes)
    assert len(refused) == len(BAD)
    for number, (_, _, _, what) in enumerate(BAD):
        assert f"order_id={number}: {what}" in refused[days[number].key]
        assert "order_id=100" not in refused[days[number].key]
    assert [row["order_id"] for row in rows_in(world.lake.path)] == [200]


LOCAL_TIMES = {
    "2024-03-31 01:59:59.999999": "2024-03-31T00:59:59.999999+00:00",
    "2024-03-31 03:00:00": "2024-03-31T01:00:00+00:00",
    "2024-10-27 01:59:59": "2024-10-26T23:59:59+00:00",
    "2024-10-27 02:30:00": "2024-10-27T00:30:00+00:00",
    "2024-10-27 03:00:00": "2024-10-27T02:00:00+00:00",
    "2024-01-01 00:30:00": "2023-12-31T23:30:00+00:00",
}
"""What clocks in Berlin show, and when that is: of the hour that they show twice, the first."""


@pytest.mark.prove
def test_local_times_are_read_in_the_zone_that_the_spec_names(spark, tmp_path):
    """Also as the event time: a row lies in the partition of its instant, and is read once."""
    table = "CREATE TABLE orders (order_id bigint, ordered_at timestamp NOT NULL); CREATE INDEX ON orders (ordered_at)"
    columns = {"order_id": "bigint", "ordered_at": "timestamp"}
    of = {"timestamps_without_zone": "Europe/Berlin"}
    world = new_world(spark, tmp_path, make=table, columns=columns, of=of, start="2023-12-31")
    values = ", ".join(f"({number}, '{at}')" for number, at in enumerate(LOCAL_TIMES))
    world.execute(f"INSERT INTO orders VALUES {values}")
    days = world.spec.grid.between("2023-12-31", "2024-10-31")
    assert published_keys(world.launch(days)) == [p.key for p in days]
    found = {row["order_id"]: row["ordered_at"].isoformat() for row in rows_in(world.lake.path)}
    assert found == dict(enumerate(LOCAL_TIMES.values()))
    assert {row["dt"].isoformat() for row in rows_in(world.lake.path)} >= {"2023-12-31", "2024-10-26"}


@pytest.mark.prove
def test_days_are_days(spark, tmp_path):
    """A date as the event time: its partition is its own day, wherever the table's zone is."""
    table = "CREATE TABLE orders (order_id bigint, ordered_at date NOT NULL)"
    columns = {"order_id": "bigint", "ordered_at": "date"}
    world = new_world(spark, tmp_path, make=table, columns=columns, time_zone="Asia/Tokyo")
    world.execute(
        "INSERT INTO orders VALUES (1, '2024-01-01'), (2, '2024-01-02'), (3, '2024-01-04'), (4, '2024-01-05')"
    )
    assert published_keys(world.launch()) == [p.key for p in world.partitions]
    assert {(row["order_id"], row["dt"].isoformat()) for row in rows_in(world.lake.path)} == {
        (1, "2024-01-01"), (2, "2024-01-02"), (3, "2024-01-04")
    }  # fmt: skip


def test_a_type_that_does_not_fit_is_refused_before_anything_is_read(spark, tmp_path):
    """The message names each column, its type there, and what it can be."""
    table = (
        "CREATE TYPE spot AS (x int, y int); CREATE TABLE orders (order_id bigint, ordered_at timestamptz NOT NULL, "
        "list integer[], far interval, place spot, places spot[], span int4range)"
    )
    columns = {"order_id": "int", "ordered_at": "timestamp", "list": "string", "far": "string", "gone": "string"}
    columns |= dict.fromkeys(["place", "places", "span"], "string")
    world = new_world(spark, tmp_path, make=table, columns=columns)
    with pytest.raises(SchemaMismatchError) as refused:
        world.launch()
    for what in (
        "`order_id` is `bigint` there, which can be `bigint` here and is `int`",
        "`list` is `integer[]`, which is not read",
        "`far` is `interval`, which is not read",
        "`place` is `spot`, which is not read",
        "`places` is `spot[]`, which is not read",
        "`span` is `int4range`, which is not read",
        "it has no column `gone`",
    ):
        assert what in str(refused.value)
    assert not world.lake.exists()
