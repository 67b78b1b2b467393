"""Whatever landed is written: whatever it is called, whatever time it has, and although an earlier table had it."""

from __future__ import annotations

import os
import shutil

import pytest

from backfill_assets.errors import LiveError, StreamMismatchError, UnreadableSourceError
from backfill_assets.live.fence_queries import inspect
from tests.support.live_shop import Shop, event, live_spec


def land_as(shop: Shop, name: str, number: int) -> None:
    path = shop.landing / name
    path.parent.mkdir(exist_ok=True)
    shop.land(event(number, "2024-01-05T10:00:00")).rename(path)


def test_folders_are_only_folders(shop):
    """Some are called as those of a table of Hive are, beside others and beside files."""
    for number, name in enumerate(["dt=2024-01-05/a.json", "a.json", "bücher/a b.json"]):
        land_as(shop, name, number)
    shop.stream()
    assert shop.ids() == [0, 1, 2]


@pytest.mark.prove
def test_a_file_of_another_century_keeps_no_other_back(shop):
    """A wrong clock has given a file a time of the year 2200: the events that land after it are written all the same."""
    os.utime(shop.land(event(1, "2024-01-05T10:00:00")), (7_258_118_400, 7_258_118_400))
    shop.stream()
    shop.land(event(2, "2024-01-05T11:00:00"))
    shop.stream()
    assert shop.ids() == [1, 2]


@pytest.mark.prove
def test_a_name_that_spark_cannot_open_is_told(shop):
    """Hadoop takes what is before a colon for something else: the stream ends, and says at which file; so does the check."""
    land_as(shop, "2024-01-05T10:00.json", 1)
    land_as(shop, "b.json", 2)
    with pytest.raises(UnreadableSourceError, match=r"2024-01-05T10:00\.json` cannot be read"):
        shop.stream()
    shop.now = shop.now.replace(day=20)
    with pytest.raises(UnreadableSourceError, match=r"2024-01-05T10:00\.json"):
        inspect(shop.table, shop.spec.live, str(shop.landing), checkpoint=str(shop.root / "c"), now=shop.now)
    (shop.landing / "2024-01-05T10:00.json").rename(shop.landing / "2024-01-05T10.json")


def test_a_file_that_goes_between_two_batches_is_told(spark, tmp_path):
    """It was listed with those of the batch before; the next batch would be written without it, and never looked at again."""
    live = {"path": "events", "starts": "2024-01-04", "max_files_per_trigger": 1}
    shop = Shop(spark, tmp_path, live_spec(live=live))
    os.utime(shop.land(event(1, "2024-01-05T10:00:00")), (0, 1_000_000_000))  # the older one comes first
    second = shop.land(event(2, "2024-01-05T11:00:00"))
    away = shop.root / "away"
    with pytest.raises(LiveError, match=r"1 files of batch 1 landed, and are gone, first `file:.*0001\.json`"):
        shop.stream(report=lambda _: second.rename(away))
    assert shop.ids() == [1]
    away.rename(second)
    shop.stream()
    assert shop.ids() == [1, 2]


@pytest.mark.prove
def test_a_table_that_was_made_again_gets_every_event(shop):
    """Whoever deletes the table and keeps the checkpoint: what the stream wrote into the table before is in the new one too."""
    shop.land(event(1, "2024-01-05T10:00:00"))
    shop.stream()
    shutil.rmtree(shop.path)
    shop.land(event(2, "2024-01-05T11:00:00"))
    shop.stream()
    assert shop.ids() == [1, 2]
    assert any("was made again since stream" in said for said in shop.said)
    shop.land(event(3, "2024-01-05T12:00:00"))
    shop.stream()
    assert shop.ids() == [1, 2, 3]


@pytest.mark.prove
def test_a_checkpoint_that_lost_its_notes_is_told(shop):
    """Without them the stream would begin with the first file again, and call the files of its batches changed: it says what is gone."""
    shop.land(event(1, "2024-01-05T10:00:00"))
    shop.stream()
    notes = shop.root / "checkpoints" / shop.table.fence().stream
    notes.rename(shop.root / "away")
    shop.land(event(2, "2024-01-05T11:00:00"))
    with pytest.raises(StreamMismatchError, match=f"what that had noted in `{notes}` is gone"):
        shop.stream()
    assert shop.ids() == [1]
    (shop.root / "away").rename(notes)
    shop.stream()
    assert shop.ids() == [1, 2]


@pytest.mark.prove
def test_a_checkpoint_that_comes_back_from_a_backup_hides_no_file(shop):
    """It gives the number of a batch that is in the log to a file that landed since; that one is not taken for written."""
    for number in (1, 2):
        if number == 2:
            shutil.copytree(shop.root / "checkpoints", shop.root / "backup")
        land_as(shop, f"{number}.json", number)
        shop.stream()
        (shop.landing / f"{number}.json").unlink()
    shutil.rmtree(shop.root / "checkpoints")
    (shop.root / "backup").rename(shop.root / "checkpoints")
    land_as(shop, "3.json", 3)
    with pytest.raises(Exception, match="with other lines than it has now"):
        shop.stream()
    assert shop.ids() == [1, 2]
