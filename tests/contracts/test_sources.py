"""One contract for every source: files of each form and both ways of accounting, tables, a user's own kind, and the fake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from backfill_assets.core.history.ports import Scan, Source
from backfill_assets.core.state.surveys import Survey
from backfill_assets.core.state.tallies import EMPTY, Tally
from backfill_assets.lake.table import LakeTable
from backfill_assets.spark.failures import SPARK_FAILURES
from tests.contracts.databases import changed, database
from tests.contracts.sources import (
    DAYS,
    EXPECTED,
    ONE_MORE,
    Kind,
    Make,
    cash_register,
    fake,
    json_lines,
    months,
    packed_csv,
    parquet,
)
from tests.contracts.tables import table, version
from tests.support.cash_register import kinds_restored
from tests.support.fakes import UNREADABLE_FILE, partition_key_of
from tests.support.shop import COLUMNS, Row, content, folder_of, launch, left_out, multiset, published_keys

SPARKS = [parquet, json_lines, packed_csv, months, table, version, database, changed, cash_register]
Content = Mapping[str, Counter[tuple[Any, ...]]]


@pytest.fixture(autouse=True)
def _kinds() -> Iterator[None]:
    with kinds_restored():
        yield


IN_THE_GATE = (parquet, table, database, fake)
"""The kinds of which the gate asks everything; the others have tests of their own there."""


@pytest.fixture(
    params=[
        pytest.param(make, marks=[] if make in IN_THE_GATE else pytest.mark.prove, id=make.__name__)
        for make in (*SPARKS, fake)
    ]
)
def kind(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Kind:
    make: Make = request.param
    return make(spark, tmp_path / "source")


def read(kind: Kind, scan: Scan[Any]) -> Content:
    """Read a scan to its end; the readable rows of each partition, each as often as it comes."""
    if isinstance(scan.rows, list):
        rows: list[Row] = scan.rows
        if any(UNREADABLE_FILE in row for row in rows):
            raise ConnectionError("a file cannot be read to its end")
    else:
        rows = [row.asDict() for row in scan.rows.collect()]
    readable = [row for row in rows if row.get("_ba_problem") is None]
    readable = [{**row, "ordered_at": row["ordered_at"].astimezone(UTC)} for row in readable]
    found = {day: multiset(row for row in readable if partition_key_of(kind.spec, row) == day) for day in DAYS}
    assert sum(map(Counter.total, found.values())) == len(readable), "a row lies in no partition that was asked for"
    return found


def scanned(kind: Kind, source: Source[Any], surveys: Mapping[str, Survey]) -> tuple[Scan[Any], Content]:
    """Scan and read all days; once more without what cannot be read, as a launch does."""
    scan = source.scan(kind.partitions, surveys)
    try:
        return scan, read(kind, scan)
    except SPARK_FAILURES:
        assert source.set_aside_unreadable(surveys)
        scan = source.scan(kind.partitions, surveys)
        return scan, read(kind, scan)


def everything_below(root: Path) -> dict[str, tuple[int, int]]:
    """Every file with its length and when it was written."""
    files = [file for file in root.rglob("*") if file.is_file()]
    return {str(file): (file.stat().st_size, file.stat().st_mtime_ns) for file in files}


def test_what_a_source_says_of_itself(kind):
    """Complete up to the end of its last day; a survey and evidence of each partition, empty ones too; and nothing is written.

    The evidence equals the rows, what is foretold equals the evidence, and what a source has not seen change it tells
    again in the same words.
    """
    before = everything_below(kind.root)
    source = kind.source()

    assert source.complete_until() == kind.partitions[-1].window.end_utc
    assert source.check_schema(kind.partitions) == []
    assert all(set(COLUMNS) <= observed.columns.keys() for observed in source.observed_columns())
    surveys = source.survey(kind.partitions)
    scan, rows = scanned(kind, source, surveys)

    assert list(surveys) == list(scan.evidence) == DAYS
    counts = {day: len(found) if kind.is_counted else None for day, found in kind.raw.items()}
    assert {key: evidence.raw_rows for key, evidence in scan.evidence.items()} == counts
    assert not any(evidence.findings for evidence in scan.evidence.values())
    for key, evidence in source.foretell(kind.partitions, surveys).items():
        assert evidence.raw_rows in (None, counts[key])
        assert not evidence.findings
    assert source.makes_chunks_at_once() is False
    assert rows == {day: multiset(found) for day, found in kind.raw.items()}
    if kind.stands_still:
        assert source.survey(kind.partitions) == surveys
    again = kind.source().survey(kind.partitions)
    assert {key: s.fingerprint for key, s in again.items()} == {key: s.fingerprint for key, s in surveys.items()}
    for survey in surveys.values():
        assert survey.size_bytes >= 0
        assert survey.changed_utc is None or survey.changed_utc <= datetime.now(UTC)
    assert everything_below(kind.root) == before


def test_files_say_when_they_changed(spark, tmp_path):
    """The newest change of a partition's files; None for one without a file."""
    kind = json_lines(spark, tmp_path)
    kind.add()
    surveys = kind.source().survey(kind.partitions)
    newest = {
        day: max(f.stat().st_mtime for f in folder_of(tmp_path, day, "dt={date}").glob("*.json") if f.stat().st_size)
        for day in (DAYS[0], DAYS[2])
    }
    for day, seconds in newest.items():
        assert surveys[day].changed_utc is not None
        assert abs(surveys[day].changed_utc.timestamp() - seconds) < 0.01
    assert surveys[DAYS[1]].changed_utc is None


def test_a_change_shows_in_the_survey_and_is_not_read_under_an_old_one(kind):
    """What comes later changes the fingerprint of its partition, and of no other; a scan reads what was surveyed."""
    source = kind.source()
    before = source.survey(kind.partitions)
    kind.add()
    scan, rows = scanned(kind, source, before)
    after = source.survey(kind.partitions)

    if kind.keeps_what_was:
        assert rows == {day: multiset(found) for day, found in kind.raw.items()}
        assert scan.evidence[DAYS[2]].raw_rows == (len(kind.raw[DAYS[2]]) if kind.is_counted else None)
    changed = {day for day in DAYS if after[day].fingerprint != before[day].fingerprint}
    assert changed == (set(DAYS) if kind.shares_parts else {DAYS[2]})

    scan, rows = scanned(kind, source, after)
    assert rows[DAYS[2]] == multiset([*kind.raw[DAYS[2]], ONE_MORE])
    assert scan.evidence[DAYS[2]].raw_rows == (len(kind.raw[DAYS[2]]) + 1 if kind.is_counted else None)


def test_what_cannot_be_read_is_reported_and_left_out(kind):
    """A finding names it, in each partition that it may hold rows of and in no other; whatever is beside it is read."""
    if kind.spoil is None:
        assert kind.source().set_aside_unreadable(kind.source().survey(kind.partitions)) is False
        return
    kind.spoil()
    source = kind.source()
    surveys = source.survey(kind.partitions)
    scan, rows = scanned(kind, source, surveys)
    suspects = {DAYS[0]: counted(scan)}

    found = {day: {finding.rule for finding in scan.evidence[day].findings} for day in DAYS}
    for day, findings in source.examine(suspects, surveys).items():
        found[day] |= {finding.rule for finding in findings}
    spoiled = DAYS if kind.shares_parts else DAYS[:1]
    assert found == {day: {kind.spoiled} if day in spoiled else set() for day in DAYS}
    for day, evidence in source.foretell(kind.partitions, surveys).items():
        assert {finding.rule for finding in evidence.findings} <= found[day]
    if not kind.shares_parts:
        assert {day: rows[day] for day in DAYS[1:]} == {day: multiset(kind.raw[day]) for day in DAYS[1:]}


def counted(scan: Scan[Any]) -> Tally:
    """What a launch has counted when it asks for a closer look: the lines that cannot be read."""
    if isinstance(scan.rows, list) or "_ba_problem" not in scan.rows.columns:
        return EMPTY
    return replace(EMPTY, unreadable_rows=scan.rows.where("_ba_problem IS NOT NULL").count())


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, marks=[] if make is parquet else [pytest.mark.prove])
        for make in SPARKS
        if make is not changed  # what its launches leave is in the tests of the fold
    ],
    ids=lambda make: make.__name__,
)
def test_the_same_launch_gives_the_same_content(spark, tmp_path, make):
    """Whole, and once more in pieces, in chunks of another size, the later ones first: equal tallies, and an equal multiset of rows for another reader."""
    kind = make(spark, tmp_path / "source")
    spec, source = kind.spec, kind.source()
    lake = LakeTable(spark, spec, f"{tmp_path}/table")
    lake.create()
    partitions = kind.partitions
    expected = multiset(row for rows in EXPECTED.values() for row in rows)
    tallies = []

    for launches in (
        [(partitions, None)],
        [(partitions[1:], 2), ([partitions[0]], None)],
    ):
        for named, size in launches:
            outcomes = launch(lake, source, named, max_partitions_per_chunk=size)
            assert published_keys(outcomes) == [p.key for p in named]
        assert content(lake.path) == expected
        tallies.append(lake.tally(partitions))

    assert tallies[0] == tallies[1]
    published = lake.published()
    assert {key: (p.partition.rows, p.partition.superseded_rows) for key, p in published.items()} == {
        DAYS[0]: (3, 0), DAYS[1]: (0, 0), DAYS[2]: (1, 0), DAYS[3]: (4, 2)
    }  # fmt: skip
    assert all(published[key].partition.matches(tally) for key, tally in tallies[0].items())
    before = lake.version()
    assert list(left_out(launch(lake, source, partitions, only="missing"))) == DAYS
    assert lake.version() == before
