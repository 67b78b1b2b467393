"""A plan in words: what is said of partitions side by side is said of no other one."""

from __future__ import annotations

from backfill_assets.commands.plan_report import lines_of, refused_in_words
from backfill_assets.core.history.forecast import Action, PartitionForecast
from backfill_assets.core.history.plan_document import PlanDocument
from tests.support.shop import orders_spec

GRID = orders_spec().grid
WHY = "its source has no rows, and the table has 100"


def plan_of(*days: int, action: Action = Action.REFUSED) -> PlanDocument:
    found = [PartitionForecast(GRID.partition(f"2024-01-{day:02d}"), action, WHY) for day in days]
    return PlanDocument("bronze/orders", tuple(found), {}, {})


def test_what_is_refused_side_by_side_is_one_sentence_and_names_no_day_between():
    """Days between that the plan does not speak of are launched, or need nothing."""
    assert refused_in_words(plan_of(3, 4, 9)) == [
        f"2024-01-03...2024-01-04 is not launched; when this was planned it would have been refused: {WHY}.",
        f"2024-01-09 is not launched; when this was planned it would have been refused: {WHY}.",
    ]


def test_more_than_anybody_reads_are_counted():
    """By partition, not by sentence."""
    *said, more = refused_in_words(plan_of(*range(1, 22, 2), 23, 24, 25))
    assert len(said) == 10
    assert more == "So would 4 more have been; `--json` of `plan` has each."


def test_a_line_of_the_table_is_of_days_side_by_side():
    """Whatever is done with them."""
    lines = [line.fields()[:2] for line in lines_of(plan_of(1, 2, 5, action=Action.CREATE))]
    assert lines == [("2024-01-01...2024-01-02", "2"), ("2024-01-05", "1")]
