"""The registrations of the demo: the same on every call, and what the spec of their table says."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.definitions import defs
from examples.registrations import (
    FIRST_DAY,
    LAST_DAY,
    MAX_A_DAY,
    file_of,
    registrations_of,
    write_registrations,
)

LEAP_DAY = date(2024, 2, 29)


def spec() -> TableSpec:
    from backfill_assets.assets.factory import tables_of

    return tables_of(defs(None))[1]["bronze/registration_events"]


def test_a_day_is_the_same_on_every_call():
    """The same seed gives the same rows, and another seed others."""
    assert registrations_of(LEAP_DAY, seed=1) == registrations_of(LEAP_DAY, seed=1)
    assert registrations_of(LEAP_DAY, seed=1) != registrations_of(LEAP_DAY, seed=2)


def test_rows_have_the_columns_of_the_table_and_lie_in_their_day():
    """Each row has the spec's columns, an id of its own, and an event time inside its day."""
    rows, columns = registrations_of(LEAP_DAY, seed=1), list(spec().columns)
    assert MAX_A_DAY // 4 <= len(rows) <= MAX_A_DAY
    assert all(list(row) == columns for row in rows)
    assert len({row["registration_id"] for row in rows}) == len(rows)
    assert {datetime.fromisoformat(row["registered_at"]).astimezone(UTC).date() for row in rows} == {LEAP_DAY}


def test_files_lie_where_the_table_looks_for_them(tmp_path):
    """One file a day, by year, month and day, with one JSON object a line and nothing beside it."""
    written = write_registrations(tmp_path, first_day=LEAP_DAY, last_day=date(2024, 3, 1), seed=1)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert files == [file_of(tmp_path, LEAP_DAY), file_of(tmp_path, date(2024, 3, 1))]
    assert files[0].parent == tmp_path / "2024" / "02" / "29"
    lines = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    assert (len(lines), lines[: len(registrations_of(LEAP_DAY, seed=1))]) == (
        written,
        registrations_of(LEAP_DAY, seed=1),
    )


def test_the_flows_are_the_years_that_are_made():
    """The table's once-flows cover exactly the days that the demo writes."""
    flows = spec().once_flows
    assert [flow.name for flow in flows] == [
        "registration_events_2022",
        "registration_events_2023",
        "registration_events_2024",
    ]
    assert (flows[0].partitions[0].key, flows[-1].partitions[-1].key) == (str(FIRST_DAY), str(LAST_DAY))
