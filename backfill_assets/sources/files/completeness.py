"""Until when files are complete, and which folders their writer has not finished."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pyspark.sql import SparkSession

from backfill_assets.core.calendar.layouts import ANY_TIME, Layout, Unit
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.calendar.windows import Grain, Window, midnight_utc
from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.sources.files.listing import SourceFile
from backfill_assets.sources.files.local_files import JOB, MARKER, Marks, marks_in
from backfill_assets.spark.local_disk import seen_as_spark_does
from backfill_assets.spark.storage import those_there


@dataclass(frozen=True, slots=True)
class Completeness:
    """What folders say of being complete.

    Args:
        log: Called with one sentence about folders of a time that has not begun.
        now: The instant that it is.
    """

    spark: SparkSession
    spec: TableSpec
    source: FilesSpec
    root: str
    layout: Layout
    log: Callable[[str], None]
    now: Callable[[], datetime]
    _named: set[str] = field(default_factory=set[str], init=False)
    _seen: set[str] = field(default_factory=set[str], init=False)
    _left: dict[SourceFile, str] = field(default_factory=dict["SourceFile", str], init=False)
    _marks: dict[str, Marks] = field(default_factory=dict[str, Marks], init=False)

    @property
    def needs_markers(self) -> bool:
        """Whether each folder says by a file of its own that it is complete."""
        return self.source.complete_when == "success_marker"

    def until(self, files: Sequence[SourceFile]) -> datetime | None:
        """Return the instant up to which files are complete: never more than a partition beyond now.

        Being there makes no folder complete that holds several partitions, a month of days or a day of hours: it is
        complete when a later one is there. The spec's own `complete_until` goes before all of this. A folder of a time
        that has not begun says nothing: `2999` is a slip of the pen.
        """
        grid, now = self.spec.grid, self.now()
        current = grid.partition_of(max(now, grid.start_utc)).window
        latest = now + (current.end_utc - current.start_utc)
        begun = [file for file in files if file.window == ANY_TIME or file.window.start_utc < latest]
        self._name_the_future(set(files) - set(begun))
        if not begun:
            return None
        found = self._said(begun)
        return None if found is None else min(found, latest)

    def look_at(self, files: Sequence[SourceFile]) -> None:
        """Look at the folders of many files at once, as they are now, before it is asked of each partition."""
        self._seen.clear()
        self._marks.clear()
        self._left.clear()
        by_folder: dict[str, list[SourceFile]] = {}
        for file in files:
            by_folder.setdefault(file.path.rpartition("/")[0], []).append(file)
        by_time: dict[tuple[str, ...], list[SourceFile]] = {}
        for beside in by_folder.values():
            root, names = self._parts_of(beside[0])
            by_time.setdefault((root, *(names[: self._own] if self._own else names)), []).extend(beside)
        for (root, *names), together in by_time.items():
            self._left.update(self._left_beside(root, names, together))
        if self.needs_markers:
            self._seen.update(self._marked({self._folders_of(file)[0] for file in files}))

    def unfinished(self, partition: Partition, files: Sequence[SourceFile]) -> list[str]:
        """Return the folders of a partition's time that lack the marker which the spec asks for, in order.

        Files in folders below the time's own (`2024/02/29/EU/`) have their marker beside them or anywhere above, up to
        the folder of that time. An empty folder needs one too: without it nothing was exported yet.
        """
        if not self.needs_markers:
            return []
        begin_utc = midnight_utc(self.source.begins(self.spec.start), self.spec.grid.zone)
        have = {file.window for file in files}
        empty = [
            f"{self.root.rstrip('/')}/{name}"
            for slot in self.layout.slots_in(partition.window)
            if slot.window not in have and slot.window.end_utc > begin_utc
            for name in dict.fromkeys((slot.name, slot.unpadded))
        ]
        empty = [] if self.layout.names_files else sorted(those_there(self.spark, empty))
        chains = [*(self._folders_of(file) for file in files), *([folder] for folder in empty)]
        return self._without_marker(chains, self._seen)

    def left_unfinished(self, partition: Partition, files: Sequence[SourceFile]) -> str | None:
        """Return what an export that failed or goes on has left beside a partition's files; None if nothing is known.

        | where                                       | what                        | of which files        |
        |---------------------------------------------|-----------------------------|-----------------------|
        | the folder of the files' time, and below it | whatever `marks_in` names   | all                   |
        | a folder above, or one of several times     | a job's `_temporary`        | those not older; none |

        What lay there before the job began is as whole as it was. A time without files may be one that the job brings.
        A later `_SUCCESS` in the same folder says that it has ended; in the folder of the time also for those below.
        Only on this disk: elsewhere each folder would have to be listed once more.
        """
        if found := next((self._left[file] for file in files if file in self._left), None) if self._left else None:
            return found
        if not (slots := self.layout.slots_in(partition.window)):
            return None
        have = {file.window for file in files}
        lacking = {name for slot in slots if slot.window not in have for name in (slot.name, slot.unpadded)}
        return next(filter(None, map(self._left_of_no_file, sorted(lacking))), None)

    def _left_of_no_file(self, name: str) -> str | None:
        """Return what speaks against there being no file of a time: that is said elsewhere unless gaps are allowed."""
        root, names = self.root.rstrip("/"), name.split("/")
        job = next(iter(self._jobs_above(root, names, len(names))), None)
        if job or self.layout.names_files or self.source.gaps != "allowed":
            return job
        return self._left_below(f"{root}/{name}")

    @property
    def _own(self) -> int:
        """How deep the folder of one time alone lies; 0 if there is none."""
        return 0 if self.layout.dates_files else self.layout.folders

    def _left_beside(self, root: str, names: Sequence[str], files: Sequence[SourceFile]) -> dict[SourceFile, str]:
        """Return what speaks against which files of one time's folder; of any folder where no time has its own."""
        left = self._left_below("/".join([root, *names])) if self._own else None
        found = dict.fromkeys(files, left) if left else {}
        for job, began in self._jobs_above(root, names, self._own or len(names) + 1).items():
            began_micros = began // 1_000_000 * 1_000  # Spark lists milliseconds, and no time of a file without bytes
            found |= {file: job for file in files if began_micros <= file.modified_micros or not file.size_bytes}
        return found

    def _jobs_above(self, root: str, names: Sequence[str], depth: int) -> dict[str, int]:
        """Return the jobs that go on in folders less deep than `depth`, and since when."""
        jobs: dict[str, int] = {}
        for above in range(depth):
            folder = "/".join([root, *names[:above]])
            marks = self._marks_of(folder)
            if JOB in marks.left and (marks.marked or 0) < marks.left[JOB].moved:
                jobs[f"{folder}/{JOB}"] = marks.left[JOB].began
        return jobs

    def _left_below(self, folder: str, ended: int = 0, above: frozenset[str] = frozenset()) -> str | None:
        """Return what was left in the folder of a time or below it, where files are or may come.

        Args:
            ended: When a folder above was marked as complete.
            above: The folders that it lies in: a link may lead back to one.
        """
        marks = self._marks_of(folder)
        ended = max(ended, marks.marked or 0)
        if late := [name for name, found in marks.left.items() if ended < found.moved]:
            return f"{folder}/{late[0]}"
        if not marks.below or (here := os.path.realpath(folder.removeprefix("file:"))) in above:
            return None
        below = (self._left_below(f"{folder}/{name}", ended, above | {here}) for name in marks.below)
        return next(filter(None, below), None)

    def _marks_of(self, folder: str) -> Marks:
        if folder not in self._marks:
            local = seen_as_spark_does(self.spark, folder)
            self._marks[folder] = Marks(None, {}, []) if local is None else marks_in(str(local))
        return self._marks[folder]

    def _said(self, files: Sequence[SourceFile]) -> datetime | None:
        """Return until when files are complete by the spec's own words, its markers, or their being there."""
        if self.source.complete_until:
            return midnight_utc(self.source.complete_until, self.spec.grid.zone)
        if self.needs_markers:
            folders: dict[Window, list[list[str]]] = {}
            for file in files:
                folders.setdefault(file.window, []).append(self._folders_of(file))
            by_end = sorted(folders, key=lambda window: window.end_utc, reverse=True)
            return next((window.end_utc for window in by_end if not self._without_marker(folders[window])), None)
        last = max((file.window for file in files), key=lambda window: window.end_utc)
        longer = (Unit.DAY, Unit.MONTH, Unit.YEAR) if self.spec.grain is Grain.HOURLY else (Unit.MONTH, Unit.YEAR)
        if self.layout.unit in longer and len(self.spec.grid.covering(last)) > 1:
            return last.start_utc
        return last.end_utc

    def _name_the_future(self, files: Iterable[SourceFile]) -> None:
        """Say once which files are about a time that has not begun."""
        found = sorted(file for file in files if file.path not in self._named)
        if found:
            first = found[0]
            day = (first.window.start_utc + timedelta(microseconds=1)).astimezone(self.spec.grid.zone).date()
            self.log(
                f"`{self.spec.key}`: {len(found):,} files are about a time that has not begun (first `{first.path}`, "
                f"from `{day}` on); they do not make the source complete until then. Put their names right."
            )
            self._named.update(file.path for file in found)

    def _folders_of(self, file: SourceFile) -> list[str]:
        """Return the folder of the time that a file is about, and each one below it down to the file's own."""
        root, parts = self._parts_of(file)
        return ["/".join([root, *parts[:depth]]) for depth in range(self.layout.folders, len(parts) + 1)]

    def _parts_of(self, file: SourceFile) -> tuple[str, list[str]]:
        """Return the root as Spark names it, and the names of the folders from there down to a file."""
        return file.path.removesuffix(f"/{file.name}"), file.name.split("/")[:-1]

    def _without_marker(self, chains: Sequence[Sequence[str]], known: Set[str] = frozenset()) -> list[str]:
        """Return the last folder of each chain of which no folder has the marker; in most chains the first one has.

        Args:
            known: Folders that have it.
        """
        distinct = sorted({tuple(chain) for chain in chains})
        first = {chain[0] for chain in distinct}
        marked = (first & known) | self._marked(first - known)
        rest = [chain for chain in distinct if chain[0] not in marked]
        marked |= self._marked({folder for chain in rest for folder in chain[1:]})
        return [chain[-1] for chain in rest if not marked & set(chain)]

    def _marked(self, folders: set[str]) -> set[str]:
        there = those_there(self.spark, [f"{folder}/{MARKER}" for folder in sorted(folders)])
        return {path.rpartition("/")[0] for path in there}
