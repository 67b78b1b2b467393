"""Plans over random histories of a real table: what was foreseen, partition by partition, is what the launch then does.

`SCHEDULES` says how many histories are tried, `SEED` which is the first.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands.places import Place, new_place
from tests.support.launching import ORDERS
from tests.support.shop import folder_of, multiset, orders

pytestmark = [pytest.mark.spark, pytest.mark.prove, pytest.mark.usefixtures("spark")]

DAYS = [f"2024-01-0{n}" for n in range(1, 9)]
RANGE = f"{DAYS[0]}...{DAYS[-1]}"
ROUNDS = 5
FIRST = int(os.environ.get("SEED", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("SCHEDULES", "4")))
WRITES = {"create", "replace"}


def corrected(place: Place, day: str, dice: random.Random) -> None:
    """The source has other values in as many rows."""
    place.lake.export(day, orders(day, 4, amount=Decimal(dice.randrange(100, 999)) / 100))


def of_another_size(place: Place, day: str, dice: random.Random) -> None:
    """The source has more rows, or fewer, or none."""
    place.lake.export(day, orders(day, dice.choice([0, 1, 3, 4, 7])))


def gone(place: Place, day: str, _: random.Random) -> None:
    """The source has nothing of the day any more."""
    for file in folder_of(place.lake.root / "landing/orders", day).glob("*"):
        file.unlink()


def unreadable(place: Place, day: str, _: random.Random) -> None:
    """One of the day's files is no Parquet file."""
    folder = folder_of(place.lake.root / "landing/orders", day)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "broken.parquet").write_bytes(b"PAR1 and no more")


def twice(place: Place, day: str, _: random.Random) -> None:
    """A key is there twice, with other values."""
    place.lake.export(day, [*orders(day, 3), {**orders(day, 1)[0], "amount": Decimal("7.77")}])


def row_added(place: Place, day: str, _: random.Random) -> None:
    """Another writer adds a row to the table."""
    table = deltalake.DeltaTable(str(place.lake.path()))
    row = orders(day, 1, customer="nobody")[0]
    columns = {**row, "dt": row["ordered_at"].date()}
    schema = table.to_pyarrow_table().schema
    deltalake.write_deltalake(table, pa.Table.from_pylist([columns], schema=schema), mode="append")


def row_changed(place: Place, day: str, _: random.Random) -> None:
    """Another writer changes rows of the table."""
    table = deltalake.DeltaTable(str(place.lake.path()))
    table.update(predicate=f"dt = '{day}' AND order_id % 2 = 0", updates={"customer": "'changed'"})


def rows_deleted(place: Place, day: str, _: random.Random) -> None:
    """Another writer deletes rows of the table."""
    deltalake.DeltaTable(str(place.lake.path())).delete(f"dt = '{day}' AND order_id % 2 = 0")


AT_THE_SOURCE: list[Callable[[Place, str, random.Random], None]] = [corrected, of_another_size, gone, unreadable, twice]
IN_THE_TABLE: list[Callable[[Place, str, random.Random], None]] = [row_added, row_changed, rows_deleted]


def plan(place: Place, file: Path, *more: str) -> dict[str, dict[str, Any]]:
    """Return what a plan of the whole range says of each partition."""
    result = place.run("plan", ORDERS, "--partition-range", RANGE, "-o", str(file), "--json", *more)
    assert result.exit_code == 0, result.output
    return {one["partition"]: one for one in json.loads(result.stdout)["partitions"]}


def at_the_source(place: Place, day: str) -> Counter[tuple[Any, ...]]:
    """Return the rows of a day's files, read by another reader."""
    files = folder_of(place.lake.root / "landing/orders", day).glob("*.parquet")
    return multiset(row for file in files for row in pq.read_table(file).to_pylist())


def by_day(content: Counter[tuple[Any, ...]]) -> dict[str, Counter[tuple[Any, ...]]]:
    """Return a table's content, day by day."""
    found: dict[str, Counter[tuple[Any, ...]]] = {day: Counter() for day in DAYS}
    for row, count in content.items():
        (at,) = [value for value in row if hasattr(value, "hour")][:1]
        found[f"{at:%Y-%m-%d}"][row] += count
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_foresees_what_a_launch_does(tmp_path: Path, seed: int):
    """Of every partition, whatever happened to source and table: written, not written or refused as the plan said.

    What is written has the rows of its source; all else has the files that it had. A quick plan may say that something
    is written which then turns out to be identical, or is refused; where it says that nothing is, nothing is.
    """
    dice = random.Random(seed)
    place = new_place(tmp_path)
    for day in DAYS:
        place.lake.export(day, orders(day, 4))
    place.lake.launch(DAYS[0], DAYS[dice.randrange(1, 6)])
    for number in range(ROUNDS):
        happened = [
            (change.__name__, day)
            for change, day in ((dice.choice(AT_THE_SOURCE + IN_THE_TABLE), dice.choice(DAYS)) for _ in range(3))
            if change(place, day, dice) is None
        ]
        where = f"seed {seed}, round {number}: {happened}"
        quick = plan(place, tmp_path / "quick.json")
        deep = plan(place, tmp_path / f"{number}.json", "--deep")
        before, had = place.lake.files(), by_day(place.lake.content())
        if dice.random() < 0.5:
            applied = place.run("apply", str(tmp_path / f"{number}.json"))
            assert applied.exit_code == 0, (where, applied.output)
        else:
            ran = place.lake.launch(DAYS[0], DAYS[-1])
            refused = {day for day, passed in ran.verdicts().items() if not passed}
            assert refused == {day for day in DAYS if deep[day]["action"] == "refused"}, (where, ran.log)
        after, has = place.lake.files(), by_day(place.lake.content())
        for day in DAYS:
            is_written = before.get(day) != after.get(day)
            has_no_files = day not in before and not deep[day]["rows"]  # published for the first time, and empty
            assert is_written == (deep[day]["action"] in WRITES and not has_no_files), (where, day, deep[day])
            assert not (is_written and quick[day]["action"] == "identical"), (where, day, quick[day])
            if is_written:
                assert sum(has[day].values()) == deep[day]["rows"], (where, day, deep[day])
                assert has[day] == at_the_source(place, day), (where, day)
            else:
                assert has[day] == had[day], (where, day)
