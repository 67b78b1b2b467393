"""Receipts: what goes into a commit comes out of it, and nothing else is taken for one."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.calendar.partitions import Grid
from backfill_assets.core.calendar.windows import Grain
from backfill_assets.core.spec.table import MAX_PARTITIONS_PER_COMMIT, TableSpec
from backfill_assets.core.state.receipts import (
    FORMAT,
    Measured,
    PartitionReceipt,
    Receipt,
    Run,
    audited_contents,
    has_other_columns,
    newest_by_partition,
    receipt_from_json,
    summed_columns,
)
from backfill_assets.core.state.tallies import CHECKSUM_ENCODING, Tally
from backfill_assets.errors import ReceiptError
from tests.support.fakes import receipt_of
from tests.support.live_shop import live_spec

SPEC = live_spec()

MICROS = st.none() | st.integers(-(1 << 62), 1 << 62)
PARTITION_RECEIPTS = st.builds(
    PartitionReceipt,
    rows=st.integers(0, 1 << 62),
    checksum=st.integers(0, (1 << 64) - 1).map(lambda n: f"{n:016x}"),
    first_event_micros=MICROS,
    last_event_micros=MICROS,
    fingerprint=st.text(max_size=20),
    superseded_rows=st.integers(0, 1 << 62),
    late_rows=st.integers(0, 1 << 62),
    measures=st.lists(st.builds(Measured), max_size=2).map(tuple),
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
RECEIPTS = st.builds(
    Receipt,
    receipt_id=st.text(),
    table=st.text(),
    run=st.builds(Run, **dict.fromkeys(("id", "root_id", "by", "reason", "plan", "flow", "code_version"), st.text())),
    staged_from_version=st.integers(0, 1 << 40),
    source=st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=4),
    **dict.fromkeys(("made_at", "columns", "began_at", "overrides"), st.text()),
    partitions=st.dictionaries(st.dates().map(date.isoformat), PARTITION_RECEIPTS, max_size=4),
    kind=st.sampled_from(["publish", "put_back", "reset"]),
    late_version=st.none() | st.integers(0, 1 << 40),
    checksum_encoding=st.integers(1, 9),
)
DAY = PartitionReceipt(3, "00000000000000ff", 1, 2, "f1", 4, 5)


@given(RECEIPTS)
def test_a_receipt_survives_its_json(receipt):
    """Whatever is in a receipt is read back the same."""
    read = receipt_from_json(receipt.to_json())
    assert (read, read and read.to_json()) == (receipt, receipt.to_json())


def test_the_form_of_a_receipt_does_not_change():
    """The JSON is what people's queries and later versions read: a change of it needs a new format number."""
    receipt = receipt_of(
        {"2024-02-29": replace(DAY, measures=(Measured("sum(amount)", "", None, "3"),), rows_before=7)},
        reason="why",
        code_version="c1",
        kind="put_back",
        late_version=6,
        flow="orders_2024",
        made_at="2025-01-01T00:00:00+00:00",
        columns="c0ffee00",
        began_at="2024-12-31T23:59:00.125+00:00",
        plan="0123456789ab",
        by="ann",
        overrides="allow_shrink",
    )
    assert receipt.to_json() == (
        '{"backfill_assets":1,"receipt_id":"id","table":"bronze/orders","run":{"id":"run","root_id":"run","by":"ann",'
        '"reason":"why","plan":"0123456789ab","flow":"orders_2024","code_version":"c1"},'
        '"staged_from_version":0,"source":{"kind":"files"},'
        '"partitions":{"2024-02-29":[3,"00000000000000ff",1,2,"f1",4,5,[["sum(amount)","",null,"3"]],7]},'
        '"kind":"put_back","late_version":6,"checksum_encoding":1,'
        '"made_at":"2025-01-01T00:00:00+00:00","columns":"c0ffee00",'
        '"began_at":"2024-12-31T23:59:00.125+00:00","overrides":"allow_shrink"}'
    )
    assert (FORMAT, CHECKSUM_ENCODING) == (1, 1)


def test_checksums_are_of_columns_in_their_order():
    """One more column, another type, or another order: what was summed up before is no more to be compared; other code alone is."""
    columns = SPEC.model_dump(exclude_unset=True)["columns"]
    receipt = receipt_of({"2024-02-29": DAY}, code_version="c1", columns=summed_columns(SPEC))
    changed = [{**columns, "note": "string"}, {**columns, "amount": "decimal(20,2)"}, dict(reversed(columns.items()))]
    others = [TableSpec.model_validate({**SPEC.model_dump(exclude_unset=True), "columns": c}) for c in changed]
    assert not has_other_columns(receipt, SPEC)
    assert [has_other_columns(receipt, other) for other in others] == [True, True, True]


def test_the_largest_receipt_is_small():
    """Two thousand partitions with numbers as long as they get stay below 400 kB in the log."""
    partition = Grid(Grain.DAILY, date(2020, 1, 1)).partition("2020-01-01")
    partitions = {}
    for n in range(MAX_PARTITIONS_PER_COMMIT):
        key = date.fromordinal(partition.value.toordinal() + n).isoformat()
        partitions[key] = PartitionReceipt(
            10**12, "f" * 16, 1_700_000_000_000_000, 1_700_086_399_999_999, "e" * 16, 10**9, 10**9
        )
    text = receipt_of(partitions).to_json()
    assert len(partitions) == 2_000
    assert len(text.encode()) < 400_000
    read = receipt_from_json(text)
    assert read.partitions == partitions


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        "",
        "backfill_assets",
        '"backfill_assets"',
        '["backfill_assets"]',
        '{"written_by": "backfill_assets"}',
        '{"backfill_assets": 2}',
        "null",
    ],
)
def test_the_metadata_of_others_is_no_receipt(metadata):
    """A commit without metadata, or with somebody else's, has no receipt, even if our name is in it; nor has one of another format."""
    assert receipt_from_json(metadata) is None


def damaged(**changes):
    body = {**json.loads(receipt_of({"2024-02-29": DAY}).to_json()), **changes}
    return json.dumps({name: value for name, value in body.items() if value != "gone"})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (damaged(partitions="gone"), "'partitions'"),
        (damaged(partitions=[]), "'list' object has no attribute 'items'"),
        (damaged(partitions={"2024-02-29": [1, "a"]}), "missing 3 required positional arguments"),
        (damaged(run="gone"), "'run'"),
        (damaged(table="gone"), "missing 1 required positional argument: 'table'"),
        (damaged(colour="blue"), "unexpected keyword argument 'colour'"),
    ],
)
def test_a_receipt_that_cannot_be_read_is_an_error(text, why):
    """A damaged receipt is never taken for somebody else's metadata."""
    with pytest.raises(ReceiptError) as caught:
        receipt_from_json(text)
    assert why in caught.value.what
    assert caught.value.what.startswith("A commit holds a receipt that cannot be read (")
    assert caught.value.state == "The table's rows are not affected."


def test_a_partition_receipt_says_what_its_tally_says():
    """Rows, checksum and ends are taken from the tally; where they came from is told."""
    tally = Tally(rows=3, checksum=255, first_event_micros=1, last_event_micros=2, null_keys=9)
    assert PartitionReceipt.of(tally, fingerprint="f1", superseded_rows=4, late_rows=5) == DAY


def test_a_partition_receipt_matches_the_rows_it_names():
    """A receipt matches a tally with the same rows and checksum, and no other."""
    assert DAY.matches(Tally(rows=3, checksum=255))
    assert not DAY.matches(Tally(rows=4, checksum=255))
    assert not DAY.matches(Tally(rows=3, checksum=254))


def test_the_newest_publish_of_each_partition():
    """Of several versions the highest that names a partition counts for it, in whatever order they are given."""
    older, newer = (
        receipt_of({"a": DAY, "b": DAY}, receipt_id="older"),
        receipt_of({"b": DAY, "c": DAY}, receipt_id="newer"),
    )
    newest = newest_by_partition({12: newer, 3: older})
    assert {key: (published.version, published.receipt.receipt_id) for key, published in newest.items()} == {
        "a": (3, "older"),
        "b": (12, "newer"),
        "c": (12, "newer"),
    }
    assert newest["b"].partition is newer.partitions["b"]


def test_what_was_put_back_to_nothing_is_published_by_nobody():
    """A put back over a publish is known as one; a put back to before the first publish leaves nothing known of the partition."""
    first, again = receipt_of({"a": DAY}), receipt_of({"a": DAY, "b": DAY})
    back = receipt_of({"a": DAY, "b": DAY}, kind="put_back", source={"kind": "version", "version": 1})
    newest = newest_by_partition({1: first, 2: again, 3: back})
    assert {key: published.version for key, published in newest.items()} == {"a": 3}
    later = newest_by_partition({1: first, 2: again, 3: back, 4: again})
    assert {key: published.version for key, published in later.items()} == {"a": 4, "b": 4}


@pytest.mark.parametrize(
    ("change", "asked_by", "is_audited"),
    [
        ({}, "this", True),
        ({"columns": "others"}, "this", False),
        ({"checksum_encoding": CHECKSUM_ENCODING + 1}, "this", False),
        ({"code_version": ""}, "", False),
        ({"kind": "put_back"}, "this", False),
    ],
)
def test_what_an_audit_let_through(change, asked_by, is_audited):
    """As the docstring's table says."""
    partition = PartitionReceipt.of(Tally(rows=3, checksum=7), fingerprint="f")
    facts = {"code_version": "this", "columns": summed_columns(SPEC), **change}
    published = newest_by_partition({1: receipt_of({"2024-01-01": partition}, **facts)})

    known = audited_contents(
        published, [SPEC.grid.partition("2024-01-01"), SPEC.grid.partition("2024-01-02")], SPEC, asked_by
    )

    assert known == ({"2024-01-01": (3, "0000000000000007")} if is_audited and published else {})
