"""What the source needs of a form of files: a Protocol that Parquet, JSON lines and CSV implement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pyspark.sql import DataFrame

from backfill_assets.sources.files.listing import SourceFile


class Count(NamedTuple):
    """Rows of one file as the file itself says, and how many of them would be misread without a word."""

    rows: int
    misread: int = 0


class FileFormat(Protocol):
    """One form of files. What Spark raises passes through."""

    def look_at(self, files: Sequence[SourceFile]) -> None:
        """Note what the footers or headers of files say; of each file once."""
        ...

    def misfits(self, file: SourceFile) -> tuple[str, ...]:
        """Return in words why a file that was looked at must not be read with the spec's columns."""
        ...

    def rows(self, files: Sequence[SourceFile]) -> DataFrame:
        """Return the typed rows of files.

        `_ba_file_id` is the id of each one's file; `_ba_problem`, if it is there, says why the row cannot be read.
        """
        ...

    def count(self, files: Sequence[SourceFile]) -> dict[int, Count]:
        """Count the rows of each file by its id, without the typed frame; of each file, also where it has none."""
        ...

    def counted(self, files: Sequence[SourceFile]) -> dict[int, Count]:
        """Return the rows of files, by id, as far as a look at them has told; nothing unless a form overrides it."""
        del files
        return {}

    def numbered(self, files: Sequence[SourceFile]) -> DataFrame:
        """Return the typed rows of files with `_ba_file`, and `_ba_line` where rows are lines."""
        ...

    def read_through(self, files: Sequence[SourceFile]) -> None:
        """Read files to their end, which fails if that cannot be done."""
        ...

    def rows_until_broken(self, files: Sequence[SourceFile]) -> dict[SourceFile, tuple[int, int | None]] | None:
        """Return each file that cannot be read to its end: how many rows can be read, and how many it promises.

        Returns:
            None where files of this form promise nothing: whoever asks has to read them one by one.
        """
        del files
        return None

    def columns_of(self, files: Sequence[SourceFile]) -> list[str]:
        """Return the names of the columns of files."""
        ...

    def schema_problems(self, files: Sequence[SourceFile]) -> list[str]:
        """Return in words how the columns of files differ from the spec's."""
        ...

    def lacking(self, names: Sequence[str], files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """Return, by column, the files that do not have it."""
        ...
