"""What the table of the soak must hold in the end: every exported row and every event that landed, as it is newest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

from backfill_assets.demo.orders import COLUMNS, file_of
from benchmarks.soak_processes import FIRST_DAY, LIVE_FROM, Soak

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Landed:
    """What the landed files hold.

    Args:
        late: From before the fence, by day.
        wrong: Lines that are no event.
    """

    live: Counter[Row]
    late: dict[date, list[Row]]
    wrong: int

    @classmethod
    def read(cls, folder: Path) -> Landed:
        fence = datetime.fromisoformat(LIVE_FROM).replace(tzinfo=UTC)
        live, late, wrong = Counter[Row](), dict[date, list[Row]](), 0
        for file in folder.glob("*.json"):
            for line in file.read_text(encoding="utf-8").splitlines():
                row = row_of(line)
                if row is None:
                    wrong += 1
                elif (at := row[COLUMNS.names.index("ordered_at")]) >= fence:
                    live[row] += 1
                else:
                    late.setdefault(at.date(), []).append(row)
        return cls(live, late, wrong)


def row_of(line: str) -> Row | None:
    """Return the row that an event's line holds; None if it is no event."""
    try:
        fields = json.loads(line)
        made = {
            **fields,
            "amount": Decimal(fields["amount"]),
            "ordered_at": datetime.fromisoformat(fields["ordered_at"]),
            "updated_at": datetime.fromisoformat(fields["updated_at"]),
        }
        return tuple(made[name] for name in COLUMNS.names)
    except (ValueError, KeyError, TypeError):
        return None


def wrong_rows(soak: Soak, landed: Landed) -> int:
    """Count the rows of the table that are lacking, or too many, or other than what was exported and landed."""
    table = deltalake.DeltaTable(str(soak.table)).to_pyarrow_table()
    by_day: dict[date, pa.Table] = {}
    table = table.sort_by([("dt", "ascending"), ("order_id", "ascending")])
    offset = 0
    for day, count in sorted((each["values"], each["counts"]) for each in table["dt"].value_counts().to_pylist()):
        by_day[day] = table.slice(offset, count).select(COLUMNS.names)
        offset += count
    wrong = 0
    for number in range(soak.days):
        day = FIRST_DAY + timedelta(days=number)
        exported = pq.read_table(file_of(soak.export, day), partitioning=None).select(COLUMNS.names).sort_by("order_id")
        found = by_day.pop(day, None)
        if found is not None and day not in landed.late and found.cast(exported.schema).equals(exported):
            continue
        wrong += differing([] if found is None else rows_of(found), [*rows_of(exported), *landed.late.get(day, [])])
    there = Counter(row for rows in by_day.values() for row in rows_of(rows))  # what is left is live
    return wrong + (there - landed.live).total() + (landed.live - there).total()


def differing(found: Iterable[Row], known: Iterable[Row]) -> int:
    """Count what is not the newest row of each order. Of several changed at the same moment any may win."""
    order_id, updated_at = COLUMNS.names.index("order_id"), COLUMNS.names.index("updated_at")
    newest: dict[int, set[Row]] = {}
    for row in known:
        rows = newest.setdefault(row[order_id], {row})
        latest = next(iter(rows))[updated_at]
        if row[updated_at] > latest:
            newest[row[order_id]] = {row}
        elif row[updated_at] == latest:
            rows.add(row)
    wrong = 0
    for row in found:
        wrong += row not in newest.pop(row[order_id], ())
    return wrong + len(newest)


def rows_of(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
