"""`undo`: a launch's partitions get back what it replaced; what came later, and everything else, stays."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import deltalake
import pytest

from backfill_assets.assets.undo import REPORT
from backfill_assets.lake.table import LakeTable
from backfill_assets.runs import undoing
from backfill_assets.runs.check_history import not_passed
from backfill_assets.runs.table import Table
from tests.commands.places import Place, below, copied, new_place
from tests.support.launching import ORDERS, TOTALS, Ran
from tests.support.shop import multiset, orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAYS = [f"2024-01-0{n}" for n in range(1, 5)]
HALF = Decimal("0.50")


def rows(*days: str, **how: Any) -> list[Any]:
    return [row for day in days for row in orders(day, 4, **how)]


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory, spark: object) -> tuple[Place, Ran]:
    """Four published days, and then all of them again from a source that has other amounts; two days in each commit."""
    place = published(tmp_path_factory.mktemp("place"))
    return place, launch_bad(place)


@pytest.fixture
def bad(launched: tuple[Place, Ran]) -> Ran:
    """The launch that was bad."""
    return launched[1]


@pytest.fixture
def place(launched: tuple[Place, Ran], tmp_path: Path) -> Place:
    """What the bad launch has left."""
    return copied(launched[0], tmp_path)


def published(root: Path, *tables: str) -> Place:
    place = new_place(root)
    for day in DAYS:
        place.lake.export(day, orders(day, 4))
    assert place.lake.launch(DAYS[0], DAYS[-1], tables=(ORDERS, *tables)).succeeded
    return place


def launch_bad(place: Place, *tables: str) -> Ran:
    for day in DAYS:
        place.lake.export(day, orders(day, 4, amount=HALF))
    bad = place.lake.launch(DAYS[0], DAYS[-1], tables=(ORDERS, *tables), max_partitions_per_chunk=2)
    assert bad.succeeded
    assert place.lake.content() == multiset(rows(*DAYS, amount=HALF))
    return bad


def undo(place: Place, launch: str, *more: str, code: int = 0) -> Any:
    result = place.run("undo", launch, "--json", *more)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def actions(report: Any, table: str = ORDERS) -> dict[str, str]:
    (found,) = [one for one in report["tables"] if one["table"] == table]
    return {one["partition"]: one["action"] for one in found["partitions"]}


def version(place: Place) -> int:
    return deltalake.DeltaTable(str(place.lake.path())).version()


@pytest.mark.prove
def test_a_launch_is_taken_back_in_every_table(tmp_path):
    """A dry run writes nothing; then both tables hold what they held before, by another reader; again makes no commit.

    An undo is undone by the id of its own run, to what the launch had made; and that again.
    """
    place = published(tmp_path, TOTALS)
    old = place.lake.content(), place.lake.content(TOTALS)
    bad = launch_bad(place, TOTALS)
    before = below(place.lake.root)
    looked_at = undo(place, bad.run.run_id, "--dry-run")
    assert below(place.lake.root) == before
    assert set(actions(looked_at).values()) == {"restored"}
    assert 29 <= (datetime.fromisoformat(looked_at["undo_until"]) - datetime.now(UTC)).days <= 30
    done = undo(place, bad.run.run_id, "--reason", "halved revenue")
    assert (place.lake.content(), place.lake.content(TOTALS)) == old
    assert [one["table"] for one in done["tables"]] == [TOTALS, ORDERS], "what was made last goes first"
    assert actions(done) == actions(looked_at) == dict.fromkeys(DAYS, "restored")
    after = version(place)
    assert set(actions(undo(place, bad.run.run_id)).values()) == {"restored before"}
    assert version(place) == after
    _dagster_is_told(place, done["run_id"])

    undo(place, done["run_id"], "--table", ORDERS)
    assert place.lake.content() == multiset(rows(*DAYS, amount=HALF))
    undo(place, bad.run.run_id, "--table", ORDERS)
    assert place.lake.content() == old[0]
    assert place.lake.launch(DAYS[0], DAYS[-1], only="MISSING").succeeded
    assert place.lake.content() == multiset(rows(*DAYS, amount=HALF)), "a launch of what is missing makes it again"


def _dagster_is_told(place: Place, run_id: str) -> None:
    """Each partition has an event with what it holds now; its check warns, and no schedule takes that for a difference."""
    with place.instance() as instance:
        ran = Ran(instance.get_run_by_id(run_id), tuple(instance.all_logs(run_id)))
    assert sorted(map(str, ran.recorded())) == DAYS
    assert ran.metadata(DAYS[0])["restored"] == "Put back as it was in version 1: halved revenue."
    severities = {e.severity for e in ran.evaluations().values()}
    assert (severities, set(ran.verdicts().values())) == ({dg.AssetCheckSeverity.WARN}, {False})


@pytest.mark.prove
def test_an_undo_that_ended_before_it_told_dagster_is_told_by_the_next_launch(place, bad, monkeypatch):
    """Else the check of the days stays green, for rows that are gone."""
    with monkeypatch.context() as ended:
        ended.setattr(undoing, "record_put_back", lambda *of: {}[KeyError] if of[2] else None)
        assert not place.lake.undo(bad.run.run_id).succeeded
    assert set(place.lake.shown_of_check(*DAYS).values()) == {"succeeded"}
    assert "put back 2 partitions" in place.lake.launch(DAYS[0], only="MISSING").log
    assert not_passed(place.lake.instance, Table(place.lake.spec)) == dict.fromkeys(DAYS[2:])
    assert "put back" not in place.lake.launch(DAYS[0], only="MISSING").log


@pytest.mark.prove
def test_what_came_later_is_kept_and_named(place, bad):
    """A day that was launched again, and one that somebody else wrote, stay as they are; the exit code says so."""
    place.lake.export(DAYS[1], orders(DAYS[1], 4, amount=Decimal("7.00")))
    assert place.lake.launch(DAYS[1]).succeeded
    theirs = deltalake.DeltaTable(str(place.lake.path()))
    theirs.delete(f"dt = '{DAYS[2]}'")
    later = place.lake.content()
    done = undo(place, bad.run.run_id, code=1)
    assert actions(done) == {DAYS[0]: "restored", DAYS[1]: "kept", DAYS[2]: "kept", DAYS[3]: "restored"}
    assert "2 partitions were kept" in done["failure"]
    kept = multiset(rows(DAYS[1], amount=Decimal("7.00")))
    assert place.lake.content() == multiset(rows(DAYS[0], DAYS[3])) + kept
    shown = place.run("undo", bad.run.run_id, "--dry-run")
    assert (shown.exit_code, shown.stdout.count("kept"), shown.stdout.count("restored")) == (1, 2, 2), shown.stdout

    undo(place, bad.run.run_id, "--discard-later")
    assert place.lake.content() == multiset(rows(*DAYS))
    assert later != place.lake.content()


@pytest.mark.prove
def test_the_job_says_what_was_kept(place, bad):
    """From Dagster's UI it is a job: red where something was kept, with the report beside it."""
    assert place.lake.launch(DAYS[0], rewrite_identical=True).succeeded
    ran = place.lake.undo(bad.run.run_id)
    assert not ran.succeeded
    assert ran.failure.startswith(f"1 partitions were kept as they are (first `{DAYS[0]}`: published since")
    (failed,) = [
        e.dagster_event.step_failure_data.user_failure_data
        for e in ran.entries
        if e.dagster_event and e.dagster_event.is_step_failure
    ]
    assert {one["table"] for one in failed.metadata[REPORT].value} == {ORDERS}
    assert place.lake.content() == multiset([*rows(DAYS[0], amount=HALF), *rows(*DAYS[1:])])


def test_old_files_that_are_gone_are_found_before_anything_is_written(place, bad, spark):
    """After a VACUUM without retention nothing is put back, not even where the files would be there still."""
    deltalake.DeltaTable(str(place.lake.path())).vacuum(0, enforce_retention_duration=False, dry_run=False)
    before = below(place.lake.root)
    for how in ((), ("--dry-run",)):
        result = place.run("undo", bad.run.run_id, *how)
        assert result.exit_code == 2, result.output
        said = " ".join(result.stderr.split())
        assert "what version 1 held cannot be read any more" in said, said
        assert "Nothing was written." in said
    assert below(place.lake.root) == before
    assert place.lake.content() == multiset(rows(*DAYS, amount=HALF))


def test_a_launch_that_is_unknown_or_goes_on_is_refused(place, bad):
    """The error says which, and what to do; nothing is written."""
    result = place.run("undo", "nobody")
    assert (result.exit_code, "No table has a receipt of a launch `nobody`" in result.stderr) == (2, True)
    runs = place.lake.instance.run_storage
    runs.delete_run(bad.run.run_id)
    runs.add_run(bad.run.with_status(dg.DagsterRunStatus.STARTED))
    refused = place.lake.undo(bad.run.run_id)
    assert f"its run {bad.run.run_id} has not ended" in refused.failure
    assert place.lake.content() == multiset(rows(*DAYS, amount=HALF))


def test_first_letters_of_an_id_are_enough(place, bad):
    """As many as `history` and Dagster's UI show; fewer might be those of another launch."""
    whole, short = (undo(place, name, "--dry-run") for name in (bad.run.run_id, bad.run.run_id[:8]))
    assert short["tables"] == whole["tables"] != []
    assert place.run("undo", bad.run.run_id[:7], "--dry-run").exit_code == 2


@pytest.mark.prove
def test_an_undo_that_fails_half_way_says_what_it_did(place, bad, monkeypatch):
    """What its first commit put back is listed, what is left is named; the same command does that."""
    commits: list[int] = []
    restore = LakeTable.restore

    def fail_the_second(*arguments: Any, **more: Any) -> Any:
        commits.append(1)
        if len(commits) == 2:
            raise OSError("the cable was pulled")
        return restore(*arguments, **more)

    monkeypatch.setattr(LakeTable, "restore", fail_the_second)
    done = undo(place, bad.run.run_id, code=1)
    assert sorted(actions(done).values()) == ["kept", "kept", "restored", "restored"]
    assert "It ended half-way: OSError: the cable was pulled" in done["failure"]
    assert set(actions(undo(place, bad.run.run_id)).values()) == {"restored", "restored before"}
    assert place.lake.content() == multiset(rows(*DAYS))


@pytest.mark.prove
def test_what_a_trimmed_log_has_forgotten_is_not_overlooked(tmp_path):
    """The copy of the receipts still knows it: so it is refused as a whole, and not half of it put back."""
    place = published(tmp_path)
    for day in DAYS:
        place.lake.export(day, orders(day, 4, amount=HALF))
    bad = place.lake.launch(DAYS[0], DAYS[1])
    place.lake.launch(DAYS[2], DAYS[3], again=bad)
    deltalake.DeltaTable(str(place.lake.path())).create_checkpoint()
    log = place.lake.path() / "_delta_log"
    for version in range(3):
        (log / f"{version:020d}.json").unlink()
    for file in log.glob("*.crc"):
        file.unlink()
    refused = place.run("undo", bad.run.run_id)
    assert (refused.exit_code, "cannot be read any more" in refused.stderr) == (2, True), refused.output
    assert place.lake.content() == multiset(rows(*DAYS, amount=HALF))


@pytest.mark.prove
def test_a_backfill_is_taken_back_whole(place):
    """All runs of a backfill are one launch."""
    for day in DAYS[:2]:
        place.lake.export(day, orders(day, 4))
        ran = place.lake.launch(day)
        place.lake.instance.add_run_tags(ran.run.run_id, {"dagster/backfill": "abcdefgh"})
    ran = place.lake.undo("abcdefgh", tables=[ORDERS])
    assert ran.succeeded
    assert sorted(map(str, ran.recorded())) == DAYS[:2]
    assert place.lake.content() == multiset(rows(*DAYS, amount=HALF))
