"""Files that others land, with Debezium's own events: read alike, or refused in words."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.core.live.feed import UNAVAILABLE, FeedFile
from backfill_assets.core.words import shortened
from backfill_assets.errors import ChangeFeedError
from backfill_assets.live.changes.refresh import Refresh
from backfill_assets.live.changes.table import ChangesTable
from tests.live.changes.test_all_types import new_world
from tests.live.changes.world import World
from tests.places.debezium import code_of_the_page, settings_of_the_page
from tests.support.shop import published_keys, rows_in

MAKE = (
    "CREATE TABLE t (id bigint PRIMARY KEY, flag boolean, raw bytea, note text, amount numeric, day date, local timestamp, clock time, "
    "at timestamptz, wide numeric); ALTER TABLE t REPLICA IDENTITY FULL"
)
COLUMNS = {
    "id": "bigint not null", "flag": "boolean", "raw": "binary", "note": "string", "amount": "decimal(20,2)", "day": "date",
    "local": "timestamp", "clock": "string", "at": "timestamp not null",
    "wide": "string",
}  # fmt: skip
ROW = {
    "id": 9007199254740993, "flag": True, "raw": "QUI=", "note": "2024-02-29Z", "amount": "1234567890123456.78",
    "day": "2024-02-29Z", "local": "2024-07-01T12:00:00.5Z", "clock": "23:59:59.25Z", "at": "2024-01-01T10:00:00.123456Z",
    "wide": "1.10",
}  # fmt: skip
"""As `decimal.handling.mode=string` and `time.precision.mode=isostring` have it: a zone behind everything."""


def event(
    op: str,
    before: Any,
    after: Any,
    position: int | None,
    number: int = 1,
    *,
    xid: int = 7,
    in_table: int | None = None,
) -> str:
    """One of Debezium's events; the table's number is the transaction's unless other tables have events, too."""
    source = {
        "version": "3.6.3.Final", "connector": "postgresql", "name": "shop", "ts_ms": 1704067200000, "snapshot": "false",
        "db": "shop", "sequence": json.dumps([None if position is None else str(position), "9"]), "schema": "public",
        "table": "t", "txId": xid, "lsn": 9, "xmin": None,
    }  # fmt: skip
    transaction = {"id": f"{xid}:9", "total_order": number, "data_collection_order": in_table or number}
    return json.dumps({"before": before, "after": after, "source": source, "transaction": transaction, "op": op})


@pytest.fixture(scope="module")
def shared(spark, tmp_path_factory: pytest.TempPathFactory) -> World:
    made = new_world(
        spark, tmp_path_factory.mktemp("debezium"), MAKE, "t", columns=COLUMNS, key_columns=["id"], event_time="at",
        grain="daily", of={"timestamps_without_zone": "Europe/Berlin"},
    )  # fmt: skip
    assert made.spec.changes is not None
    feed = made.spec.changes.model_copy(update={"backfill": "excluded"})
    return replace(made, spec=made.spec.model_copy(update={"changes": feed}))


@pytest.fixture
def world(shared: World, tmp_path) -> World:
    """A table that has nothing yet, and a folder into which somebody lands."""
    (tmp_path / "landing").mkdir()
    lake = replace(shared.lake, spec=shared.spec, path=f"{tmp_path}/tables/bronze/all")
    return replace(shared, lake=lake, folder=tmp_path / "landing")


def land_as_the_page_says(events: Iterable[Any], folder: Path, slot: int, start: int) -> int:
    """Run the code of the page."""
    there: dict[str, Any] = {}
    exec(code_of_the_page(), there)
    return there["land"](events, folder, slot, start)


def land(world: World, start: int, end: int, *events: str) -> None:
    (world.folder / FeedFile(start, end).name).write_text("\n".join(events) + "\n")


def refused(world: World) -> str:
    with pytest.raises(ChangeFeedError) as error:
        world.refresh().once()
    assert not world.lake.exists()
    return str(error.value)


@pytest.mark.prove
def test_debeziums_own_dialect_is_read_alike(world):
    """JSON booleans and numbers, base64, a zone behind days and local times, NULL before the first position; landed as the page says."""
    wrong, at = {**ROW, "flag": None}, world.folder
    first = [event("c", None, ROW, None), event("u", ROW, wrong, None, 2)]
    second = [event("u", wrong, ROW, 32, xid=1 << 31)]
    assert land_as_the_page_says(map(json.loads, first), at, 16, 16) == 16, "the newest one waits"
    assert land_as_the_page_says(map(json.loads, first + second), at, 16, 16) == 32
    assert land_as_the_page_says(map(json.loads, [*first, *second, event("c", None, ROW, 48)]), at, 16, 32) == 48
    assert sorted(path.name for path in at.iterdir()) == [FeedFile(16, 32).name, FeedFile(32, 48).name]

    assert published_keys(Refresh(world.source).once().outcomes) == ["2024-01-01"]
    (found,) = rows_in(world.lake.path)
    assert (found["id"], found["flag"], found["raw"], str(found["amount"])) == (
        9007199254740993, True, b"AB", "1234567890123456.78"
    )  # fmt: skip
    assert (str(found["day"]), found["clock"], found["note"]) == ("2024-02-29", "23:59:59.25", "2024-02-29Z")
    assert found["local"].isoformat() == "2024-07-01T10:00:00.500000+00:00"
    assert found["at"].isoformat() == "2024-01-01T10:00:00.123456+00:00"
    changes = (
        ChangesTable(world.spark, world.spec, world.lake.path).rows().orderBy("after_position", "number").collect()
    )
    assert [(row["after_position"], row["xid"]) for row in changes] == [(16, -7), (16, -7), (32, -(1 << 31))]


def test_what_is_delivered_again_lands_once(tmp_path):
    """Debezium begins again at an older transaction, or in the midst of one, which was not whole when it ended."""
    first = [event("c", None, ROW, 16), event("u", ROW, {**ROW, "flag": None}, 16, 2)]
    second = [event("d", ROW, None, 32, number) for number in (1, 2, 3)]
    delivered = [*first, *second[:2], *first, *second, event("c", None, ROW, 48), *second]
    assert land_as_the_page_says(map(json.loads, [*first, *second[:1], *first]), tmp_path, 16, 16) == 32
    assert (tmp_path / FeedFile(16, 32).name).read_text().splitlines() == first
    assert land_as_the_page_says(map(json.loads, delivered), tmp_path, 16, 32) == 48
    assert (tmp_path / FeedFile(32, 48).name).read_text().splitlines() == second


def test_only_changes_are_landed(tmp_path):
    """The events around transactions, heartbeats, tombstones, messages and rows that Debezium reads by itself."""
    around = [{"status": status, "id": "7:9", "event_count": None, "ts_ms": 1} for status in ("BEGIN", "END")]
    read = {**json.loads(event("r", None, ROW, 16)), "transaction": None}
    message = {**json.loads(event("m", None, None, 64)), "transaction": None, "message": {"prefix": "", "content": ""}}
    changes = [json.loads(event("c", None, ROW, position)) for position in (16, 32)]
    delivered = [read, around[0], changes[0], around[1], {"ts_ms": 1}, None, message, around[0], changes[1]]
    assert land_as_the_page_says(delivered, tmp_path, 16, 16) == 32
    assert (tmp_path / FeedFile(16, 32).name).read_text() == json.dumps(changes[0]) + "\n"


@pytest.mark.prove
def test_what_debezium_calls_otherwise_is_what_postgresql_calls_it(world):
    """A number that is none has names of Debezium's own; a text of such a name stays."""
    theirs = {"NAN": "NaN", "POSITIVE_INFINITY": "Infinity", "NEGATIVE_INFINITY": "-Infinity"}
    rows = [{**ROW, "id": number, "wide": name, "note": name} for number, name in enumerate(theirs)]
    land(world, 0, 32, *(event("c", None, row, 0, number) for number, row in enumerate(rows, start=1)))
    world.refresh().once()
    assert {row["note"]: row["wide"] for row in rows_in(world.lake.path)} == theirs


@pytest.mark.prove
def test_a_column_of_which_debezium_has_other_values_is_refused(shared, tmp_path):
    """It writes NULL for a `name`, and a `time with time zone` as it is in UTC: neither is stored."""
    make, columns = (
        "CREATE TABLE t (id bigint PRIMARY KEY, who name, at timestamptz); ALTER TABLE t REPLICA IDENTITY FULL",
        {"id": "bigint", "who": "string", "at": "timestamp"},
    )
    world = new_world(
        shared.spark, tmp_path, make, "t", columns=columns, key_columns=["id"], event_time="at", grain="daily"
    )
    world.folder.mkdir()
    land(world, 0, 32, event("c", None, {"id": 1, "who": None, "at": ROW["at"]}, 0))
    assert "in events of Debezium `who` (name) would not be what the database has" in refused(world)


@pytest.mark.prove
def test_a_column_that_comes_while_the_feed_is_read_is_read_as_what_it_is(shared, tmp_path):
    """The database is asked what its columns are whenever somebody else's files have landed, not only at first."""
    columns = {"id": "bigint", "n": {"type": "string", "optional": True}, "at": "timestamp"}
    make = "CREATE TABLE t (id bigint PRIMARY KEY, at timestamptz); ALTER TABLE t REPLICA IDENTITY FULL"
    world = new_world(
        shared.spark, tmp_path, make, "t", columns=columns, key_columns=["id"], event_time="at", grain="daily"
    )
    world.folder.mkdir()
    reader = world.source.reader
    land(world, 0, 32, event("c", None, {"id": 1, "at": ROW["at"]}, 0))
    reader.read()
    world.execute("ALTER TABLE t ADD n numeric")
    land(world, 32, 64, event("c", None, {"id": 2, "at": ROW["at"], "n": "NAN"}, 32))
    reader.read()
    rows = ChangesTable(world.spark, world.spec, world.lake.path).rows().collect()
    assert {row["after"]["id"]: row["after"].get("n") for row in rows} == {"1": None, "2": "NaN"}


@pytest.mark.prove
def test_a_change_under_the_name_of_a_part_is_refused(shared, tmp_path):
    """It is a change of the table all the same, and would be taken for another one's."""
    parts = (
        "CREATE TABLE t (id bigint, at timestamptz, PRIMARY KEY (id, at)) PARTITION BY RANGE (at); "
        "CREATE TABLE part PARTITION OF t DEFAULT; "
    )
    world = new_world(
        shared.spark, tmp_path, parts + "ALTER TABLE part REPLICA IDENTITY FULL", "t",
        columns={"id": "bigint", "at": "timestamp"}, key_columns=["id", "at"], event_time="at", grain="daily",
    )  # fmt: skip
    world.folder.mkdir()
    row = {"id": 1, "at": ROW["at"]}
    land(world, 0, 32, event("c", None, row, 0))
    world.source.reader.read()
    land(world, 32, 64, event("c", None, row, 32).replace('"table": "t"', '"table": "part"'))
    with pytest.raises(ChangeFeedError, match="`t` is in parts, and its change came under the name of one") as refused:
        world.source.reader.read()
    assert "publish.via.partition.root=true" in str(refused.value)


@pytest.mark.prove
def test_unknown_operation_names_its_line(world):
    """A line whose `op` nobody knows may be any change: its file is refused, and nothing of it is lost."""
    first, third = event("c", None, ROW, 0), event("c", None, {**ROW, "id": 3}, 0, 3, in_table=2)
    second = event("x", None, {**ROW, "id": 2}, 0, 2, in_table=1)
    land(world, 0, 32, first, second, third)
    said = refused(world)
    assert f": {shortened(second, 300)}." in said, "no word of it is cut"
    assert f"line 2 of `{FeedFile(0, 32).name}` cannot be used: its `op` is none of `c`, `u`, `d`, `t` and `r`" in said
    land(world, 0, 32, first, third)
    world.refresh().once()
    assert {row["id"] for row in rows_in(world.lake.path)} == {ROW["id"], 3}


def test_row_that_was_read_is_an_upsert(world):
    """`op: r` adds a row that is not there, and replaces one that is."""
    land(world, 0, 32, event("c", None, {**ROW, "id": 1}, 0), event("r", None, {**ROW, "id": 2}, 0, 2))
    land(
        world, 32, 64, event("r", None, {**ROW, "id": 1, "note": "read"}, 32), event("r", None, {**ROW, "id": 3}, 32, 2)
    )
    world.refresh().once()
    assert {row["id"]: row["note"] for row in rows_in(world.lake.path)} == {1: "read", 2: ROW["note"], 3: ROW["note"]}


@pytest.mark.prove
@pytest.mark.parametrize(
    ("numbers", "line", "what"),
    [
        ([(1, 1), (2, 2), (4, 4)], 3, "its `data_collection_order` is 4, and it is event 3 of `public.t`"),
        pytest.param(
            [(3, 1), (2, 2)], 2, "its `total_order` is 2, which does not come after the 3", marks=pytest.mark.prove
        ),
    ],
    ids=["in the midst", "backwards"],
)
def test_hole_in_a_transaction_stops_the_fold(world, numbers, line, what):
    """What came before stays, nothing of the file is read, and a file that is whole goes on from there."""
    land(world, 0, 32, event("c", None, {**ROW, "id": 1}, 0))
    world.refresh().once()
    version = world.lake.version()
    rows = [{**ROW, "id": 10 + place} for place in range(len(numbers))]
    wrong = [event("c", None, row, 32, n, in_table=of) for row, (n, of) in zip(rows, numbers, strict=True)]
    land(world, 32, 64, *wrong)
    with pytest.raises(ChangeFeedError) as error:
        world.refresh().once()
    assert f"line {line} of `{FeedFile(32, 64).name}` cannot be used: {what}" in str(error.value)
    assert world.lake.version() == version
    land(world, 32, 64, *(event("c", None, row, 32, n) for n, row in enumerate(rows, start=1)))
    world.refresh().once()
    assert {row["id"] for row in rows_in(world.lake.path)} == {1, *(row["id"] for row in rows)}


@pytest.mark.prove
def test_file_of_several_blocks_is_checked_in_order(world):
    """Spark reads a long file in parts, in any order: the lines are numbered all the same, empty ones too."""
    size = "spark.sql.files.maxPartitionBytes"
    before = world.spark.conf.get(size)
    rows = [{**ROW, "id": number} for number in range(1, 41)]
    whole = [event("c", None, row, 0, row["id"]) for row in rows]
    world.spark.conf.set(size, "3000")
    try:
        land(world, 0, 32, "", *whole[:30], *whole[31:])
        assert f"line 32 of `{FeedFile(0, 32).name}` cannot be used: its `data_collection_order` is 32" in refused(
            world
        )
        land(world, 0, 32, "", *whole)
        world.refresh().once()
    finally:
        world.spark.conf.set(size, before)
    assert {row["id"] for row in rows_in(world.lake.path)} == {row["id"] for row in rows}


@pytest.mark.prove
def test_numbers_of_other_tables_are_no_hole(world):
    """`total_order` counts every table's events, of which a file may have all, some or none."""
    other = event("c", None, {"id": 1}, 0, 4, in_table=9).replace('"table": "t"', '"table": "other"')
    rows = [event("c", None, {**ROW, "id": n}, 0, n, in_table=at) for at, n in enumerate((2, 3, 7), start=1)]
    land(world, 0, 32, *rows[:2], other, rows[2])
    world.refresh().once()
    assert {row["id"] for row in rows_in(world.lake.path)} == {2, 3, 7}


@pytest.mark.prove
def test_a_value_of_any_length_is_read(world):
    """More letters than a text in JSON may have by default: as a `bytea` of 10 MB has."""
    note = "x" * 20_000_001
    land(world, 0, 32, event("c", None, {**ROW, "note": note}, 0), event("c", None, {**ROW, "id": 2}, 0, 2))
    world.refresh().once()
    assert {row["id"]: len(row["note"]) for row in rows_in(world.lake.path)} == {ROW["id"]: len(note), 2: 11}


@pytest.mark.prove
def test_a_time_of_no_day_in_debeziums_words(world):
    """Such a row lies in no partition; the others of its file are in the table."""
    nowhere = [
        "infinity",
        "-infinity",
        "-0043-03-15T00:00:00.000000Z",
        "0000-06-01T00:00:00.000000Z",
        "+10000-01-01T00:00:00.000000Z",
    ]
    rows = [*({**ROW, "id": 3 + number, "at": time} for number, time in enumerate(nowhere)), {**ROW, "id": 2}]
    land(world, 0, 32, *(event("c", None, row, 0, number) for number, row in enumerate(rows, start=1)))
    world.refresh().once()
    assert [row["id"] for row in rows_in(world.lake.path)] == [2]


@pytest.mark.prove
@pytest.mark.parametrize("number", [0, 1])
def test_a_large_value_that_was_not_sent_is_never_stored(world, number):
    """Debezium's placeholder in any of its forms: the file is refused, with the statement that mends it."""
    name = "note" if number == 0 else "raw"
    land(world, 0, 32, event("c", None, {**ROW, name: UNAVAILABLE[number]}, 0))
    assert "ALTER TABLE public.t REPLICA IDENTITY FULL" in refused(world)
    assert base64.b64decode(UNAVAILABLE[1]).decode() == UNAVAILABLE[0]


@pytest.mark.prove
def test_a_change_without_what_was_before_is_refused(world):
    """Its row could have been in any partition, and would be in two, or stay where it was deleted."""
    land(world, 0, 32, event("u", None, ROW, 0))
    said = refused(world)
    assert "without what its row was before, so nobody knows which partition that leaves" in said
    assert "`ALTER TABLE public.t REPLICA IDENTITY FULL;`" in said


@pytest.mark.prove
def test_a_database_that_sends_only_keys_is_refused(world):
    """What Debezium has for the other columns of a deleted row may look like a row of another partition."""
    world.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT")
    try:
        land(world, 0, 32, event("d", {**dict.fromkeys(ROW), "id": 2, "at": "1970-01-01T00:00:00Z"}, None, 0))
        assert "does not send what all of a row was before it was changed or deleted" in refused(world)
    finally:
        world.execute("ALTER TABLE t REPLICA IDENTITY FULL")


def test_an_event_that_is_not_of_its_files_part_of_the_log(world):
    """Its file's name says otherwise: it would be left out as one that came already, or come twice."""
    land(world, 16, 48, event("c", None, ROW, 48))
    assert "is not of the part of the log that its file's name says" in refused(world)


def test_the_settings_of_the_page_are_those_that_are_tried():
    """Each setting that the table of the page gives a value is given to the engine."""
    assert settings_of_the_page() == {
        "provide.transaction.metadata": "true", "decimal.handling.mode": "string", "time.precision.mode": "isostring",
        "binary.handling.mode": "bytes", "skipped.operations": "none", "schemas.enable": "false",
        "tombstones.on.delete": "false", "snapshot.mode": "no_data", "plugin.name": "pgoutput",
        "publish.via.partition.root": "true",
    }  # fmt: skip
