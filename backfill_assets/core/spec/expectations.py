"""What measures of a partition must be before it is published: `expect:` of a spec."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from backfill_assets.core.calendar.windows import Grain
from backfill_assets.core.spec.columns import Column
from backfill_assets.core.spec.fields import Strict, in_words, unknown

_MEASURE = re.compile(r"(\w+)\((.+)\)")
_ADDABLE = re.compile(r"(tiny|small|big)?int|float|double|decimal\(.*")


class Function(StrEnum):
    """What a measure says of the rows of a partition."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    NULL_SHARE = "null_share"


class Expectation(Strict):
    """One measure of a partition, and what it must be."""

    measure: str = Field(
        description="`count(*)`, `sum(amount)`, `avg(amount)`, `min(amount)` or `max(amount)` of a column of numbers; "
        "or `null_share(coupon)`, the part of the rows, from 0 to 1, that have no value."
    )
    by: str | None = Field(
        default=None,
        description="A column of few values: the measure is taken of the rows of each. Of a value that is on one side "
        "only it counts as 0 on the other.",
    )
    within: Decimal | None = Field(
        default=None,
        ge=0,
        description="By which part it may differ from what `of` names: 0.1 is 10 % more or less. Where that has no "
        "rows there is nothing to compare with.",
    )
    of: Literal["published", "previous", "week_before"] = Field(
        default="published",
        description="With what `within` compares: what the table has of this very partition; of the partition before "
        "it; or of the one a week before, of tables by hour or by day. The last two as they were when the launch "
        "began.",
    )
    at_least: Decimal | None = Field(default=None, description="The smallest that it may be.")
    at_most: Decimal | None = Field(default=None, description="The largest that it may be.")

    @property
    def function(self) -> Function:
        """What is said of the rows."""
        return Function(self._parts[0])

    @property
    def column(self) -> str | None:
        """The column that is measured; None of `count(*)`."""
        return None if self.function is Function.COUNT else self._parts[1]

    @property
    def name(self) -> str:
        """What people know it by: `sum(amount) by currency`."""
        return f"{self.measure} by {self.by}" if self.by else self.measure

    @property
    def _parts(self) -> tuple[str, str]:
        found = _MEASURE.fullmatch(self.measure)
        return (found[1], found[2]) if found else ("", "")

    @field_validator("measure")
    @classmethod
    def _measure_form(cls, value: str) -> str:
        value = "".join(value.split())
        found = _MEASURE.fullmatch(value)
        if found is None or (found[1] == Function.COUNT) != (found[2] == "*"):
            raise ValueError(f"`{value}`: a measure is a function of a column: `count(*)`, `sum(amount)`")
        known = [function.value for function in Function]
        if found[1] not in known:
            raise ValueError(unknown(found[1], known, "function"))
        return value

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.within is None and self.at_least is None and self.at_most is None:
            raise ValueError(f"`{self.name}` says nothing of what it must be: give `within`, `at_least` or `at_most`")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError(f"`{self.name}`: `at_least` is more than `at_most`; nothing can be so")
        return self


def expectation_problems(
    expectations: Sequence[Expectation], columns: Mapping[str, Column], grain: Grain
) -> Iterator[str]:
    """Yield what does not fit a table's columns and its grain."""
    for expected in expectations:
        for name in filter(None, (expected.column, expected.by)):
            if name not in columns:
                yield f"expect: {unknown(name, list(columns), 'column')}"
                return
        column = columns[expected.column] if expected.column else None
        if column and expected.function is not Function.NULL_SHARE and not _ADDABLE.fullmatch(column.type):
            yield f"expect: `{expected.measure}` needs a column of numbers, and `{expected.column}` is `{column.type}`"
        if expected.by and columns[expected.by].type in ("float", "double", "binary", "timestamp"):
            yield (
                f"expect: `{expected.name}` needs a column of few values, and `{expected.by}` is "
                f"`{columns[expected.by].type}`"
            )
        if expected.of == "week_before" and grain not in (Grain.HOURLY, Grain.DAILY):
            yield f"expect: `{expected.name}`: of a {grain} table say `of: previous`, not `of: week_before`"
    told = [(expected.name, expected.of) for expected in expectations]
    if twice := [name for name, of in told if told.count((name, of)) > 1]:
        yield f"expect: {in_words(sorted(set(twice)))} is there twice"
