"""Measures how one wrong row among ten million is found, and what looking for gaps costs beside a comparison.

One table of a hundred days. Rows of it are changed behind everybody's back, one in each of five ways, and `reconcile
--explain` is to name exactly these five. `gaps`, `reconcile` and `reconcile --explain` run three times each, one after
the other, in a process that has its JVM already: so the start of one, which all of them have, is in no figure.

    python -m benchmarks.one_in_many [--rows 10000000]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

from backfill_assets.assets.factory import build_lakehouse_table
from backfill_assets.assets.lakehouse import lakehouse_definitions
from backfill_assets.core.spec.table import TableSpec
from benchmarks.processes import REPOSITORY, environment, launch_command

MODULE, TABLE, DAYS, TIMES = "benchmarks.one_in_many", "bronze/payments", 100, 3
FIRST = datetime(2024, 1, 1, tzinfo=UTC)
RANGE = f"{FIRST:%Y-%m-%d}...{FIRST + timedelta(days=DAYS - 1):%Y-%m-%d}"


@dg.definitions
def defs() -> dg.Definitions:
    """Return the table `bronze/payments`."""
    spec = TableSpec.model_validate(
        {
            "key": TABLE,
            "columns": {
                "payment_id": "bigint not null",
                "payer": "string",
                "payee": "string",
                "note": "string",
                "cents": "bigint",
                "paid_at": "timestamp not null",
            },
            "key_columns": ["payment_id"],
            "event_time": "paid_at",
            "grain": "daily",
            "start": f"{FIRST:%Y-%m-%d}",
            "source": {"kind": "files", "path": "payments", "format": "parquet", "layout": "year/month/day"},
        }
    )
    return lakehouse_definitions(build_lakehouse_table(spec))


def write(root: Path, rows: int) -> None:
    """Write a file of rows for each day."""
    each = rows // DAYS
    for number in range(DAYS):
        day = FIRST + number * timedelta(days=1)
        folder = root / "landing" / "payments" / f"{day:%Y/%m/%d}"
        folder.mkdir(parents=True)
        ids = pa.array(range(number * each, number * each + each), pa.int64())
        step, start = 86_400_000_000 // each, int(day.timestamp()) * 1_000_000
        made = {
            "payment_id": ids,
            "payer": pa.array([f"payer {i % 9973}" for i in range(each)]),
            "payee": pa.array([f"payee {i % 7919}" for i in range(each)]),
            "note": pa.array(["" if i % 3 else None for i in range(each)], pa.string()),
            "cents": pa.array([i * 37 % 100_003 for i in range(each)], pa.int64()),
            "paid_at": pa.array([start + i * step for i in range(each)], pa.timestamp("us", "UTC")),
        }
        pq.write_table(pa.table(made), folder / "payments.parquet")


def spoil(root: Path, rows: int) -> dict[int, tuple[str, str]]:
    """Change five rows of the table with another writer, each in another way; return how each differs, by id."""
    table, each = deltalake.DeltaTable(f"{root}/tables/{TABLE}"), rows // DAYS
    flipped, lost, doubled, emptied, swapped = (day * each + 3 * (each // 7) + 1 for day in (3, 20, 41, 77, 99))
    table.update(updates={"cents": "cents + 1"}, predicate=f"payment_id = {flipped}")
    table.delete(f"payment_id = {lost}")
    again = table.to_pyarrow_table(filters=[("payment_id", "=", doubled)])
    deltalake.write_deltalake(table, again, mode="append")
    table.update(updates={"note": "NULL"}, predicate=f"payment_id = {emptied}")
    table.update(updates={"payer": "payee", "payee": "payer"}, predicate=f"payment_id = {swapped}")
    return {
        flipped: ("different", "cents"),
        lost: ("missing", ""),
        doubled: ("repeated", ""),
        emptied: ("different", "note"),
        swapped: ("different", "payer,payee"),
    }


def measured(rows: int) -> dict[str, list[float]]:
    """Run the commands in this process; return the seconds of each, and end unless exactly the five rows are named."""
    from click.testing import CliRunner

    from backfill_assets.cli import main

    root = Path(os.environ["LAKEHOUSE_ROOT"])
    seconds: dict[str, list[float]] = {}

    def run(name: str, *arguments: str, code: int) -> str:
        began = time.perf_counter()
        result = CliRunner().invoke(main, [*arguments, "--definitions", MODULE])
        seconds.setdefault(name, []).append(time.perf_counter() - began)
        if result.exit_code != code:
            sys.exit(f"{name} ended with exit code {result.exit_code}, not {code}:\n{result.output}")
        return result.stdout

    run("start", "status", TABLE, code=0)
    for _ in range(TIMES):
        run("gaps", "gaps", TABLE, code=0)
        run("reconcile", "reconcile", TABLE, code=0)
    wrong = spoil(root, rows)
    file = root / "rows.parquet"
    for _ in range(TIMES):
        run("reconcile, five rows differ", "reconcile", TABLE, code=1)
        run("the same with --explain", "reconcile", TABLE, "--rows", str(file), code=1)
    found = pq.read_table(file).to_pylist()
    named = {row["payment_id_source"]: (row["difference"], row["differs_in"]) for row in found}
    if named != wrong or len(found) != len(wrong):
        sys.exit(f"{wrong} differ, and {found} were named.")
    return seconds


def run_all(rows: int) -> None:
    """Make the table, measure in one process, and print what came out."""
    with tempfile.TemporaryDirectory() as folder:
        root, home = Path(folder, "lakehouse"), Path(folder, "home")
        home.mkdir()
        settings = environment(root, home)
        write(root, rows)
        subprocess.run(
            launch_command(MODULE, TABLE, "--partition-range", RANGE),
            env=settings, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        command = [sys.executable, "-m", MODULE, "--rows", str(rows), "--here"]
        done = subprocess.run(command, env=settings, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True)
    seconds: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    middle = {name: statistics.median(found) for name, found in seconds.items()}
    for name, found in seconds.items():
        sys.stdout.write(f"{name:<28} {middle[name]:7.1f} s   ({', '.join(f'{one:.1f}' for one in found)})\n")
    sys.stdout.write(f"gaps / reconcile: {middle['gaps'] / middle['reconcile']:.3f}\n")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--here", action="store_true", help="measure in this process, over a table that is there")
    asked: Any = parser.parse_args(arguments)
    if asked.here:
        sys.stdout.write(json.dumps(measured(asked.rows)) + "\n")
    else:
        run_all(asked.rows)


if __name__ == "__main__":
    main()
