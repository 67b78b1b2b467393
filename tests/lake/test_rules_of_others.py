"""A table may have rules that somebody else gave it: a launch that breaks one writes nothing, and says which."""

from __future__ import annotations

from decimal import Decimal

import pytest

from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.errors import TableRuleError
from tests.support.shop import content, frame_of, orders, orders_spec, receipt_for

SPEC, DAY = orders_spec(), "2024-01-01"


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ("ADD CONSTRAINT positive CHECK (amount > 0)", "breaks the constraint `positive`"),
        pytest.param("SET TBLPROPERTIES ('delta.appendOnly' = 'true')", "rows are only added", marks=pytest.mark.prove),
    ],
)
def test_a_rule_of_the_tables_own_is_named_and_no_value(table, rule, named):
    """Delta tells the row's values too, which reach Dagster's history only where the spec says so."""
    rows = frame_of(table.spark, SPEC, orders(DAY, 1))
    partitions = SPEC.grid.between(DAY, DAY)
    table.overwrite(StagedChunk(rows, {}, {}, None, lambda: None), partitions, receipt_for(table, partitions))
    table.spark.sql(f"ALTER TABLE delta.`{table.path}` {rule}")
    before = content(table.path)
    rows = frame_of(table.spark, SPEC, orders(DAY, 1, amount=Decimal("-765.43")))
    staged = StagedChunk(rows, {}, {}, None, lambda: None)
    with pytest.raises(TableRuleError, match=named) as refused:
        table.overwrite(staged, partitions, receipt_for(table, partitions))
    assert "765" not in str(refused.value)
    assert refused.value.__suppress_context__
    assert content(table.path) == before
