"""The use case over a source and a lake in memory: what is published when, and what is left when something breaks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import AuditRule
from backfill_assets.core.history.plan import Launch, LeftOut
from backfill_assets.core.history.ports import Effects
from backfill_assets.core.history.publish import ATTEMPTS, Published, Refused, materialize
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import (
    NOTHING_WRITTEN,
    CommitConflictError,
    MemoryExhaustedError,
    SchemaMismatchError,
    SourceChangedError,
    SourceIncompleteError,
    StagedContentLostError,
    TableLockedError,
    UnreadableSourceError,
    UnsafeWriteError,
    WindowError,
)
from tests.support.fake_lake import FakeLake
from tests.support.fakes import ORDERS, PROBLEM, FakeSource, Script, files_of, hash_of, orders_of, raising, spec_with

FIRST, LAST = "2024-02-26", "2024-03-02"
KEYS = ["2024-02-26", "2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01", "2024-03-02"]
BAD = "2024-02-28"
POINTS_OF_A_CHUNK = ["scan", "stage", "before_save", "during_save", "after_commit"]
LOCKED = TableLockedError("Somebody holds the lock.", state=NOTHING_WRITTEN, remedy="Wait.")
CONFLICT = CommitConflictError("Another writer was there.", state=NOTHING_WRITTEN, remedy="Try again.")


class Killed(BaseException):
    """What a crash is to the code: nothing that it could catch."""


@dataclass
class World:
    """A source and a table that share a script, and what a launch said on its way."""

    spec: TableSpec = ORDERS
    script: Script = field(default_factory=Script)
    said: list[str] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)

    def __post_init__(self):
        self.source = FakeSource(self.spec, files_of(self.spec, FIRST, LAST), self.script)
        self.lake = FakeLake(self.spec, self.script)

    def outcomes(self, keys=KEYS, *, run_id="run", chunk=None, **launch):
        """Start a launch of some partitions; it goes on as its outcomes are taken."""
        launch.setdefault("root_run_id", run_id)
        partitions = [key if isinstance(key, Partition) else self.spec.grid.partition(key) for key in keys]
        effects = Effects(log=self.said.append, sleep=self.slept.append)
        effects = replace(effects, **{name: launch.pop(name) for name in ("clock", "now") if name in launch})
        made = Launch(run_id, max_partitions_per_chunk=chunk, **launch)
        return materialize(self.spec, partitions, self.source, self.lake, made, effects=effects)

    def run(self, keys=KEYS, **launch):
        """Launch to the end; whatever happens, no rows are held afterwards."""
        outcomes, held_before = [], self.lake.staged_now
        try:
            for outcome in self.outcomes(keys, **launch):
                outcomes.append(outcome)  # noqa: PERF402 (kept when the launch raises)
        finally:
            assert self.lake.staged_now == held_before, "rows were not let go"
        return outcomes

    def correct(self, *keys, amount=2):
        """Replace the source's files of some partitions: same keys, other amounts."""
        for key in keys:
            self.source.files[key] = orders_of(self.spec, key, amount=amount)

    def source_content(self):
        """Return what the table has when it equals its source."""
        return {key: sorted(map(hash_of, rows)) for key, rows in self.source.files.items() if rows}


@pytest.fixture
def world():
    return World()


@pytest.fixture
def filled():
    """A table that was published once, and a source that was corrected everywhere since."""
    made = World()
    made.run(run_id="before")
    made.correct(*KEYS)
    return made


def published_keys(outcomes):
    return [[p.key for p in outcome.partitions] for outcome in outcomes if isinstance(outcome, Published)]


def refused_keys(outcomes):
    return [outcome.verdict.partition.key for outcome in outcomes if isinstance(outcome, Refused)]


def left_out(outcomes):
    return [([p.key for p in o.partitions], o.why, o.published) for o in outcomes if isinstance(o, LeftOut)]


# -- chunks ------------------------------------------------------------------------------------------------------------


def test_a_launch_makes_the_table_equal_to_its_source(world):
    """Every partition that is named is published, in one commit if it fits, and no other."""
    world.source.files["2024-02-25"] = orders_of(ORDERS, "2024-02-25")
    assert published_keys(world.run()) == [KEYS]
    expected = world.source_content()
    del expected["2024-02-25"]
    assert world.lake.content() == expected
    assert world.lake.version() == 1


def test_a_chunk_is_a_commit(world):
    """Chunks are published one by one, in order of time; each outcome says which of how many it is."""
    outcomes = world.run(reversed(KEYS), chunk=2)
    assert published_keys(outcomes) == [KEYS[:2], KEYS[2:4], KEYS[4:]]
    assert [(o.chunk, o.chunks, o.commit.version) for o in outcomes] == [(1, 3, 1), (2, 3, 2), (3, 3, 3)]
    assert [version.touched for version in world.lake.versions[1:]] == [set(KEYS[:2]), set(KEYS[2:4]), set(KEYS[4:])]


def test_the_spec_says_how_large_chunks_are_unless_the_launch_does():
    """The limits on partitions and on bytes are the spec's; a launch may set the first one."""
    by_partitions = World(spec_with(chunk={"max_partitions": 3}))
    assert published_keys(by_partitions.run()) == [KEYS[:3], KEYS[3:]]
    assert len(published_keys(by_partitions.run(chunk=6))) == 1
    by_bytes = World(spec_with(chunk={"max_source_bytes": 700}))
    assert published_keys(by_bytes.run()) == [KEYS[:2], KEYS[2:4], KEYS[4:]]


def test_a_chunk_is_in_the_table_before_the_next_is_read(world):
    """Who stops taking outcomes stops the launch: what was told is published, and nothing more was staged."""
    outcomes = world.outcomes(chunk=2)
    assert published_keys([next(outcomes)]) == [KEYS[:2]]
    assert world.lake.content().keys() == set(KEYS[:2])
    assert world.source.staged_keys == [KEYS[:2]]
    outcomes.close()
    assert world.lake.version() == 1
    assert world.lake.staged_now == 0


def test_the_receipt_in_the_commit_says_what_was_done(world):
    """The commit carries who, why, from where and what, as the outcome tells it."""
    world.run(run_id="earlier")
    (outcome,) = world.run(KEYS[:2], run_id="run 7", root_run_id="run 1", reason="late files", code_version="c4")
    receipt = world.lake.receipts()[2]
    assert receipt == outcome.receipt
    assert (receipt.table, receipt.run_id, receipt.root_run_id) == ("bronze/orders", "run 7", "run 1")
    assert (receipt.reason, receipt.code_version, receipt.kind) == ("late files", "c4", "publish")
    assert (receipt.staged_from_version, receipt.source) == (1, {"kind": "files", "files": 2})
    surveys = world.source.survey([ORDERS.grid.partition(key) for key in KEYS[:2]])
    assert {key: (p.rows, p.fingerprint) for key, p in receipt.partitions.items()} == {
        key: (3, surveys[key].fingerprint) for key in KEYS[:2]
    }
    tallies = world.lake.tally(outcome.partitions)
    assert all(receipt.partitions[key].matches(tallies[key]) for key in KEYS[:2])


def test_every_publish_has_its_own_receipt_id(world):
    """Receipts of chunks, and of the same launch twice, can be told apart."""
    world.run(chunk=2)
    world.run(chunk=2)
    assert len({receipt.receipt_id for receipt in world.lake.receipts().values()}) == 6


def test_rows_that_a_newer_one_replaced_are_counted():
    """With `latest_wins_by` the newest row of a key is published, and the receipt counts the others."""
    world = World(spec_with(latest_wins_by=["updated_at"]))
    (first, *_) = world.source.files[BAD]
    newer = {**first, "amount": 99, "updated_at": first["updated_at"] + timedelta(hours=1)}
    world.source.files[BAD].insert(0, newer)
    world.run()
    assert sorted(row["amount"] for row in world.lake.versions[1].rows[BAD]) == [1, 1, 99]
    receipt = world.lake.receipts()[1]
    assert {key: p.superseded_rows for key, p in receipt.partitions.items() if p.superseded_rows} == {BAD: 1}


def test_the_steps_are_timed(world):
    """The seconds of a chunk are told by step, and add up to the time that it took."""
    ticks = iter(range(100))
    (outcome,) = world.run(clock=lambda: float(next(ticks)))
    assert outcome.seconds == {"scan": 1.0, "stage": 1.0, "audit": 1.0, "save": 1.0, "verify": 1.0}


def test_a_launch_that_names_nothing_is_refused(world):
    """An empty list of partitions is an error, not a green launch that did nothing."""
    with pytest.raises(WindowError) as caught:
        world.run([])
    assert str(caught.value) == (
        "`bronze/orders`: no partition is named; the range is empty or reversed. Nothing was written. "
        "Name a range whose first partition is not after its last, for example `--partition-range 2024-01-01...2024-01-01`."
    )


def test_a_source_with_other_columns_is_refused_before_it_is_read(world):
    """If the source does not have the spec's columns, nothing is staged."""
    world.source.schema_problem = "`amount` is missing"
    with pytest.raises(SchemaMismatchError):
        world.run()
    assert world.script.passed == []


def test_remarks_on_the_columns_are_told(world):
    """What the source says of its columns without refusing them goes to the log."""
    world.source.remarks = ["`x` is not in the spec; left out."]
    world.run()
    assert world.said == ["`x` is not in the spec; left out."]


# -- completeness ------------------------------------------------------------------------------------------------------


def test_partitions_beyond_the_source_are_left_out(world):
    """A launch is clipped where the source stops being complete: one microsecond short of a partition's end is not it."""
    world.source.complete_until_utc = datetime(2024, 3, 1, tzinfo=UTC) - timedelta(microseconds=1)
    outcomes = world.run(reversed(KEYS))
    assert left_out(outcomes) == [(KEYS[3:], "the source is not complete for them yet; they stay missing", False)]
    assert published_keys(outcomes) == [KEYS[:3]]
    world.source.complete_until_utc = datetime(2024, 3, 1, tzinfo=UTC)
    assert published_keys(world.run()) == [KEYS[:4]]


def test_a_launch_beyond_the_source_is_refused(world):
    """If the source is complete for no partition, the launch fails and says how far it is."""
    world.source.complete_until_utc = datetime(2024, 2, 26, 12, tzinfo=UTC)
    with pytest.raises(SourceIncompleteError) as caught:
        world.run()
    assert str(caught.value) == (
        "`bronze/orders`: the source is complete up to `2024-02-26T12:00:00+00:00`, and the launch starts at "
        "`2024-02-26T00:00:00+00:00` (partition `2024-02-26`). Nothing was written. "
        "Launch partitions that end before that, or wait for the source."
    )
    assert caught.value.facts == {"complete_until": datetime(2024, 2, 26, 12, tzinfo=UTC)}
    assert world.script.passed == []


def test_a_launch_from_a_source_with_nothing_is_refused(world):
    """A source that has nothing at all is said to have nothing."""
    world.source.complete_until_utc = None
    with pytest.raises(SourceIncompleteError, match="the source has nothing yet, and the launch starts at"):
        world.run()


# -- the audit ---------------------------------------------------------------------------------------------------------


def put_stray(world):
    world.source.files[BAD][0]["created_at"] += timedelta(days=1)


def put_null(world):
    world.source.files[BAD][0]["order_id"] = None


def put_duplicate(world):
    world.source.files[BAD].append({**world.source.files[BAD][0], "amount": 7})


def put_unreadable_row(world):
    world.source.files[BAD][0][PROBLEM] = "line 1: `abc` is no number"


def put_unreadable_file(world):
    world.source.unreadable.add(BAD)


def put_lacking_column(world):
    for row in world.source.files[BAD]:
        row["amount"] = None
    world.source.lacking[BAD] = "amount"


def put_forgotten_row(world):
    world.source.forgotten.add(BAD)


def remove_file(world):
    del world.source.files[BAD]


def empty_file(world):
    world.source.files[BAD] = []


FAULTS = {
    put_stray: AuditRule.ROWS_INSIDE_PARTITION,
    put_null: AuditRule.REQUIRED_COLUMNS_ARE_FILLED,
    put_duplicate: AuditRule.KEYS_ARE_UNIQUE,
    put_unreadable_row: AuditRule.VALUES_FIT_THEIR_TYPES,
    put_unreadable_file: AuditRule.FILES_ARE_READABLE,
    put_lacking_column: AuditRule.SCHEMA_MATCHES,
    put_forgotten_row: AuditRule.ROWS_ARE_ACCOUNTED_FOR,
    remove_file: AuditRule.SOURCE_IS_PRESENT,
    empty_file: AuditRule.PARTITION_IS_NOT_EMPTIED,
}
ANY_FAULT = pytest.mark.parametrize(("fault", "rule"), FAULTS.items(), ids=lambda v: getattr(v, "__name__", str(v)))


@ANY_FAULT
def test_a_bad_partition_keeps_its_old_rows(filled, fault, rule):
    """Within a chunk the bad partition is in neither the commit nor its receipt; the others are published."""
    old = filled.lake.content()[BAD]
    fault(filled)
    outcomes = filled.run()
    others = [key for key in KEYS if key != BAD]
    assert published_keys(outcomes) == [others]
    assert refused_keys(outcomes) == [BAD]
    assert [f.rule for f in outcomes[-1].verdict.findings] == [rule]
    assert filled.lake.content()[BAD] == old
    assert {key: filled.lake.content()[key] for key in others} == {key: filled.source_content()[key] for key in others}
    assert filled.lake.version() == 2
    assert filled.lake.versions[2].touched == set(others)
    assert filled.lake.receipts()[2].partitions.keys() == set(others)


@ANY_FAULT
def test_a_chunk_of_bad_partitions_does_not_move_the_version(filled, fault, rule):
    """If no partition passes, nothing is committed, and the chunks beside it are published all the same."""
    fault(filled)
    outcomes = filled.run([BAD])
    assert refused_keys(outcomes) == [BAD]
    assert [f.rule for f in outcomes[0].verdict.findings] == [rule]
    assert filled.lake.version() == 1
    outcomes = filled.run(chunk=1)
    assert refused_keys(outcomes) == [BAD]
    assert filled.lake.version() == 1 + len(KEYS) - 1


def test_a_refusal_names_rows(filled):
    """A finding comes with a few of the rows that break the rule."""
    put_stray(filled)
    finding = filled.run([BAD])[0].verdict.findings[0]
    assert finding.examples == ("order_id=738944000 at 2024-02-29 00:00:00Z (belongs to 2024-02-29)",)


def test_only_suspects_are_examined():
    """The source looks closer where rows cannot be read or a column that may not be absent has no value; nowhere else."""
    world = World()
    put_unreadable_row(world)
    for row in world.source.files["2024-02-27"]:
        row["amount"] = None
    world.run()
    assert all(row["coupon"] is None for rows in world.source.files.values() for row in rows), (
        "an optional column is empty everywhere"
    )
    assert sorted(world.source.examined) == ["2024-02-27", BAD]


def test_a_column_that_is_null_everywhere_may_be(world):
    """A nullable column without any value passes if the source finds nothing wrong with its files."""
    for row in world.source.files[BAD]:
        row["amount"] = None
    assert refused_keys(world.run()) == []


def test_unreadable_files_beside_good_ones_are_read_around(world):
    """When a file cannot be read to its end, the chunk is read again without it, and only its partition is refused."""
    world.source.unreadable = {KEYS[0], BAD}
    outcomes = world.run()
    assert refused_keys(outcomes) == [KEYS[0], BAD]
    assert world.source.staged_keys == [KEYS, KEYS]
    assert world.slept == [], "it is no conflict: nobody needs to wait"


def test_a_read_that_fails_for_no_file_is_an_error(world):
    """If the source finds no file to blame, the launch fails instead of reading for ever."""
    world.script.at("stage", raising(UnreadableSourceError("No such host.", state=NOTHING_WRITTEN, remedy="Look.")))
    with pytest.raises(UnreadableSourceError, match="No such host"):
        world.run()
    assert world.source.staged_keys == [KEYS]
    assert world.lake.version() == 0


# -- emptiness ---------------------------------------------------------------------------------------------------------


def test_an_allowed_empty_partition_is_published_with_no_rows():
    """With `empty: allowed` the rows of a partition go, and its receipt says 0 rows."""
    world = World(spec_with(empty="allowed"))
    world.run()
    empty_file(world)
    assert published_keys(world.run()) == [KEYS]
    assert BAD not in world.lake.content()
    receipt = world.lake.receipts()[2].partitions[BAD]
    assert (receipt.rows, receipt.checksum, receipt.first_event_micros) == (0, "0" * 16, None)


def test_a_partition_that_was_empty_stays_empty_without_a_word(world):
    """A new partition without rows is published and recorded, whatever the spec says of emptying."""
    empty_file(world)
    outcomes = world.run()
    assert refused_keys(outcomes) == []
    assert world.lake.receipts()[1].partitions[BAD].rows == 0


def test_the_table_is_looked_at_only_where_nothing_was_staged(filled):
    """Whether a partition would be emptied is asked for partitions without staged rows alone."""
    filled.lake.looked_at.clear()
    filled.run()
    assert filled.lake.looked_at == []
    empty_file(filled)
    filled.run()
    assert filled.lake.looked_at == [BAD]


# -- what is left out --------------------------------------------------------------------------------------------------


def test_a_launch_redoes_what_it_names(world):
    """A plain launch writes every partition again, though the source did not change."""
    world.run()
    outcomes = world.run(run_id="another")
    assert left_out(outcomes) == []
    assert published_keys(outcomes) == [KEYS]


def test_only_missing_leaves_out_what_is_there(world):
    """`only: missing` publishes what has no receipt or whose source changed, and leaves out the rest with a reason."""
    world.run(KEYS[:4])
    world.correct("2024-02-27")
    outcomes = world.run(only="missing", run_id="another")
    unchanged = ["2024-02-26", "2024-02-28", "2024-02-29"]
    assert left_out(outcomes) == [(unchanged, "their receipt names the source's content as it is now", True)]
    assert published_keys(outcomes) == [["2024-02-27", "2024-03-01", "2024-03-02"]]
    assert world.lake.content() == world.source_content()


def test_only_missing_of_nothing_missing_does_nothing(world):
    """If nothing is missing, nothing is read and no version is made."""
    world.run()
    world.script.passed.clear()
    outcomes = world.run(only="missing")
    assert [keys for keys, _, _ in left_out(outcomes)] == [KEYS]
    assert len(outcomes) == 1
    assert world.script.passed == []


def test_only_missing_redoes_what_other_code_made(world):
    """A partition that another version of the code published is missing."""
    world.run(code_version="c1")
    assert published_keys(world.run(only="missing", code_version="c1")) == []
    assert published_keys(world.run(only="missing", code_version="c2")) == [KEYS]


def test_a_repeated_run_goes_on_where_it_was_killed(world):
    """A re-execution leaves out what the same chain of runs published of the same content."""
    world.script.at("scan", raising(Killed()), visit=2)
    with pytest.raises(Killed):
        world.run(chunk=2, run_id="run 1")
    outcomes = world.run(chunk=2, run_id="run 2", root_run_id="run 1", is_reexecution=True)
    assert left_out(outcomes) == [(KEYS[:2], "an earlier attempt of this run published the same content", True)]
    assert published_keys(outcomes) == [KEYS[2:4], KEYS[4:]]
    assert world.lake.content() == world.source_content()


def test_a_repeated_run_redoes_what_changed_since(world):
    """A partition whose source changed after the first attempt is published again."""
    world.run(run_id="run 1")
    world.correct(BAD)
    outcomes = world.run(run_id="run 2", root_run_id="run 1", is_reexecution=True)
    assert published_keys(outcomes) == [[BAD]]
    assert world.lake.content() == world.source_content()


def test_a_repeated_run_redoes_what_another_run_published(world):
    """What a run of another chain published is not left out, even with the same content."""
    world.run(run_id="run 1")
    world.run([BAD], run_id="somebody")
    outcomes = world.run(run_id="run 2", root_run_id="run 1", is_reexecution=True)
    assert published_keys(outcomes) == [[BAD]]


def test_a_first_run_leaves_nothing_out_by_its_id(world):
    """Only a re-execution leaves out; the same run id alone does not."""
    world.run(run_id="run 1")
    assert published_keys(world.run(run_id="run 1")) == [KEYS]


# -- a source that changes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["scan", "stage"])
def test_a_source_that_changes_while_it_is_read_is_read_again(filled, point):
    """The position is looked at again before the save; if it changed, everything is surveyed and staged afresh."""
    filled.script.at(point, lambda: filled.correct(BAD, amount=3))
    outcomes = filled.run()
    assert published_keys(outcomes) == [KEYS]
    assert filled.lake.content() == filled.source_content()
    assert filled.lake.version() == 2, "the torn read was not published"
    now = filled.source.survey([ORDERS.grid.partition(BAD)])[BAD].fingerprint
    assert filled.lake.receipts()[2].partitions[BAD].fingerprint == now
    assert len(filled.slept) == 1


def test_a_source_that_never_stops_changing_is_given_up(filled):
    """After five attempts the launch fails, says what changed, and the table is as it was."""
    old = filled.lake.content()
    amounts = iter(range(100, 200))
    filled.script.always("stage", lambda: filled.correct("2024-02-27", BAD, amount=next(amounts)))
    with pytest.raises(SourceChangedError) as caught:
        filled.run()
    assert str(caught.value) == (
        "The source of 2 partitions changed while it was read (first `2024-02-27`). Nothing was written. "
        "Launch again when whoever writes the source has finished."
    )
    assert caught.value.facts == {"partitions": ["2024-02-27", BAD]}
    assert len(filled.source.staged_keys) == 1 + ATTEMPTS
    assert (filled.lake.version(), filled.lake.content()) == (1, old)


def test_a_change_elsewhere_does_not_disturb(filled):
    """A file of a partition that the chunk does not hold may change meanwhile."""
    filled.script.at("stage", lambda: filled.correct(KEYS[-1], amount=3))
    filled.run(KEYS[:2])
    assert filled.slept == []


# -- other writers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [CONFLICT, LOCKED], ids=lambda e: type(e).__name__)
def test_a_conflict_is_tried_again(filled, error):
    """Four conflicts in a row are survived; each time everything is read again, after a longer wait."""
    for visit in range(1, ATTEMPTS):
        filled.script.at("during_save", raising(error), visit=visit)
    filled.run()
    assert filled.lake.content() == filled.source_content()
    assert len(filled.source.staged_keys) == 1 + ATTEMPTS
    assert all(0.5 * 2**n <= seconds <= 1.5 * 2**n for n, seconds in enumerate(filled.slept))
    assert len(filled.slept) == len(filled.said) == ATTEMPTS - 1
    assert (
        filled.said[0]
        == f"Attempt 1 of 5 was overtaken ({error}); everything is read again in {filled.slept[0]:.1f} s."
    )


def test_conflicts_without_end_are_given_up(filled):
    """The fifth conflict is the launch's error, and the table is as it was."""
    old = filled.lake.content()
    filled.script.always("during_save", raising(CONFLICT))
    with pytest.raises(CommitConflictError, match="Another writer was there"):
        filled.run()
    assert ATTEMPTS == 5
    assert filled.script.passed.count("during_save") == 1 + 5
    assert len(filled.slept) == 4
    assert (filled.lake.version(), filled.lake.content()) == (1, old)


def test_each_chunk_has_its_own_attempts(filled):
    """Conflicts of one chunk do not use up those of the next."""
    for visit in (1, 2, 3, 4, 6, 7, 8, 9):
        filled.script.at("during_save", raising(CONFLICT), visit=visit)
    assert published_keys(filled.run(chunk=3)) == [KEYS[:3], KEYS[3:]]


@pytest.mark.parametrize("point", ["before_save", "during_save"])
def test_an_error_that_a_retry_does_not_help_is_not_tried_again(filled, point):
    """A session that is not safe to write with stays so: the launch fails at once."""
    filled.script.at(point, raising(UnsafeWriteError("Loose.", state=NOTHING_WRITTEN, remedy="Set it back.")))
    with pytest.raises(UnsafeWriteError):
        filled.run()
    assert (len(filled.source.staged_keys), filled.slept, filled.lake.version()) == (2, [], 1)


@pytest.mark.parametrize("point", ["scan", "stage", "before_save", "during_save"])
def test_content_never_goes_back(filled, point):
    """A stages, the source is fixed, B stages and publishes, A goes on: the end is B's content, and A's receipt names it."""

    def fix_and_publish():
        filled.correct(BAD, amount=9)
        filled.run([BAD], run_id="B")

    filled.script.at(point, fix_and_publish)
    filled.run(run_id="A")
    assert [row["amount"] for row in filled.lake.versions[-1].rows[BAD]] == [9, 9, 9]
    assert filled.lake.content() == filled.source_content()
    last = max(filled.lake.receipts())
    assert filled.lake.receipts()[last].run_id == "A"
    assert len(filled.slept) == 1


@pytest.mark.parametrize("point", ["scan", "stage", "before_save", "during_save"])
def test_a_commit_of_somebody_else_in_between_is_overwritten_afresh(filled, point):
    """A foreign commit to the same partitions between staging and commit makes the chunk stage and publish again."""
    filled.script.at(point, lambda: filled.lake.commit_as_somebody_else({BAD: orders_of(ORDERS, BAD, amount=50)}))
    filled.run()
    assert filled.lake.content() == filled.source_content()
    assert len(filled.slept) == 1
    assert filled.lake.receipts()[max(filled.lake.receipts())].staged_from_version >= 2


@pytest.mark.parametrize("point", POINTS_OF_A_CHUNK)
def test_a_commit_to_other_partitions_does_not_disturb(filled, point):
    """Launches of disjoint partitions run side by side: neither waits for the other or undoes it."""
    filled.script.at(point, lambda: filled.run([BAD], run_id="B"))
    filled.run(KEYS[:2], run_id="A")
    assert filled.slept == []
    assert {key: filled.lake.content()[key] for key in [*KEYS[:2], BAD]} == {
        key: filled.source_content()[key] for key in [*KEYS[:2], BAD]
    }


def test_a_commit_after_ours_is_newer(filled):
    """What somebody else commits after our commit stays: that is not being overtaken."""
    filled.script.at(
        "after_commit", lambda: filled.lake.commit_as_somebody_else({BAD: orders_of(ORDERS, BAD, amount=50)})
    )
    filled.run()
    assert filled.slept == []
    assert [row["amount"] for row in filled.lake.versions[-1].rows[BAD]] == [50, 50, 50]


def test_being_overtaken_without_end_says_what_the_table_holds(filled):
    """If every attempt is overtaken after its commit, the launch fails and does not claim that nothing was written."""
    filled.script.always("during_save", lambda: filled.lake.commit_as_somebody_else({BAD: orders_of(ORDERS, BAD)}))
    with pytest.raises(CommitConflictError) as caught:
        filled.run()
    assert str(caught.value) == (
        "`bronze/orders`: version 10 wrote partitions of this chunk after it was staged from version 9. "
        "Version 11 holds content that may be older. It is staged and published again."
    )


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bearable", "chunks"),
    [(6, [6]), (5, [3, 3]), (3, [3, 3]), (2, [1, 2, 1, 2]), (1, [1, 1, 1, 1, 1, 1])],
)
def test_a_chunk_that_is_too_large_is_halved(world, bearable, chunks):
    """When memory runs out the chunk is halved, down to one partition if need be; nothing is lost or done twice."""
    world.lake.memory_partitions = bearable
    outcomes = world.run()
    assert [len(keys) for keys in published_keys(outcomes)] == chunks
    assert [key for keys in published_keys(outcomes) for key in keys] == KEYS
    assert world.lake.content() == world.source_content()
    assert world.slept == []
    if bearable == 5:
        assert world.said == ["Spark ran out of memory over 6 partitions; continuing with halves."]


def test_a_partition_that_is_too_large_goes_through_in_slices(world):
    """A partition that does not fit by itself is cut by key, finer if need be, and is still one commit."""
    world.lake.memory_partitions = 1 / 10
    outcomes = world.run()
    assert [key for keys in published_keys(outcomes) for key in keys] == KEYS
    assert world.lake.version() == len(KEYS), "a commit for each partition"
    assert world.lake.content() == world.source_content()
    assert f"Spark ran out of memory over {KEYS[0]} alone; continuing with 8 slices of it by key." in world.said
    assert f"Spark ran out of memory over {KEYS[0]} alone; continuing with 64 slices of it by key." in world.said


def test_a_partition_that_is_too_large_even_in_slices_is_an_error(filled):
    """When the finest cut does not help the launch fails, and the table is as it was."""
    old = filled.lake.content()
    filled.lake.memory_partitions = 0
    with pytest.raises(MemoryExhaustedError):
        filled.run()
    assert (filled.lake.version(), filled.lake.content()) == (1, old)


def test_memory_that_runs_out_during_the_save_halves_too(filled):
    """The write may run out of memory as well as the read."""
    filled.script.at("during_save", raising(MemoryExhaustedError("Full.", state=NOTHING_WRITTEN, remedy="Less.")))
    assert published_keys(filled.run()) == [KEYS[:3], KEYS[3:]]
    assert filled.lake.content() == filled.source_content()


def test_a_half_can_have_a_conflict(filled):
    """Halves are tried again like whole chunks."""
    filled.lake.memory_partitions = 3
    filled.script.at("during_save", raising(CONFLICT), visit=2)
    assert published_keys(filled.run()) == [KEYS[:3], KEYS[3:]]


# -- a write that is not what was audited ------------------------------------------------------------------------------


def lose_row(rows):
    return rows[1:]


def change_row(rows):
    return [{**rows[0], "amount": 1_000_000}, *rows[1:]]


def repeat_row(rows):
    return [*rows, rows[-1]]


@pytest.mark.parametrize("damage", [lose_row, change_row, repeat_row])
@pytest.mark.parametrize("answers", [True, False], ids=["answered", "answer lost"])
def test_a_write_that_differs_from_the_audit_is_put_back(filled, damage, answers):
    """If the commit does not hold what was audited, the content from before is put back, and the launch fails saying so."""
    old = filled.lake.content()
    filled.lake.damage, filled.lake.answers = damage, answers
    with pytest.raises(StagedContentLostError) as caught:
        filled.run()
    wrong = KEYS[-1] if damage is repeat_row else KEYS[0]
    assert str(caught.value) == (
        f"`bronze/orders`: version 2 does not hold what was audited in 1 partitions (first `{wrong}`). "
        "The content from before was put back as version 3. "
        "Launch the range again; if it happens twice, look for executors that are lost during the write."
    )
    assert caught.value.facts == {"partitions": [wrong], "version": 2}
    assert filled.lake.content() == old
    assert filled.lake.version() == 3


def test_what_was_put_back_has_a_receipt_that_nobody_takes_for_a_publish(filled):
    """The receipt of a put back names the version that it came from and no content of the source, so a re-execution redoes it."""
    filled.lake.damage = lose_row
    with pytest.raises(StagedContentLostError):
        filled.run(run_id="run 1")
    publish, restore = filled.lake.receipts()[2], filled.lake.receipts()[3]
    assert (restore.kind, restore.staged_from_version, restore.source) == (
        "put_back",
        2,
        {"kind": "version", "version": 1},
    )
    assert restore.reason == "version 2 does not hold what was audited"
    assert restore.receipt_id != publish.receipt_id
    tallies = filled.lake.tally([ORDERS.grid.partition(key) for key in KEYS])
    assert all(
        restore.partitions[key].matches(tallies[key]) and not restore.partitions[key].fingerprint for key in KEYS
    )
    filled.lake.damage = None
    outcomes = filled.run(run_id="run 2", root_run_id="run 1", is_reexecution=True)
    assert published_keys(outcomes) == [KEYS]
    assert filled.lake.content() == filled.source_content()


def test_what_did_not_exist_before_is_gone_after_a_put_back(world):
    """Put back over nothing is nothing; chunks that were published before stay."""
    world.run(KEYS[:2])
    world.lake.damage = lose_row
    with pytest.raises(StagedContentLostError):
        world.run(KEYS[2:])
    assert world.lake.content().keys() == set(KEYS[:2])
    assert world.lake.published().keys() == set(KEYS[:2])
    world.lake.damage = None
    assert published_keys(world.run(only="missing")) == [KEYS[2:]]


def test_a_put_back_does_not_undo_what_came_after(filled):
    """What somebody else committed after our wrong commit is newer than what was before it, and stays."""
    old = filled.lake.content()
    theirs = orders_of(ORDERS, BAD, amount=50)
    filled.lake.damage = lose_row
    filled.script.at("after_commit", lambda: filled.lake.commit_as_somebody_else({BAD: theirs}))
    with pytest.raises(StagedContentLostError, match="The content from before was put back as version 4"):
        filled.run()
    assert filled.lake.content() == {**old, BAD: sorted(map(hash_of, theirs))}
    assert BAD not in filled.lake.receipts()[4].partitions


def test_nothing_is_put_back_where_all_is_newer(filled):
    """If later commits replaced every partition of the wrong one, there is nothing to put back."""
    theirs = files_of(ORDERS, FIRST, LAST, amount=50)
    filled.lake.damage = lose_row
    filled.script.at("after_commit", lambda: filled.lake.commit_as_somebody_else(theirs))
    with pytest.raises(StagedContentLostError, match="Version 3 has replaced it since, so nothing was put back"):
        filled.run()
    assert filled.lake.content() == {key: sorted(map(hash_of, rows)) for key, rows in theirs.items()}
    assert filled.lake.version() == 3


def test_a_wrong_count_over_right_rows_is_looked_into(filled):
    """If only the commit's statistics differ, the table is read, found right, and left as it is."""
    filled.lake.miscounted = True
    assert published_keys(filled.run()) == [KEYS]
    assert filled.lake.content() == filled.source_content()
    assert filled.script.passed.count("tally") == 1


def test_the_table_is_not_read_again_when_all_counts_agree(filled):
    """A commit whose statistics and whose write agree with the audit needs no second look."""
    filled.run()
    assert "tally" not in filled.script.passed


# -- the same content --------------------------------------------------------------------------------------------------


LATEST_WINS = spec_with(latest_wins_by=["updated_at"])


@st.composite
def sources(draw):
    """Files with rows that repeat keys, in any order; some of them empty."""
    files = {}
    for key in KEYS:
        rows = orders_of(LATEST_WINS, key, draw(st.integers(0, 4)))
        hours = [draw(st.integers(-1, 1)) for _ in rows]
        again = [
            {**r, "amount": 2 + h, "updated_at": r["updated_at"] + timedelta(hours=h)}
            for r, h in zip(rows, hours, strict=True)
        ]
        files[key] = draw(st.permutations(rows + again[: draw(st.integers(0, 4))]))
    return files


@settings(max_examples=50)
@given(sources(), st.integers(1, 6), st.permutations(KEYS), st.integers(1, 6))
def test_the_same_launch_gives_the_same_content(files, chunk, order, bearable):
    """Whole, in chunks of any size, partition by partition in any order, halved for memory, three times: the same rows."""

    def fresh():
        world = World(LATEST_WINS)
        world.source.files = {key: list(rows) for key, rows in files.items()}
        return world

    whole = fresh()
    whole.run()
    content = whole.lake.content()
    assert sum(map(len, content.values())) == len(
        {(key, row["order_id"]) for key, rows in files.items() for row in rows}
    )

    chunked = fresh()
    chunked.run(chunk=chunk)
    singly = fresh()
    for key in order:
        singly.run([key])
    tight = fresh()
    tight.lake.memory_partitions = bearable
    tight.run()
    whole.run()
    whole.run(reversed(KEYS), chunk=chunk)
    for world in (chunked, singly, tight, whole):
        assert world.lake.content() == content
    newest = [
        {key: p.partition for key, p in world.lake.published().items()} for world in (chunked, singly, tight, whole)
    ]
    assert all(receipts == newest[0] for receipts in newest)


# -- crashes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk_number", [1, 2, 3])
@pytest.mark.parametrize("point", POINTS_OF_A_CHUNK)
def test_a_crash_leaves_every_partition_old_or_new(filled, point, chunk_number):
    """Killed at any point of any chunk: chunks before are new, later ones old, this one whole; the same launch then completes it."""
    old, new = filled.lake.content(), filled.source_content()
    filled.script.at(point, raising(Killed()), visit=chunk_number)
    with pytest.raises(Killed):
        filled.run(chunk=2, run_id="run 1")
    made = chunk_number if point == "after_commit" else chunk_number - 1
    assert filled.lake.version() == 1 + made
    assert filled.lake.content() == {key: (new if n < 2 * made else old)[key] for n, key in enumerate(KEYS)}
    assert set(filled.lake.receipts()) == set(range(1, 2 + made))

    outcomes = filled.run(chunk=2, run_id="run 2", root_run_id="run 1", is_reexecution=True)
    assert sum(map(len, published_keys(outcomes))) == len(KEYS) - 2 * made
    assert filled.lake.content() == new


@pytest.mark.parametrize("point", ["scan", "stage", "before_save", "during_save"])
def test_a_crash_during_a_second_attempt_leaves_every_partition_old(filled, point):
    """A crash after a conflict is no different."""
    old = filled.lake.content()
    filled.script.at("during_save", raising(CONFLICT), visit=1)
    filled.script.at(point, raising(Killed()), visit=2)
    with pytest.raises(Killed):
        filled.run()
    assert (filled.lake.version(), filled.lake.content()) == (1, old)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(POINTS_OF_A_CHUNK), st.integers(1, 4)), max_size=6), st.integers(1, 6))
def test_launches_that_are_killed_again_and_again_end_right(kills, chunk):
    """However often it is killed and repeated, no partition is ever a mixture, and the end is the source's content."""
    world = World()
    world.run(run_id="before")
    world.correct(*KEYS)
    old, new = world.lake.content(), world.source_content()
    for number, (point, visit) in enumerate(kills, start=1):
        script = Script()
        script.at(point, raising(Killed()), visit=visit)
        world.source.script = world.lake.script = script
        with suppress(Killed):
            world.run(chunk=chunk, run_id=f"run {number}", root_run_id="run 1", is_reexecution=number > 1)
        content = world.lake.content()
        assert all(content[key] in (old[key], new[key]) for key in KEYS)
    world.source.script = world.lake.script = Script()
    world.run(run_id="last", root_run_id="run 1", is_reexecution=True)
    assert world.lake.content() == new
