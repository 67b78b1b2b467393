"""Guards that a launch's config asks for."""

from __future__ import annotations

import pytest

from backfill_assets.core.history.audit import AuditRule
from backfill_assets.core.history.guards import ALL_KEYS, KeyRange, guards_in, key_range
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import WindowError
from tests.core.spec import specs
from tests.support.docstring_tables import table_of


def spec_of(kind: str, *more: str) -> TableSpec:
    columns = {"id": f"{kind} not null", "at": "timestamp not null", **dict.fromkeys(more, "int not null")}
    return specs.spec(columns=columns, key_columns=["id", *more], event_time="at")


@pytest.mark.parametrize("case", table_of(key_range), ids=lambda case: f"{case['key']} {case['text']}")
def test_ranges_of_keys(case):
    """Each line of the table in the docstring."""
    spec = spec_of(case["key"])
    if case["first"] == "no":
        with pytest.raises(WindowError, match="is no range of `id`"):
            key_range(spec, case["text"])
    else:
        assert key_range(spec, case["text"]) == KeyRange("id", case["first"], case["last"])


def test_keys_without_an_order_are_refused():
    """Of several columns, or of a type that the lakehouse and a database may order differently."""
    for spec in (spec_of("int", "line"), spec_of("decimal(9,2)")):
        with pytest.raises(WindowError, match="no key whose rows can be named by a range"):
            key_range(spec, "1...2")


def test_a_launch_has_the_guards_that_its_config_asks_for():
    """None unless it does."""
    spec = spec_of("int")
    assert guards_in(spec, {}) == guards_in(spec, {"keep_keys": False, "only_keys": ""}) == ()
    keeps, only = guards_in(spec, {"keep_keys": True, "only_keys": "1...2"})
    assert keeps == ALL_KEYS
    assert (only.rule, only.keys) == (AuditRule.OTHER_KEYS_ARE_UNCHANGED, KeyRange("id", "1", "2"))
