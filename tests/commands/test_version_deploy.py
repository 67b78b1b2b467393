"""`version deploy --rehearse`: the folder that it removes at the end is its own."""

from __future__ import annotations

from backfill_assets.commands.version.deploy import REASON
from backfill_assets.core.history.reasons import ReasonKind, kind_of
from tests.commands.places import new_place
from tests.commands.versions import V2, run


def test_a_folder_that_is_there_is_left_as_it_is(tmp_path):
    """It is somebody else's, with all that is in it; so is that of a rehearsal which is under way."""
    place, kept = new_place(tmp_path / "place"), tmp_path / "lakehouse/tables/orders/part-0.parquet"
    kept.parent.mkdir(parents=True)
    kept.write_text("the only copy")
    said = run(place, "deploy", V2, "--rehearse", str(tmp_path / "lakehouse"), code=2)
    assert "is there already" in said
    assert kept.read_text() == "the only copy"


def test_a_copy_says_why_as_a_table_may_require():
    """Without a word from whoever types it."""
    assert kind_of(REASON) is ReasonKind.HISTORY_MISSING
