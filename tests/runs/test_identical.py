"""A range that was launched before, launched again: nothing is written that is there, and what is broken is mended."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import deltalake
import pytest

from backfill_assets.runs import launch as launches
from tests.support.launching import new_lake
from tests.support.shop import multiset, orders

DAYS = ["2024-01-01", "2024-01-02", "2024-01-03"]
AFTER = "2024-01-04"


@pytest.fixture
def launched(tmp_path):
    """Three days, in the table since one launch."""
    lake = new_lake(tmp_path)
    for day in DAYS:
        lake.export(day, orders(day, 3))
    assert lake.launch(DAYS[0], DAYS[-1]).succeeded
    return lake


WHOLE = multiset(row for day in DAYS for row in orders(day, 3))


def version(lake):
    return deltalake.DeltaTable(str(lake.path())).version()


def file_of(lake, day):
    (path,) = [p for p in lake.path().glob(f"dt={day}/*.parquet") if p.suffix == ".parquet"]
    return path


def without_its_checksum(path):
    """Hadoop's own would notice first."""
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


def flip(path):
    """Damage the rows of a file, and not its footer."""
    without_its_checksum(path)
    packed = bytearray(path.read_bytes())
    packed[4:40] = bytes(36)
    path.write_bytes(packed)


def test_nothing_is_written_twice(launched):
    """No commit; Dagster has an event for each partition all the same, with the publish that counts and why."""
    before, content = version(launched), launched.content()
    again = launched.launch(DAYS[0], DAYS[-1])
    assert again.succeeded
    assert version(launched) == before
    assert launched.content() == content
    assert again.recorded() == DAYS
    assert again.verdicts() == dict.fromkeys(DAYS, True)
    said = again.metadata(DAYS[1])
    assert said["table_version"] == before
    assert said["identical"].startswith("are in the table as they would be written, row for row")
    assert "| 0 | 0 | 0 | 0 B | 0 | 3 | 0 | 0 |" in again.launch


@pytest.mark.prove
def test_what_was_corrected_is_written(launched):
    """And nothing beside it, although both lie in one chunk."""
    corrected = orders(DAYS[1], 3, amount=Decimal("9.99"))
    launched.export(DAYS[1], corrected)
    before = version(launched)
    again = launched.launch(DAYS[0], DAYS[-1])
    assert again.succeeded
    assert version(launched) == before + 1
    assert "identical" not in again.metadata(DAYS[1])
    assert "identical" in again.metadata(DAYS[0])
    assert launched.content() == multiset([*orders(DAYS[0], 3), *corrected, *orders(DAYS[2], 3)])


@pytest.mark.prove
def test_nothing_is_written_twice_whose_commits_were_cleaned_away(launched):
    """Delta keeps its log for 30 days: the copy still knows what a table of few commits was made of."""
    launched.export(DAYS[1], orders(DAYS[1], 3, amount=Decimal("9.99")))
    assert launched.launch(DAYS[1], DAYS[1]).succeeded
    table = deltalake.DeltaTable(str(launched.path()))
    table.create_checkpoint()
    for forgotten in range(table.version()):
        (launched.path() / f"_delta_log/{forgotten:020}.json").unlink()
    before = table.version()
    again = launched.launch(DAYS[0], DAYS[-1])
    assert again.succeeded, again.failure
    assert version(launched) == before
    assert "identical" in again.metadata(DAYS[0])


@pytest.mark.parametrize("damage", [pytest.param("deleted", marks=pytest.mark.prove), "flipped"])
def test_a_broken_file_is_written_anew(launched, damage):
    """The log says nothing of it, and so does the receipt: the table's rows are read before they are believed."""
    path = file_of(launched, DAYS[1])
    without_its_checksum(path)
    if damage == "deleted":
        path.unlink()
    else:
        flip(path)
    again = launched.launch(DAYS[0], DAYS[-1])
    assert again.succeeded, again.log
    assert launched.content() == WHOLE
    assert again.verdicts() == dict.fromkeys(DAYS, True)


def test_what_somebody_else_wrote_is_written(launched):
    """Also if they wrote the very same rows: they may have written more than that."""
    theirs = deltalake.DeltaTable(str(launched.path()))
    same = theirs.to_pyarrow_table(filters=[("dt", "=", date.fromisoformat(DAYS[2]))])
    deltalake.write_deltalake(theirs, same, mode="overwrite", predicate=f"dt = '{DAYS[2]}'")
    again = launched.launch(DAYS[0], DAYS[-1])
    assert again.succeeded
    assert ["identical" in again.metadata(day) for day in DAYS] == [True, True, False]
    assert launched.content() == WHOLE


@pytest.mark.prove
def test_it_can_be_asked_for(launched):
    """For whoever wants new files of the same rows."""
    before = version(launched)
    assert launched.launch(DAYS[0], DAYS[-1], rewrite_identical=True).succeeded
    assert version(launched) == before + 1


@pytest.mark.prove
def test_what_is_written_after_the_launch_has_read_it_is_seen(launched, monkeypatch):
    """Somebody takes a row away between the launch and its check: the check reads that partition, and is red."""
    record = launches.record_found

    def deleting(*what, **why):
        deltalake.DeltaTable(str(launched.path())).delete(f"dt = '{DAYS[1]}' AND customer = 'customer 1'")
        record(*what, **why)

    monkeypatch.setattr(launches, "record_found", deleting)
    again = launched.launch(DAYS[0], DAYS[-1])
    assert again.verdicts() == {DAYS[0]: True, DAYS[1]: False, DAYS[2]: True}


@pytest.mark.prove
def test_identical_partitions_are_judged_beside_refused_ones(launched):
    """A run that fails for one day still says of the others that they equal their source."""
    launched.export(DAYS[1], [*orders(DAYS[1], 3), *orders(DAYS[1], 1)])
    again = launched.launch(DAYS[0], DAYS[-1])
    assert not again.succeeded
    assert again.verdicts() == {DAYS[0]: True, DAYS[1]: False, DAYS[2]: True}


@pytest.mark.prove
def test_what_is_up_to_date_stays_green_beside_what_is_refused(launched):
    """A launch of what is missing leaves it out, and fails for another day: nobody would say that it was not checked."""
    launched.export(DAYS[1], [*orders(DAYS[1], 3), *orders(DAYS[1], 1)])
    again = launched.launch(DAYS[0], AFTER, only="MISSING")
    assert not again.succeeded
    assert again.verdicts() == {DAYS[0]: True, DAYS[1]: False, DAYS[2]: True, AFTER: False}
    assert launched.shown_of_check(*DAYS, AFTER) == {
        DAYS[0]: "succeeded",
        DAYS[1]: "failed",
        DAYS[2]: "succeeded",
        AFTER: "failed",
    }
