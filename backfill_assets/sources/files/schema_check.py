"""The columns of a launch's oldest and newest file, held against the spec before anything is read."""

from __future__ import annotations

from collections.abc import Sequence

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import NOTHING_WRITTEN, SchemaMismatchError
from backfill_assets.sources.files import columns
from backfill_assets.sources.files.file_format import FileFormat
from backfill_assets.sources.files.listing import SourceFile
from backfill_assets.spark.failures import ANSWERED_FAILURES


def columns_remarks(spec: TableSpec, format_: FileFormat, given: Sequence[SourceFile]) -> list[str]:
    """Hold the spec against the oldest and the newest of files; return what is to be said of other columns.

    Raises:
        SchemaMismatchError: Neither file fits.
    """
    files = sorted((file for file in given if file.size_bytes), key=lambda file: (file.window, file))
    if not files:
        return []
    sample = [files[0], files[-1]] if len(files) > 1 else files
    seen = [(file, problems) for file in sample if (problems := _schema_problems(format_, file)) is not None]
    if seen and all(problems for _, problems in seen):
        file, problems = seen[-1]
        raise SchemaMismatchError(
            f"`{spec.key}`: `{file.path}` does not have the spec's columns: {'; '.join(problems)}.",
            state=NOTHING_WRITTEN,
            remedy="Change the columns of the spec, mark a column `optional: true` that files may lack, or fix "
            "the export.",
            problems=problems,
        )
    extra = columns.extra_columns(spec, _columns_of(format_, [file for file, _ in seen]))
    return [columns.remark(spec, extra)] if extra else []


def _schema_problems(format_: FileFormat, file: SourceFile) -> list[str] | None:
    """Return how a file differs from the spec; None if it cannot be opened, which is found again later."""
    try:
        return format_.schema_problems([file])
    except ANSWERED_FAILURES:
        return None


def _columns_of(format_: FileFormat, files: Sequence[SourceFile]) -> list[str]:
    try:
        return format_.columns_of(files) if files else []
    except ANSWERED_FAILURES:
        return []
