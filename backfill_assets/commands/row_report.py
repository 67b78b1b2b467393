"""The rows in which a table differs from its source: shown on a terminal, and written to a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_assets.commands.project import Project
from backfill_assets.errors import ConfigurationError, written_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from rich.console import Console

    from backfill_assets.core.calendar.partitions import Partition
    from backfill_assets.core.history.row_difference import RowDifference, Values
    from backfill_assets.core.history.staged_rows import StagedChunk
    from backfill_assets.core.spec.table import TableSpec

MOST_IN_FILE = 100_000
"""So many rows go into a file at most."""

_BEFORE_VALUES = ("partition", "difference", "differs_in", "source_times", "table_times")


@dataclass(slots=True)
class RowReport:
    """Rows in which a table differs from its source.

    Args:
        key_columns: By which a row is named; all columns, of a table without a key.
        rows: Some of them, or all.
        total: How many there are, as far as they were looked for; rows beyond `MOST_IN_FILE` of a chunk are not.
        frames: The same as Arrow tables, where they are asked for.
        not_compared: Partitions whose source is not whole, or whose rows in the table cannot be read, each with why.
    """

    key: str
    key_columns: Sequence[str]
    columns: Sequence[str]
    rows: list[RowDifference] = field(default_factory=list["RowDifference"])
    total: int = 0
    frames: list[Any] = field(default_factory=list[Any])
    not_compared: list[str] = field(default_factory=list[str])

    def add(self, other: RowReport) -> None:
        """Take in what was found in other partitions."""
        self.rows += other.rows
        self.total += other.total
        self.frames += other.frames

    def to_body(self) -> dict[str, Any]:
        """Return what goes into a JSON report."""
        rows = [asdict(row) for row in self.rows]
        return {"row_differences": self.total, "rows": rows, "rows_not_compared": self.not_compared}

    def show(self, console: Console) -> None:
        """Print the rows, each by its key, with what differs."""
        from rich.markup import escape
        from rich.table import Table

        for verdict in self.not_compared:
            said = f"Its rows were not compared, since its source is not whole: {verdict}"
            console.print(said, highlight=False, markup=False, soft_wrap=True)
        if not self.rows:
            if not self.not_compared:
                console.print(f"{self.key}: no row was found that differs.", highlight=False)
            return
        table = Table(title=f"{self.key}: rows that differ", title_justify="left")
        for name in ("partition", "row", "difference", "source", "table"):
            table.add_column(name, overflow="fold")
        for row in self.rows:
            named = ", ".join(f"{name}={_shown(row.either[name])}" for name in self.key_columns)
            shown = row.columns or [name for name in self.columns if name not in self.key_columns]
            times = f" ({row.source_times:,} and {row.table_times:,} times)" if row.kind == "repeated" else ""
            cells = (_cell(row.source, shown), _cell(row.table, shown))
            table.add_row(row.partition, escape(named), f"{row.kind}{times}", *map(escape, cells))
        console.print(table)
        if self.total > len(self.rows):
            more = f"{len(self.rows):,} of {self.total:,} rows are shown"
            console.print(f"{more}; `--limit` shows more, `--rows FILE` writes them to a file.", highlight=False)

    def write(self, file: Path) -> int:
        """Write the rows, up to `MOST_IN_FILE`, as CSV or Parquet by the file's name; return how many.

        In CSV NULL is nothing at all, and a text without letters is `""`.
        """
        beside = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            count = self._write_parquet(beside) if _is_parquet(file) else self._write_csv(beside)
            beside.replace(file)
        except OSError as error:
            raise ConfigurationError(
                f"`{file}` cannot be written: {error.strerror or error}.",
                state="The tables were compared, and nothing was changed.",
                remedy="Make room, or name another file.",
            ) from error
        finally:
            with suppress(OSError):
                beside.unlink()
        return count

    def _write_csv(self, file: Path) -> int:
        names = [f"{name}_{side}" for name in self.columns for side in ("source", "table")]
        with file.open("w", encoding="utf-8", newline="") as out:
            out.write(_csv_line([*_BEFORE_VALUES, *names]))
            for row in self.rows:
                sides = [None if side is None else side[n] for n in self.columns for side in (row.source, row.table)]
                first = (row.partition, row.kind, ",".join(row.columns), str(row.source_times), str(row.table_times))
                out.write(_csv_line([*first, *sides]))
        return len(self.rows)

    def _write_parquet(self, file: Path) -> int:
        import pyarrow as pa
        import pyarrow.parquet as pq

        whole = pa.concat_tables(self.frames) if self.frames else pa.table({name: [] for name in _BEFORE_VALUES})
        pq.write_table(whole, file)
        return whole.num_rows


def check_file(file: Path) -> None:
    """Refuse a file before anything is compared, if it could not be written afterwards.

    Raises:
        ConfigurationError: It is of another kind, or its folder is not there.
    """
    problem, remedy = "", "Name it `differences.csv` or `differences.parquet`."
    if file.suffix not in (".csv", ".parquet"):
        problem = f"`{file}` is neither a `.csv` nor a `.parquet` file."
    elif not file.absolute().parent.is_dir() or not os.access(file.absolute().parent, os.W_OK):
        problem, remedy = f"`{file}` cannot be written: `{file.absolute().parent}`.", "Name a folder that is there."
    if problem:
        raise ConfigurationError(problem, state="Nothing was compared.", remedy=remedy)


def compare_rows(
    project: Project,
    key: str,
    partitions: Sequence[Partition],
    *,
    limit: int,
    file: Path | None,
    log: Callable[[str], None],
) -> RowReport:
    """Read partitions that differ from their source once more, and name the rows. Writes no table.

    Args:
        limit: So many rows are shown.
        file: Where they go besides.

    Raises:
        PublishError: The source cannot be read.
    """
    from backfill_assets.core.history.explain import at_moments, explain
    from backfill_assets.core.history.moments import FollowedSource
    from backfill_assets.core.sql import replace_where
    from backfill_assets.lake.staged_chunk import rows_of
    from backfill_assets.spark.failures import translated

    chosen = project.table(key)
    spec = chosen.spec
    names = list(spec.columns)
    report = RowReport(key, spec.key_columns or names, names)
    lake = chosen.lakehouse.table(spec, log)
    version = lake.version()
    unreadable = lake.unreadable(partitions, version=version)
    report.not_compared += [f"{one}: the table's rows cannot be read: {why}." for one, why in unreadable.items()]
    partitions = [partition for partition in partitions if partition.key not in unreadable]
    transform = chosen.table.transform() if chosen.table.transform else None
    source = chosen.lakehouse.source(spec, chosen.specs, transform, log)
    wanted = limit if file is None else MOST_IN_FILE

    def compared(staged: StagedChunk[DataFrame], some: Sequence[Partition]) -> RowReport:
        in_table = lake.read(version).where(replace_where(spec.partition_column, some))
        return of_sides(rows_of(spec, staged, some), in_table, staged.count)

    def of_sides(in_source: DataFrame, in_table: DataFrame, count: int) -> RowReport:
        with_frames = file is not None and _is_parquet(file)
        return _differing(spec, report, (in_source, in_table, count), wanted=wanted, with_frames=with_frames)

    with translated(key):
        if isinstance(source, FollowedSource):
            rows = at_moments(spec, partitions, source, version=version, compare_rows=of_sides)
        else:
            rows = explain(spec, partitions, source, lake, compare_rows=compared, log=log)
        for found in rows:
            if isinstance(found, RowReport):
                report.add(found)
            else:
                report.not_compared.append(str(found))
    if file is not None:
        log(f"Wrote {report.write(file):,} of {report.total:,} rows to {file}.")
        report.rows = report.rows[:limit]
    return report


def _differing(
    spec: TableSpec, report: RowReport, sides: tuple[DataFrame, DataFrame, int], *, wanted: int, with_frames: bool
) -> RowReport:
    """Compare the rows of two sides.

    Args:
        report: What was found so far.
        sides: The source's rows, the table's, and about how many there are.
        wanted: So many are named in all.
    """
    from backfill_assets.lake.compare import compare
    from backfill_assets.spark.failures import translated

    in_source, in_table, count = sides
    with translated(spec.key), compare(spec, in_source, in_table, rows=count) as compared:
        most = max(0, wanted - len(report.rows))
        frames = [compared.arrow(most)] if with_frames else []
        rows = compared.rows(most)
        return RowReport(spec.key, report.key_columns, report.columns, rows, compared.count(), frames=frames)


def _is_parquet(file: Path) -> bool:
    return file.suffix == ".parquet"


def _cell(row: Values | None, names: Sequence[str]) -> str:
    return "-" if row is None else "\n".join(f"{name}: {_shown(row[name])}" for name in names)


def _shown(value: str | None) -> str:
    return "NULL" if value is None else written_out(value) or "''"


def _csv_line(values: Sequence[str | None]) -> str:
    return ",".join("" if value is None else '"' + value.replace('"', '""') + '"' for value in values) + "\n"
