"""Files that cannot be read to their end: found after a read failed, reported with a reason, then left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from backfill_assets.errors import NOTHING_WRITTEN, MemoryExhaustedError
from backfill_assets.sources.files.file_format import FileFormat
from backfill_assets.sources.files.listing import SourceFile
from backfill_assets.spark.failures import ANSWERED_FAILURES, first_words, is_out_of_memory, jvm_is_gone

UNSEEN = "for Spark does not see it: its name is not UTF-8, or it is a link that leads nowhere"
"""Why a file cannot be read that is there all the same."""


@dataclass(frozen=True, slots=True)
class UnreadableFiles:
    """What is known of files that cannot be read.

    Args:
        key: Of the table, for messages.
        reasons: By file, in words that follow "cannot be read".
    """

    key: str
    format_: FileFormat
    reasons: dict[SourceFile, str] = field(default_factory=dict[SourceFile, str])

    def __contains__(self, file: object) -> bool:
        return file in self.reasons

    def find(self, files: Sequence[SourceFile]) -> bool:
        """Read files to their end, and note those with which that cannot be done; say whether there are any."""
        before = len(self.reasons)
        broken = self.format_.rows_until_broken(files)
        if broken is None:
            self._find_by_halving(files)
        for file, (read, promised) in (broken or {}).items():
            if reason := self._why_unreadable([file]):
                where = "at its footer" if promised is None else f"after row {read:,} of {promised:,}"
                self.reasons[file] = f"{where} ({reason})"
        return len(self.reasons) > before

    def _find_by_halving(self, files: Sequence[SourceFile]) -> None:
        """Find the files whose lines cannot be read to the end: compressed ones that were cut off."""
        reason = self._why_unreadable(files) if files else None
        if reason is None:
            return
        if len(files) == 1:
            self.reasons[files[0]] = f"to its end ({reason})"
            return
        middle = len(files) // 2
        self._find_by_halving(files[:middle])
        self._find_by_halving(files[middle:])

    def _why_unreadable(self, files: Sequence[SourceFile]) -> str | None:
        """Return in a few words why files cannot be read; None if they can."""
        try:
            self.format_.read_through(files)
        except ANSWERED_FAILURES as error:
            if jvm_is_gone(error):  # no file is to blame
                raise
            if is_out_of_memory(error):  # the file is whole, it is only too much at a time
                raise MemoryExhaustedError(
                    f"`{self.key}`: Spark ran out of memory reading {len(files)} files, the first `{files[0].path}`.",
                    state=NOTHING_WRITTEN,
                    remedy="Give the driver more (`SPARK_DRIVER_MEMORY`), or make chunks smaller "
                    "(`chunk.max_partitions`).",
                ) from error
            return first_words(error)
        return None
