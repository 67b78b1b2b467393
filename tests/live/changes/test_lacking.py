"""Since when a table lacks what its feed has brought."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from backfill_assets.errors import BackfillAssetsError
from backfill_assets.live.changes.refresh import Refresh, Refreshed
from tests.live.changes.world import COLUMNS, DAYS, new_world


@pytest.mark.prove
def test_what_began_after_the_feed_and_cannot_be_read_is_lacking(spark, tmp_path):
    """A new day is launched by itself. Until it is, the table is behind by its first change; refused, by its beginning."""
    world = new_world(
        spark, tmp_path, changes={"backfill": "automatic"}, columns={**COLUMNS, "note": "string not null"}
    )
    day = world.spec.grid.partition(DAYS[2]).window
    world.land()
    world.begin_feed(day.start_utc - timedelta(hours=6))
    refresh = world.refresh()
    refresh.now = refresh.source.now = lambda: day.end_utc - timedelta(hours=1)
    assert lacking_although_away(refresh) is None, "nobody knows of any change of that day"
    began = datetime.now(UTC)
    world.execute(f"INSERT INTO customers VALUES (900, 'new', 1, NULL, TRUE, '{DAYS[2]} 05:00Z')")
    world.land()
    since = lacking_although_away(refresh)
    assert since is not None, "its row is in no partition"
    assert began - timedelta(seconds=5) <= since <= datetime.now(UTC)
    with world.capturing():
        refresh._launched_at_once = 1
        done = refresh.once()
    assert [one.verdict.partition.key for one in done.refused] == [DAYS[2]], "today before the past"
    assert done.lacking_since == day.start_utc
    world.execute(f"UPDATE customers SET note = 'x' WHERE signed_up >= '{DAYS[2]}Z'")
    with world.capturing():
        while refresh.once().launched:
            pass
        done = refresh.once()
    assert done.lacking_since is None


def lacking_although_away(refresh: Refresh) -> datetime | None:
    """Refresh while nobody says where the database is; return since when the table lacks changes."""
    done = Refreshed()
    with pytest.MonkeyPatch.context() as unset:
        unset.delenv(refresh.spec.source.variables[0])
        with pytest.raises(BackfillAssetsError):
            refresh.once(done)
    return done.lacking_since
