"""Which files may hold which partition, and what that says of it before a row is read. Pure."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

from backfill_assets.core.calendar.layouts import ANY_TIME
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.calendar.windows import Window
from backfill_assets.core.state.surveys import Survey
from backfill_assets.core.state.tallies import instant_of
from backfill_assets.sources.files.listing import SourceFile

Manifest = Mapping[str, tuple[SourceFile, ...]]
"""By partition key, the files that may hold rows of it, in order; partitions may share one tuple."""


def manifest_of(files: Sequence[SourceFile], partitions: Sequence[Partition]) -> Manifest:
    """Return, by partition key, the files that may hold rows of it."""
    ordered = sorted(partitions, key=lambda p: p.window.start_utc)
    starts, ends = [p.window.start_utc for p in ordered], [p.window.end_utc for p in ordered]
    by_window: dict[Window, list[SourceFile]] = {}
    for file in sorted(files):
        by_window.setdefault(file.window, []).append(file)
    if len(by_window) == 1 and ANY_TIME in by_window:
        return dict.fromkeys((p.key for p in partitions), tuple(by_window[ANY_TIME]))
    by_key: dict[str, list[SourceFile]] = {p.key: [] for p in partitions}
    for window, alike in by_window.items():
        for partition in ordered[bisect_right(ends, window.start_utc) : bisect_left(starts, window.end_utc)]:
            by_key[partition.key].extend(alike)
    return {key: tuple(sorted(found)) for key, found in by_key.items()}


def surveys_of(manifest: Manifest, partitions: Sequence[Partition]) -> dict[str, Survey]:
    """Return the survey of each partition: a digest of the names below the root, lengths and times of its files."""
    shared: dict[int, Survey] = {}  # where any file may hold any partition, all of them have one and the same tuple
    surveys: dict[str, Survey] = {}
    for partition in partitions:
        files = manifest[partition.key]
        if id(files) not in shared:
            lines = (f"{file.name}\t{file.size_bytes}\t{file.modified_micros}\n" for file in files)
            digest = hashlib.sha256("".join(lines).encode()).hexdigest()[:16]
            size_bytes = int(sum(file.size_bytes * _share(file, partition, len(partitions)) for file in files))
            changed_micros = max((file.modified_micros for file in files if file.size_bytes), default=None)
            shared[id(files)] = Survey(digest, size_bytes, files, instant_of(changed_micros), len(files))
        surveys[partition.key] = shared[id(files)]
    return surveys


def all_files(lists: Iterable[tuple[SourceFile, ...]]) -> list[SourceFile]:
    """Return every file once, in order; partitions that share their files share one tuple."""
    return sorted({file for files in {id(files): files for files in lists}.values() for file in files})


def lies_in(inner: Window, outer: Window) -> bool:
    """Say whether all of one window lies inside another."""
    return outer.start_utc <= inner.start_utc and inner.end_utc <= outer.end_utc


def _share(file: SourceFile, partition: Partition, partitions: int) -> float:
    """Return which part of a file's bytes may be a partition's, for the size of chunks."""
    return 1 / partitions if file.window == ANY_TIME else file.window.share_in(partition.window)
