"""A table that is removed and made again beside a launch: its versions begin anew, and are no older ones."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from backfill_assets.lake.table import LakeTable
from tests.lake.test_conflicts import DAY, NEXT, named, source_of, staged_of
from tests.support.shop import (
    content,
    folder_of,
    launch,
    multiset,
    orders,
    published_keys,
    receipt_for,
    write_parquet,
)


@pytest.mark.prove
def test_a_table_that_was_made_again_meanwhile_is_no_older_one(table, tmp_path, monkeypatch):
    """It is removed, made anew and published from a corrected source while a chunk is staged: the chunk is read again."""
    write_parquet(folder_of(tmp_path / "in", DAY), orders(DAY, customer="old"))
    table.overwrite(staged_of(table, orders(NEXT)), named(NEXT), receipt_for(table, named(NEXT), "before"))
    table.overwrite(staged_of(table, orders(NEXT)), named(NEXT), receipt_for(table, named(NEXT), "once more"))
    stage, turns = LakeTable.stage, []

    def stage_then_make_it_again(self: LakeTable, *scan: Any, **known: Any) -> Any:
        staged = stage(self, *scan, **known)
        if not turns:
            turns.append("B")
            write_parquet(folder_of(tmp_path / "in", DAY), orders(DAY, customer="fixed"))
            shutil.rmtree(table.path)
            shutil.rmtree(f"{table.path}_history", ignore_errors=True)
            launch(table, source_of(table, tmp_path / "in"), named(DAY), run_id="B")
        return staged

    monkeypatch.setattr(LakeTable, "stage", stage_then_make_it_again)
    monkeypatch.setattr("backfill_assets.core.history.publish.refuse_changed_source", lambda *_: None)
    said: list[str] = []
    outcomes = launch(table, source_of(table, tmp_path / "in"), named(DAY), run_id="A", log=said.append)

    assert published_keys(outcomes) == [DAY]
    assert content(table.path) == multiset(orders(DAY, customer="fixed"))
    assert "it was removed and made again meanwhile" in said[0]
