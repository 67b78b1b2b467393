"""Reconciliation: each rule's wording, and source and table read afresh over lists."""

from __future__ import annotations

import pytest

from backfill_assets.core.history.comparison import compare
from backfill_assets.core.history.publish import materialize
from backfill_assets.core.history.reconcile import reconcile
from backfill_assets.core.spec.checks import Rule
from backfill_assets.core.state.receipts import PartitionReceipt
from backfill_assets.core.state.tallies import Tally
from backfill_assets.errors import SourceIncompleteError
from tests.support.fake_lake import FakeLake
from tests.support.fakes import ORDERS, FakeSource, files_of, launch_with, orders_of, spec_with

DAYS = ORDERS.grid.between("2024-02-27", "2024-03-01")
LEAP_DAY = DAYS[2]


@pytest.fixture
def source():
    return FakeSource(ORDERS, files_of(ORDERS, "2024-02-27", "2024-03-01"))


@pytest.fixture(params=["", "1"], ids=["rows kept", "rows not kept"])
def lake(request, source):
    """A table of which the code is known, or not: then all that is read is kept."""
    made = FakeLake(ORDERS)
    list(materialize(ORDERS, DAYS, source, made, launch_with(code_version=request.param)))
    return made


def compared(source, lake, spec=ORDERS, **named):
    named.setdefault("code_version", next((receipt.run.code_version for receipt in lake.receipts().values()), ""))
    found = list(reconcile(spec, DAYS, source, lake, **named))
    assert lake.staged_now == 0, "rows were not let go"
    return found


def failures(comparisons):
    return {c.partition.key: [str(verdict) for verdict in c.failures] for c in comparisons if not c.passed}


# -- one partition -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "source", "rows", "sentence"),
    [
        (Tally(rows=5), None, 5, "rows_match_source: it was never published."),
        (
            Tally(rows=1_005),
            Tally(rows=5),
            1_000,
            "rows_match_source: the table has 1,005 rows, 1,000 more than its source (5).",
        ),
        (
            Tally(rows=5, checksum=1),
            Tally(rows=5, checksum=2),
            1,
            "rows_match_source: both have 5 rows, but not the same: checksum `0000000000000001`, source `0000000000000002`.",
        ),
        (
            Tally(rows=5, duplicate_keys=2, null_keys=1),
            Tally(rows=5),
            3,
            "keys_are_unique: 2 rows repeat a key and 1 rows have no key.",
        ),
        (
            Tally(rows=5, stray_rows=4),
            Tally(rows=5),
            4,
            "rows_inside_partition: 4 rows have an event time outside the partition.",
        ),
    ],
)
def test_a_rule_that_does_not_hold_says_why(table, source, rows, sentence):
    """Each rule has its own sentence and count, and the others hold."""
    comparison = compare(LEAP_DAY, table=table, source=source)
    assert not comparison.passed
    assert [(str(verdict), verdict.rows) for verdict in comparison.failures] == [(sentence, rows)]
    assert str(comparison) == f"2024-02-29: {sentence}"


def test_what_is_equal_is_reconciled():
    """Equal rows and checksums pass every rule, in the order in which the rules are named."""
    comparison = compare(LEAP_DAY, table=Tally(rows=5, checksum=9), source=Tally(rows=5, checksum=9))
    assert str(comparison) == "2024-02-29: reconciled"
    assert [verdict.rule for verdict in comparison.verdicts] == list(Rule)
    assert [str(verdict) for verdict in comparison.verdicts] == [f"{rule}: holds" for rule in Rule]
    assert (comparison.source_rows, comparison.table_rows) == (5, 5)


@pytest.mark.parametrize(("rows", "checksum", "passes"), [(5, 9, True), (5, 8, False), (6, 9, False)])
def test_a_receipt_stands_for_the_source(rows, checksum, passes):
    """A table can be held against the receipt of what was published, without reading the source."""
    receipt = PartitionReceipt.of(Tally(rows=5, checksum=9), fingerprint="f", superseded_rows=0)
    assert compare(LEAP_DAY, table=Tally(rows=rows, checksum=checksum), source=receipt).passed == passes


# -- afresh ------------------------------------------------------------------------------------------------------------


def test_a_table_that_was_just_published_reconciles(source, lake):
    """After a launch every partition equals its source, and reconciling writes nothing."""
    version = lake.version()
    found = compared(source, lake)
    assert [c.partition for c in found] == DAYS
    assert failures(found) == {}
    assert lake.version() == version


def test_a_changed_row_is_found_and_named(source, lake):
    """A value that somebody changed in the table is a difference on both sides, with rows; other partitions reconcile."""
    rows = orders_of(ORDERS, LEAP_DAY.key)
    lake.commit_as_somebody_else({LEAP_DAY.key: [{**rows[0], "amount": 5}, *rows[1:]]})
    ((key, (sentence,)),) = failures(compared(source, lake)).items()
    assert key == LEAP_DAY.key
    assert sentence.startswith("rows_match_source: both have 3 rows, but not the same: checksum `")
    assert sentence.endswith("; 1 rows only in the source, 1 only in the table. For example: row of 2024-02-29.")


def test_a_row_too_few_is_found(source, lake):
    """A row that the table lost is found, and counted."""
    lake.commit_as_somebody_else({LEAP_DAY.key: orders_of(ORDERS, LEAP_DAY.key)[1:]})
    (comparison,) = [c for c in compared(source, lake) if not c.passed]
    assert (comparison.source_rows, comparison.table_rows, comparison.failures[0].rows) == (3, 2, 1)


def test_a_torn_source_is_a_finding_not_an_exception(source, lake):
    """A file that cannot be read fails its partition with that reason; the rest is compared."""
    source.unreadable.add(LEAP_DAY.key)
    assert failures(compared(source, lake)) == {
        LEAP_DAY.key: ["rows_match_source: files_are_readable: `2024-02-29.parquet` cannot be read."]
    }


def test_an_empty_source_is_compared_not_audited(source, lake):
    """A partition whose source has no rows any more differs; that a launch would refuse it plays no part."""
    source.files[LEAP_DAY.key] = []
    ((_, (sentence,)),) = failures(compared(source, lake)).items()
    assert sentence.startswith(
        "rows_match_source: the table has 3 rows, 3 more than its source (0); 0 rows only in the source, 3 only in the table."
    )


def test_other_columns_fail_every_partition(source, lake):
    """The table's schema is part of each partition's verdict."""
    lake.columns_differ = ["`amount` is missing"]
    assert failures(compared(source, lake)) == {p.key: ["schema_matches: `amount` is missing."] for p in DAYS}


def test_the_table_is_read_at_one_version(source, lake):
    """A commit during the comparison is not half seen: every partition is read at the version from its start."""
    spec = spec_with(chunk={"max_partitions": 1})
    found = reconcile(spec, DAYS, source, lake)
    first = next(found)
    lake.commit_as_somebody_else({LEAP_DAY.key: []})
    assert failures([first, *found]) == {}


def test_what_is_published_meanwhile_is_compared_again(source, lake):
    """A launch publishes what was corrected while others are compared: no difference is told that there is no more."""
    spec, said = spec_with(chunk={"max_partitions": 1}), []
    source.files[LEAP_DAY.key] = orders_of(ORDERS, LEAP_DAY.key, 5)
    found = reconcile(spec, DAYS, source, lake, log=said.append)
    first = next(found)
    list(materialize(ORDERS, [LEAP_DAY], source, lake, launch_with(run_id="run 2")))
    assert failures([first, *found]) == {}
    assert said == ["The table changed while it was read; the chunk is compared again."]


def test_what_is_written_again_and_again_is_no_difference(source, lake, monkeypatch):
    """Of a partition that somebody writes during both comparisons nothing is concluded; of the others it is, as ever."""
    tally, fewer = FakeLake.tally, orders_of(ORDERS, LEAP_DAY.key, 3)[1:]
    source.files[DAYS[0].key] = orders_of(ORDERS, DAYS[0].key, 4)

    def overtaken(self, *args, **how):
        self.commit_as_somebody_else({LEAP_DAY.key: fewer})
        return tally(self, *args, **how)

    lake.commit_as_somebody_else({LEAP_DAY.key: fewer})
    monkeypatch.setattr(FakeLake, "tally", overtaken)
    said = failures(compared(source, lake))
    assert said.keys() == {DAYS[0].key, LEAP_DAY.key}
    assert said[LEAP_DAY.key][0].startswith("rows_match_source: the table was written while it was compared, twice")
    assert "1 rows only in the source" in said[DAYS[0].key][0]


def test_partitions_beyond_the_source_are_not_compared(source):
    """They are left out and named in the log; with none left, there is nothing to compare and that is an error."""
    said, lake = [], FakeLake(ORDERS)
    list(materialize(ORDERS, DAYS[:2], source, lake, launch_with()))
    source.complete_until_utc = LEAP_DAY.window.start_utc
    assert [c.partition for c in compared(source, lake, log=said.append)] == DAYS[:2]
    assert said == ["2 partitions from 2024-02-29 on are left out: the source is not complete for them yet."]
    source.complete_until_utc = DAYS[0].window.start_utc
    with pytest.raises(SourceIncompleteError):
        compared(source, FakeLake(ORDERS))


def test_what_the_source_has_lost_equals_nothing(source, lake):
    """Partitions that are published, and for which the source was complete and is no more, are compared and fail."""
    said = []
    source.complete_until_utc = LEAP_DAY.window.start_utc
    found = compared(source, lake, log=said.append)
    assert [(c.partition, c.table_rows) for c in found] == [(day, 3) for day in DAYS]
    lost = ["rows_match_source: published, and its source has it no more."]
    assert (failures(found), said) == ({day.key: lost for day in DAYS[2:]}, [])
    for until in (DAYS[0].window.start_utc, None):  # nothing is left beside it that could be compared
        source.complete_until_utc = until
        assert failures(compared(source, lake)) == {day.key: lost for day in DAYS}


# -- a source that does not stand still --------------------------------------------------------------------------------


def changing(source, times):
    """Let the leap day's file be replaced after it was read, the first so many times."""
    scan, amounts = source.scan, iter(range(2, 2 + times))

    def scan_and_change(partitions, surveys):
        read = scan(partitions, surveys)
        if (amount := next(amounts, None)) is not None:
            source.files[LEAP_DAY.key] = orders_of(ORDERS, LEAP_DAY.key, amount=amount)
        return read

    source.scan = scan_and_change


def test_a_source_that_changed_while_it_was_read_is_read_again(source, lake):
    """A file that was half replaced is no difference: it is compared once more, with what the source has then."""
    source.files[LEAP_DAY.key] = orders_of(ORDERS, LEAP_DAY.key, amount=9)
    right, said, scan = files_of(ORDERS, LEAP_DAY.key, LEAP_DAY.key)[LEAP_DAY.key], [], source.scan

    def scan_and_put_right(partitions, surveys):
        read = scan(partitions, surveys)
        source.files[LEAP_DAY.key] = right
        return read

    source.scan = scan_and_put_right
    assert failures(compared(source, lake, log=said.append)) == {}
    assert said == ["The source of 2024-02-29 changed while it was read; the chunk is compared again."]


def test_a_source_that_keeps_changing_is_said_to(source, lake):
    """Read twice, and changed both times: it is not green, and the sentence says why instead of naming rows."""
    source.files[LEAP_DAY.key] = orders_of(ORDERS, LEAP_DAY.key, amount=9)
    changing(source, 2)
    assert failures(compared(source, lake)) == {
        LEAP_DAY.key: [
            "rows_match_source: the source changed while it was read, twice; compare it again when whoever writes it has finished."
        ]
    }
