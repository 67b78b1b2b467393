"""Rows of a version of a table as those of the next: what `version_of` says, as columns of Spark."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.spec.versions import FromBefore, columns_from
from backfill_assets.errors import NOTHING_WRITTEN, SchemaMismatchError
from backfill_assets.spark.expressions import column
from backfill_assets.spark.failures import first_words

PROBLEM = "_ba_problem"


def rows_as(new: TableSpec, old: TableSpec, rows: DataFrame) -> DataFrame:
    """Return rows of an earlier version in the columns of a new one, with `_ba_problem`.

    A value that another type cannot hold exactly is NULL, and `_ba_problem` says so: `1.239` as `decimal(18,2)` would
    be another amount without a word. What an expression makes is converted as Spark does, and may be rounded.

    Raises:
        SchemaMismatchError: An expression cannot be read, or names a column that there is not.
    """
    assert new.version_of is not None, "a spec that rests on an earlier version says on which"  # noqa: S101 (the spec was checked)
    origin = columns_from(new, new.version_of)
    values: list[Column] = []
    problems: list[Column] = []
    for name, kind in new.columns.items():
        source = origin.get(name)
        if source is None:
            values.append(F.lit(None).cast(kind.type).alias(name))
            continue
        value, is_lost = _converted(source, kind.type, old)
        values.append(value.alias(name))
        if is_lost is not None:
            problems.append(F.when(is_lost, F.lit(f"`{name}` would be another value as `{kind.type}`")))
    problem = F.nullif(F.concat_ws("; ", *problems), F.lit("")) if problems else F.lit(None).cast("string")
    try:
        chosen = rows.select(*values, problem.alias(PROBLEM))
        chosen.schema  # noqa: B018 (only now a Connect server looks)
    except AnalysisException as error:
        raise SchemaMismatchError(
            f"`{new.key}`: what `version_of` says of its columns cannot be done: {first_words(error)}",
            state=NOTHING_WRITTEN,
            remedy="Correct the expression in `computed`; it may use the columns of the version before, by their names "
            "there.",
        ) from error
    return chosen


def _converted(source: FromBefore, kind: str, old: TableSpec) -> tuple[Column, Column | None]:
    """Return a column's value, and whether it is lost on the way; None where it cannot be."""
    if source.how == "same":
        return column(source.text), None
    if source.how == "computed":
        made = F.expr(source.text)
        return made.try_cast(kind), made.isNotNull() & made.try_cast(kind).isNull()
    before = column(source.text)
    value = before.try_cast(kind)
    comes_back = F.coalesce(value.try_cast(old.columns[source.text].type) == before, F.lit(False))
    is_lost = before.isNotNull() & ~comes_back
    return F.when(~is_lost, value), is_lost
