"""What is in a followed table is told, also where the rest of a refresh fails."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.assets.factory import tables_of
from backfill_assets.commands.follow_changes import follow_changes
from backfill_assets.errors import StorageError
from backfill_assets.lake.table import LakeTable
from backfill_assets.live.changes.refresh import Refreshed
from backfill_assets.runs.resources import Lakehouse
from tests.live.changes.world import DAYS, new_world
from tests.support.launching import key_of
from tests.support.shop import opened, published_keys


@pytest.mark.prove
def test_what_is_folded_in_is_told_while_the_database_is_away(spark, tmp_path, monkeypatch):
    """Changes need no database; that the past still waits for it keeps from Dagster nothing of what is in the table."""
    world = new_world(spark, tmp_path, changes={"backfill": "automatic", "refresh_seconds": 0.1})
    world.land()
    assert published_keys(world.launch(world.partitions[:1])) == list(DAYS[:1])
    world.execute("UPDATE customers SET balance = 77 WHERE id = 1")
    world.land()
    monkeypatch.setenv(world.spec.source.connection, "postgresql://nobody@127.0.0.1:1/shop")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setattr(Lakehouse, "changed_source", lambda *_: world.source)
    lakehouse, stop, said = Lakehouse(root=str(tmp_path)), threading.Event(), list[str]()
    lakehouse._spark = spark

    def say(text: str) -> None:
        said.append(text)
        if text.startswith("Tried again: "):
            stop.set()

    definitions = lakehouse_definitions(build_lakehouse_table(world.spec))
    chosen: Any = SimpleNamespace(spec=world.spec, lakehouse=lakehouse, table=tables_of(definitions)[0][world.spec.key])
    assert follow_changes(chosen, world.spec.changes, once=False, is_new_feed=False, stop=stop, say=say) == 1
    assert "did not answer" in said[-1]
    assert 77 in {row["balance"] for row in opened(world.lake.path).to_pyarrow_table().to_pylist()}
    with dg.DagsterInstance.get() as instance:
        assert instance.get_materialized_partitions(key_of(world.spec.key)) == set(DAYS[:1])


@pytest.mark.prove
def test_what_a_load_has_published_before_it_fails_is_known(spark, tmp_path):
    """A chunk that is in the table is told of, whatever becomes of the next one."""
    world = new_world(spark, tmp_path, changes={"backfill": "automatic"}, chunk={"max_partitions": 1})
    world.land()

    class Failing(LakeTable):
        def overwrite(self, *args: Any, **how: Any) -> Any:
            if self.published():
                raise StorageError("It is full.", state="Nothing was written.", remedy="Make room.")
            return super().overwrite(*args, **how)

    refresh = replace(world, lake=Failing(spark, world.spec, world.lake.path, world.log.append)).refresh()
    refresh.now = refresh.source.now = lambda: world.spec.grid.partition(DAYS[-1]).window.end_utc
    done = Refreshed()
    with world.capturing(), pytest.raises(StorageError):
        refresh.once(done)
    assert published_keys(done.outcomes) == [DAYS[0]]
