"""What the benchmarks make of what they measure: no Spark, and nothing that takes long."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from benchmarks.explained import RangeLaunch, StepEvents, explained
from benchmarks.memory import watched
from benchmarks.processes import Process, environment, launch_command
from benchmarks.run import Measured, figures_of, lines_of
from benchmarks.scale import MORE, Scale
from benchmarks.soak_processes import batches_of
from benchmarks.soak_truth import differing

DAYS = ("2024-01-01", "2024-01-02")
SCRIPTS = ("one_in_many", "run", "scale", "soak", "texts", "tpch")


@dg.asset(partitions_def=dg.DailyPartitionsDefinition("2024-01-01"), backfill_policy=dg.BackfillPolicy.single_run())
def chunks(context):
    """An asset that says what a launch of ours says of its chunks."""
    for key in context.partition_keys:
        time.sleep(0.2)
        context.log_event(dg.AssetMaterialization("chunks", partition=key, metadata={"dagster/partition_row_count": 3}))
        context.log.info("Chunk 1 of 2 is version 1: ...; seconds by step: stage 0.1, save 0.05")
    return dg.MaterializeResult(metadata={"__source_asset_observation__": True})


def test_the_seconds_of_a_launch_are_told_by_its_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The parts add up to the whole, the first partition is there before the second, and rows are those of the events."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (tmp_path / "dagster.yaml").touch()
    began = time.time()
    with dg.DagsterInstance.get() as instance:
        tags = {"dagster/asset_partition_range_start": DAYS[0], "dagster/asset_partition_range_end": DAYS[1]}
        assert dg.materialize([chunks], instance=instance, tags=tags).success
    launch = explained(Process(["launch"], began, time.time() - began, 0, ""), tmp_path)
    assert sum(launch.parts.values()) == pytest.approx(launch.seconds)
    assert launch.first_seconds is not None
    assert 0.2 <= launch.first_seconds < launch.seconds
    assert (launch.parts["chunks: stage"], launch.parts["chunks: save"]) == (pytest.approx(0.2), pytest.approx(0.1))
    assert launch.rows == 6


def test_a_step_without_chunks_is_one_part():
    """Where nothing says where its seconds went, they are the asset's."""
    assert StepEvents(started=10.0, ended=12.5, materialized=[11.0]).parts() == {"asset": 2.5}


def test_figures_are_ratios_of_medians():
    """One launch for each partition is held against its share of the range; the first partition has its own seconds."""
    found = Measured(
        loads=[1.0],
        singles=[RangeLaunch(20, {}, None, None, 8.0), RangeLaunch(20, {}, None, None, 9.0)],
        warm=[RangeLaunch(5, {}, None, None, 1.5)],
        by_hand=[50.0, 40.0, 60.0],
        ours=[RangeLaunch(seconds, {"asset": seconds}, 10.0, 6) for seconds in (100, 90, 200)],
        again=[70.0],
        reconciled=[30.0],
    )
    assert figures_of(found, days=10) == {
        "range launch / hand-written job": 2.0,
        "one launch per partition / range launch, per partition": 2.0,
        "checks / range launch": 0.1,
        "reconcile / range launch": 0.3,
        "relaunch of an unchanged range / range launch": 0.7,
        "definitions load, seconds": 1.0,
        "one partition, from the step's start until it is there, seconds": 8.5,
        "the same on a warm Connect server, seconds": 1.5,
    }
    (line,) = [line for line in lines_of(found) if line.startswith("range launch, checks included")]
    assert line.split()[-7:] == ["100.0", "90.0", "to", "200.0", "in", "3", "runs"]


def test_the_memory_of_a_session_is_that_of_all_its_processes():
    """A process that takes 60 MB in another one that it starts."""
    take = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; a = b\"x\" * 60_000_000; time.sleep(2)'])"
    process = subprocess.Popen([sys.executable, "-c", take], stdout=subprocess.PIPE, text=True, start_new_session=True)
    with watched(process) as peak:
        process.communicate()
    assert 60_000_000 < peak.size_bytes < 300_000_000


def test_more_partitions_than_days_since_1998_begin_earlier():
    """A partition of the future would not be complete."""
    day, hour, now = timedelta(days=1), timedelta(hours=1), datetime.now(UTC)
    for scale in (Scale(Path(), MORE, day), Scale(Path(), 10_000, day), Scale(Path(), MORE, hour)):
        assert scale.first + scale.count * scale.step < now
    assert Scale(Path(), 10_000, day).first.year == 1998


def test_a_side_has_none_of_the_users_settings(monkeypatch: pytest.MonkeyPatch):
    """What a user has set for the project would be measured along."""
    monkeypatch.setenv("SPARK_MASTER", "local[64]")
    found = environment(Path("/root"), Path("/home"), SPARK_REMOTE="sc://here")
    assert "SPARK_MASTER" not in found
    assert (found["LAKEHOUSE_ROOT"], found["DAGSTER_HOME"], found["SPARK_REMOTE"]) == ("/root", "/home", "sc://here")
    assert launch_command("m", "a/b", "--partition", "x")[1:] == [
        *("-m", "dagster", "asset", "materialize", "-m", "m", "--select", 'key:"a/b"', "--partition", "x")
    ]


def test_the_soak_counts_what_the_writer_says():
    """Each batch with its rows and how far behind it was; of rows of one order that are equally new any may be there."""
    said = ["batch 3: 1,200 rows, 5 late, 1 quarantined; 2.5 s behind", "nothing"]
    assert {n: (b.rows, b.behind_seconds) for n, b in batches_of(said).items()} == {3: (1206, 2.5)}
    assert differing([], []) == 0


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_benchmark_says_what_it_measures(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """`--help` names its options, without starting anything."""
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{name}").main()
    assert ended.value.code == 0
    assert "options:" in capsys.readouterr().out
