"""What a spec may expect of a partition, and what it is refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tests.support.fakes import spec_with


@pytest.mark.parametrize(
    ("expected", "says"),
    [
        ({"measure": "amount", "within": 1}, "a measure is a function of a column: `count(*)`, `sum(amount)`"),
        ({"measure": "summ(amount)", "within": 1}, "there is no function `summ`; did you mean `sum`?"),
        ({"measure": "sum(amuont)", "within": 1}, "expect: there is no column `amuont`; did you mean `amount`?"),
        ({"measure": "sum(amount)", "by": "cupon", "within": 1}, "there is no column `cupon`; did you mean `coupon`?"),
        ({"measure": "sum(coupon)", "within": 1}, "`sum(coupon)` needs a column of numbers, and `coupon` is `string`"),
        (
            {"measure": "sum(amount)", "by": "created_at", "within": 1},
            "needs a column of few values, and `created_at` is `timestamp`",
        ),
        ({"measure": "sum(amount)"}, "says nothing of what it must be: give `within`, `at_least` or `at_most`"),
        ({"measure": "sum(amount)", "at_most": 1, "at_least": 2}, "`at_least` is more than `at_most`"),
    ],
)
def test_what_is_refused(expected, says):
    """Each mistake is named, and what would be right."""
    with pytest.raises(ValidationError) as caught:
        spec_with(expect=[expected])
    assert says in str(caught.value)


def test_the_same_is_expected_once():
    """Two expectations of one measure and one comparison would contradict each other; of two comparisons they do not."""
    one = {"measure": "sum(amount)", "within": 0.1}
    assert len(spec_with(expect=[one, {**one, "of": "previous"}]).expect) == 2
    with pytest.raises(ValidationError, match=r"`sum\(amount\)` is there twice"):
        spec_with(expect=[one, {**one, "within": 0.2}])


def test_a_week_before_is_of_hours_and_days():
    """Weeks and months have no partition a week before."""
    weekly = {"grain": "weekly", "expect": [{"measure": "count(*)", "within": 0.1, "of": "week_before"}]}
    with pytest.raises(ValidationError, match="of a weekly table say `of: previous`, not `of: week_before`"):
        spec_with(**weekly)
