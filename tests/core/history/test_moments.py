"""A source that the table follows: both sides are of one moment, and chunk by chunk of a version that is pinned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.comparison import Comparison
from backfill_assets.core.history.moments import Moment, RowSums
from backfill_assets.core.history.ports import Difference
from backfill_assets.core.history.publish import materialize
from backfill_assets.core.history.reconcile import reconcile
from tests.support.fake_lake import FakeLake
from tests.support.fakes import ORDERS, FakeSource, files_of, launch_with, spec_with

DAYS = ORDERS.grid.between("2024-02-27", "2024-03-01")


class Followed(FakeSource):
    """A source whose moments the test says.

    Args:
        sides: What both have, by partition key, where it is not the same three rows.
    """

    def __init__(self) -> None:
        super().__init__(ORDERS, files_of(ORDERS, "2024-02-27", "2024-03-01"))
        self.sides: dict[str, tuple[RowSums, RowSums]] = {}
        self.problems: dict[str, list[str]] = {}
        self.asked: list[tuple[int, int]] = []
        self.open = 0

    def moment(self, partitions: Sequence[Partition], *, version: int) -> Moment[list[Mapping[str, object]]]:
        self.asked.append((len(partitions), version))
        same = RowSums(3, 30, 300)
        sides = {p.key: self.sides.get(p.key, (same, same)) for p in partitions}
        self.open += 1

        def differences(some: Sequence[Partition]) -> Mapping[str, Difference]:
            assert self.open == 1
            return {p.key: Difference(1, 1, ("this one",)) for p in some}

        return Moment(
            "noon",
            {key: side[0] for key, side in sides.items()},
            {key: side[1] for key, side in sides.items() if side[1].rows},
            lambda _: ([], []),
            differences,
            self.problems,
            self.close,
        )

    def close(self) -> None:
        self.open -= 1


@pytest.fixture
def source() -> Followed:
    return Followed()


def compared(source: Followed, **spec: object) -> list[Comparison]:
    lake = FakeLake(ORDERS)
    list(materialize(ORDERS, DAYS, source, lake, launch_with()))
    found = list(reconcile(spec_with(**spec), DAYS, source, lake))
    assert source.open == 0, "a moment was not let go"
    assert [c.partition for c in found] == DAYS
    return found


def test_what_both_had_at_the_moment_counts(source):
    """Equal sums are reconciled, whatever the table has besides by now; others are explained, by rows."""
    source.sides = {
        "2024-02-28": (RowSums(3, 30, 301), RowSums(3, 30, 300)),
        "2024-02-29": (RowSums(2, 1, 1), RowSums()),
    }
    found = compared(source)
    assert [c.passed for c in found] == [True, False, False, True]
    assert {c.as_of for c in found} == {"noon"}
    assert [(c.source_rows, c.table_rows) for c in found] == [(3, 3), (3, 3), (2, 0), (3, 3)]
    assert str(found[1]) == (
        "2024-02-28: rows_match_source: both have 3 rows, but not the same: checksum `1:1e:12c`, source `1:1e:12d`; "
        "1 rows only in the source, 1 only in the table. For example: this one."
    )
    assert "the table has 0 rows, 2 fewer than its source (2); " in str(found[2])


def test_a_source_with_rows_that_cannot_be_read_says_so(source):
    """Equal sums do not help, and nobody looks for rows that differ."""
    source.problems = {"2024-02-29": ["1 row cannot be read."]}
    assert str(compared(source)[2]) == "2024-02-29: rows_match_source: 1 row cannot be read."


def test_each_chunk_has_a_moment_of_its_own(source):
    """All are of the version from the beginning."""
    compared(source, chunk={"max_partitions": 2})
    assert source.asked == [(2, source.asked[0][1])] * 2
