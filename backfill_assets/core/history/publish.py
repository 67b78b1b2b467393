"""The use case: overwrite partitions of a table with what its source has, chunk by chunk, audited and verified.

Knows neither Spark nor Dagster; what it needs of an engine is in `core/engine.py`.
"""

from __future__ import annotations

import random
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

from backfill_assets.core.history.audit import Verdict
from backfill_assets.core.history.ports import Commit, Held, Lake, Late, Rows, Source, Staged, Survey
from backfill_assets.core.state.fence import history_part
from backfill_assets.core.calendar.partitions import Partition, chunks_of
from backfill_assets.core.state.receipts import PartitionReceipt, PublishedPartition, Receipt
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.history.staging import audit_all, complete_part, in_smaller_parts, refuse_changed_source, stage_and_hold
from backfill_assets.core.state.tallies import EMPTY, total
from backfill_assets.errors import (
    CommitConflictError,
    MemoryExhaustedError,
    SourceChangedError,
    StagedContentLostError,
    TableLockedError,
)

ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Launch:
    """Who launches, why, and how.

    Args:
        only: `missing` leaves out partitions whose receipt names the source's content as it is now.
        discard_uncovered_rows: Whether rows may go that a live stream wrote and the source lacks.
        is_reexecution: Whether Dagster repeats an earlier run; what that run published of the same content is left out.
        max_publish_seconds: How long one commit may take to save, where a live writer waits for it; chunks are cut accordingly.
        flow: Name of the once-flow that launches; empty for an ordinary launch.
        log: Called with one sentence whenever a person would want to know.
        sleep: Called with seconds before another attempt.
    """

    run_id: str
    root_run_id: str
    only: Literal["all", "missing"] = "all"
    discard_uncovered_rows: bool = False
    is_reexecution: bool = False
    max_partitions_per_chunk: int | None = None
    max_publish_seconds: float | None = None
    reason: str = ""
    code_version: str = ""
    flow: str = ""
    log: Callable[[str], None] = field(default=lambda _: None)
    sleep: Callable[[float], None] = field(default=time.sleep)
    clock: Callable[[], float] = field(default=time.monotonic)
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class Published:
    """A chunk is in the table.

    Args:
        rows: By partition key.
        seconds: By step: stage, hold, audit, save, verify.
    """

    chunk: int
    chunks: int
    partitions: tuple[Partition, ...]
    receipt: Receipt
    commit: Commit
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Refused:
    """A partition failed its audit; the table keeps what it had."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Partitions that a launch did not touch, and why.

    Args:
        published: Whether they are in the table already, with the content that the source has.
    """

    partitions: tuple[Partition, ...]
    why: str
    published: bool


Outcome = Published | Refused | LeftOut


def materialize(
    spec: TableSpec, partitions: Sequence[Partition], source: Source[Rows], lake: Lake[Rows], launch: Launch
) -> Iterator[Outcome]:
    """Overwrite partitions with what the source has.

    Yields one outcome for each chunk that was published, each partition that was refused, and what was left out.
    Every partition is old or new at any time, never in between; running it again gives the same content.

    Raises:
        WindowError: No partitions were named.
        LivePartitionsError: All of them belong to the live stream.
        SourceIncompleteError: The source is complete for none of them.
        SchemaMismatchError: The source does not have the spec's columns.
        PublishError: A chunk could not be published; chunks before it are, this and later ones are as they were.
    """
    fence = lake.fence()
    history, live = history_part(spec, sorted(partitions), fence)
    if live and fence:
        yield LeftOut(live, f"they are live: the fence is at {fence.at_utc.isoformat()}", published=False)
    wanted, beyond = complete_part(spec, history, source.complete_until())
    if beyond:
        yield LeftOut(beyond, "the source is not complete for them yet; they stay missing", published=False)
    surveys = source.survey(wanted)
    todo = list(wanted)
    if launch.only == "missing" or launch.is_reexecution:
        done = _already_published(wanted, surveys, lake.late(wanted), lake.published(), launch)
        todo = [partition for partition in wanted if partition.key not in done]
        if done:
            why = "their receipt names the source's content as it is now"
            if launch.only == "all":
                why = "an earlier attempt of this run published the same content"
            yield LeftOut(tuple(p for p in wanted if p.key in done), why, published=True)
    if not todo:
        return
    for remark in source.check_schema(todo):
        launch.log(remark)
    chunks = chunks_of(
        todo,
        max_partitions=launch.max_partitions_per_chunk or spec.max_partitions_per_chunk,
        max_bytes=spec.chunk.max_source_bytes,
        size_bytes={key: survey.size_bytes for key, survey in surveys.items()},
    )
    sealed = set[Partition]()
    if fence and fence.stream and not launch.discard_uncovered_rows:
        sealed = set(unaccounted(todo, lake.rows_now(todo), lake.published()))
    pending, pace = deque(chunks), _PublishPace(launch.max_publish_seconds)
    number = 0
    while pending:
        chunk, rest = pace.cut(pending.popleft(), {key: survey.size_bytes for key, survey in surveys.items()})
        if rest:
            pending.appendleft(rest)
        number += 1
        for outcome in _publish_chunk(spec, chunk, (number, number + len(pending)), source, lake, launch, surveys, sealed):
            pace.saw(outcome)
            yield outcome


def unaccounted(
    partitions: Sequence[Partition], rows_now: Mapping[str, int], published: Mapping[str, PublishedPartition]
) -> list[Partition]:
    """Return the partitions that hold rows which no publish put there: a live stream did, or somebody else.

    Args:
        rows_now: Rows of the table by partition key.
        published: The newest publish by partition key.
    """
    found: list[Partition] = []
    for partition in partitions:
        rows, newest = rows_now.get(partition.key, 0), published.get(partition.key)
        if rows and (newest is None or newest.receipt.kind != "publish" or newest.partition.rows != rows):
            found.append(partition)
    return found


class _PublishPace:
    """Cuts chunks so that saving one takes no longer than a live writer may wait, going by how long the one before took."""

    FIRST_PARTITIONS, FIRST_BYTES = 96, 128 << 20
    """What is tried before anything was measured."""

    def __init__(self, max_seconds: float | None) -> None:
        self._max_seconds = max_seconds
        self._partitions: int | None = None

    def cut(self, chunk: list[Partition], size_bytes: Mapping[str, int]) -> tuple[list[Partition], list[Partition]]:
        """Part a chunk into what is published now and the rest."""
        if self._max_seconds is None:
            return chunk, []
        limit = self._partitions or self._first(chunk, size_bytes)
        size = -(-len(chunk) // -(-len(chunk) // limit))  # parts of about the same size
        return chunk[:size], chunk[size:]

    def _first(self, chunk: Sequence[Partition], size_bytes: Mapping[str, int]) -> int:
        """Return how many partitions to begin with."""
        total = 0
        for count, partition in enumerate(chunk[: self.FIRST_PARTITIONS]):
            total += size_bytes.get(partition.key, 0)
            if total > self.FIRST_BYTES:
                return max(1, count)
        return self.FIRST_PARTITIONS

    def saw(self, outcome: Outcome) -> None:
        if self._max_seconds is not None and isinstance(outcome, Published):
            each = outcome.seconds["save"] / len(outcome.partitions)
            self._partitions = max(1, int(self._max_seconds / max(each, 1e-6)))


def _already_published(
    partitions: Sequence[Partition],
    surveys: Mapping[str, Survey],
    late: Late,
    published: Mapping[str, PublishedPartition],
    launch: Launch,
) -> set[str]:
    """Return the keys whose receipt names the content that the source, and the late rows, have now."""
    done: set[str] = set()
    for partition in partitions:
        newest = published.get(partition.key)
        if newest is None or newest.partition.fingerprint != surveys[partition.key].fingerprint:
            continue
        if newest.partition.late_rows != late.rows.get(partition.key, 0):
            continue
        if newest.receipt.code_version != launch.code_version:
            continue
        if launch.only == "missing" or newest.receipt.root_run_id == launch.root_run_id:
            done.add(partition.key)
    return done


def _publish_chunk(
    spec: TableSpec,
    chunk: list[Partition],
    place: tuple[int, int],
    source: Source[Rows],
    lake: Lake[Rows],
    launch: Launch,
    surveys: Mapping[str, Survey],
    sealed: set[Partition],
    slices: int = 1,
) -> Iterator[Outcome]:
    """Publish one chunk, with as many attempts as a conflict deserves.

    If memory runs out the chunk is halved; a single partition is gone through in slices by key, and still published in one
    commit.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            yield from _attempt(spec, chunk, place, source, lake, launch, surveys, sealed, slices)
            return
        except MemoryExhaustedError:
            smaller = in_smaller_parts(chunk, slices)
            if not smaller:
                raise
            launch.log(smaller[0].why)
            for part in smaller:
                yield from _publish_chunk(spec, part.partitions, place, source, lake, launch, surveys, sealed, part.slices)
            return
        except (CommitConflictError, SourceChangedError, TableLockedError, _OvertakenError) as error:
            if attempt == ATTEMPTS:
                raise
            seconds = random.uniform(0.5, 1.5) * 2 ** (attempt - 1)  # noqa: S311 (jitter, not a secret)
            launch.log(f"Attempt {attempt} of {ATTEMPTS} was overtaken ({error}); everything is read again in {seconds:.1f} s.")
            launch.sleep(seconds)
            surveys = source.survey(chunk)


class _OvertakenError(CommitConflictError):
    """Another commit wrote the same partitions after this one was staged; read again and publish again."""


def _attempt(
    spec: TableSpec,
    chunk: list[Partition],
    place: tuple[int, int],
    source: Source[Rows],
    lake: Lake[Rows],
    launch: Launch,
    before: Mapping[str, Survey],
    sealed: set[Partition],
    slices: int,
) -> Iterator[Outcome]:
    """Stage, audit, publish and verify one chunk once."""
    seconds: dict[str, float] = {}
    clock = _Stopwatch(launch.clock, seconds)
    staged_from = lake.version()
    staged, held = stage_and_hold(chunk, before, source, lake, clock.lap, slices=slices)
    try:
        verdicts = audit_all(spec, chunk, before, staged, held, source, lake, sealed=[p for p in chunk if p in sealed])
        passed = [v.partition for v in verdicts if v.passed]
        refused = [v for v in verdicts if not v.passed]
        clock.lap("audit")
        published = None
        refuse_changed_source(chunk, before, source)
        if passed:
            receipt = _receipt(spec, passed, before, staged, held, staged_from, launch)
            commit = lake.overwrite(held, passed, receipt)
            clock.lap("save")
            _verify(spec, passed, held, commit, receipt, lake)
            overtaken = lake.touched_between(staged_from, commit.version, passed)
            if overtaken:
                raise _OvertakenError(
                    f"`{spec.key}`: version {overtaken[-1]} wrote partitions of this chunk after it was staged from version {staged_from}.",
                    state=f"Version {commit.version} holds content that may be older.",
                    remedy="It is staged and published again.",
                )
            clock.lap("verify")
            published = Published(place[0], place[1], tuple(passed), receipt, commit, seconds)
    finally:
        held.release()
    if published:
        yield published
    for verdict in refused:
        yield Refused(verdict)


def _receipt(
    spec: TableSpec,
    partitions: Sequence[Partition],
    surveys: Mapping[str, Survey],
    staged: Staged[Rows],
    held: Held[Rows],
    staged_from: int,
    launch: Launch,
) -> Receipt:
    return Receipt(
        receipt_id=uuid.uuid4().hex,
        table=spec.key,
        run_id=launch.run_id,
        root_run_id=launch.root_run_id,
        staged_from_version=staged_from,
        source=staged.position,
        partitions={
            p.key: PartitionReceipt.of(
                held.tallies.get(p.key, EMPTY),
                fingerprint=surveys[p.key].fingerprint,
                superseded_rows=held.superseded_rows.get(p.key, 0),
                late_rows=held.late.rows.get(p.key, 0),
            )
            for p in partitions
        },
        late_version=held.late.version,
        reason=launch.reason,
        code_version=launch.code_version,
        flow=launch.flow,
        made_at=launch.now().isoformat(timespec="seconds"),
    )


def _verify(
    spec: TableSpec,
    partitions: Sequence[Partition],
    held: Held[Rows],
    commit: Commit,
    receipt: Receipt,
    lake: Lake[Rows],
) -> None:
    """Hold what was committed against what was audited; put the old content back if it differs.

    Two counts that Spark and Delta keep anyway are looked at first. Only when one differs or is lacking is the table
    read. What another commit has replaced since is newer, and stays.
    """
    audited = {p.key: held.tallies.get(p.key, EMPTY) for p in partitions}
    counted = all(commit.rows.get(key, 0) == tally.rows for key, tally in audited.items())
    if counted and commit.written == total(audited.values()):
        return
    committed = lake.tally(partitions, version=commit.version)
    wrong = [key for key, tally in audited.items() if not tally.same_content(committed.get(key, EMPTY))]
    if not wrong:
        return
    since = lake.touched_between(commit.version, lake.version() + 1, partitions)
    ours = [p for p in partitions if not since or not lake.touched_between(commit.version, since[-1] + 1, [p])]
    state = f"Version {since[-1]} has replaced it since, so nothing was put back." if since else ""
    if ours:
        state = f"The content from before was put back as version {_put_back(ours, commit, receipt, lake).version}."
    raise StagedContentLostError(
        f"`{spec.key}`: version {commit.version} does not hold what was audited in {len(wrong)} partitions (first `{wrong[0]}`).",
        state=state,
        remedy="Launch the range again; if it happens twice, look for executors that are lost during the write.",
        partitions=wrong,
        version=commit.version,
    )


def _put_back(partitions: Sequence[Partition], commit: Commit, receipt: Receipt, lake: Lake[Rows]) -> Commit:
    """Replace partitions with what they held before a commit of ours."""
    old = lake.tally(partitions, version=commit.version - 1)
    put_back = replace(
        receipt,
        receipt_id=uuid.uuid4().hex,
        staged_from_version=commit.version,
        source={"kind": "version", "version": commit.version - 1},
        partitions={p.key: PartitionReceipt.of(old.get(p.key, EMPTY), fingerprint="") for p in partitions},
        late_version=None,
        reason=f"version {commit.version} does not hold what was audited",
        kind="put_back",
    )
    return lake.put_back(partitions, version=commit.version - 1, receipt=put_back)


class _Stopwatch:
    """Fills a mapping with the seconds that each step took."""

    def __init__(self, clock: Callable[[], float], seconds: dict[str, float]) -> None:
        self._clock, self._seconds, self._last = clock, seconds, clock()

    def lap(self, step: str) -> None:
        now = self._clock()
        self._seconds[step] = self._seconds.get(step, 0.0) + now - self._last
        self._last = now
