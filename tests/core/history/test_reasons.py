"""Reasons: a table may require one, of a known kind; what each kind suggests is on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from backfill_assets.core.history.reasons import SCOPES, ReasonKind, kind_of
from backfill_assets.errors import ReasonMissingError
from tests.core.history.world import World
from tests.support.fakes import spec_with

PAGE = Path(__file__).parents[3] / "docs/planning.md"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("logic changed", ReasonKind.LOGIC_CHANGED),
        ("Logic changed : revenue without tax", ReasonKind.LOGIC_CHANGED),
        ("outage: from 3 to 5", ReasonKind.OUTAGE),
        ("the logic changed", None),
        ("logic changes", None),
        (": outage", None),
        ("", None),
    ],
)
def test_a_reason_begins_with_its_kind(reason, kind):
    """Whatever stands after a colon is the launcher's own."""
    assert kind_of(reason) is kind


def test_a_launch_without_the_reason_that_is_required_writes_nothing():
    """It says which kinds there are; with one it runs, and the receipt has it. Where none is required, none is asked for."""
    world = World(spec_with(reason="required"))
    for wrong in ("", "because"):
        with pytest.raises(ReasonMissingError) as caught:
            world.run(reason=wrong)
        assert all(kind in caught.value.remedy for kind in ReasonKind)
        assert world.lake.version() == 0
    world.run(reason="new data: first load")
    assert {receipt.run.reason for receipt in world.lake.receipts().values()} == {"new data: first load"}
    World().run()


def test_every_kind_has_its_scope_on_the_page():
    """The page has a row for each kind, in the words of the code."""
    assert SCOPES.keys() == set(ReasonKind)
    page = PAGE.read_text()
    for kind, scope in SCOPES.items():
        assert f"| `{kind}` | {scope} |" in page
