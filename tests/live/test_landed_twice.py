"""What lies in the landing folder twice is written once, or told: links that lead back into it, and copies."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from backfill_assets.errors import SourceRepeatedError
from backfill_assets.live.fence_queries import inspect
from backfill_assets.sources.files.landed_twice import landed_twice
from tests.support.live_shop import Shop, event, live_spec


def another_day(day: Path) -> None:
    (day.parent / "current").symlink_to(day)


def another_name(day: Path) -> None:
    (day / "latest.json").symlink_to(day / "a.json")


def a_packed_twin(day: Path) -> None:
    (day / "a.json.gz").write_bytes(gzip.compress((day / "a.json").read_bytes()))


def landed(shop: Shop) -> Path:
    day = shop.landing / "2024-01-05"
    day.mkdir()
    shop.land(event(1, "2024-01-05T10:00:00")).rename(day / "a.json")
    return day


@pytest.mark.parametrize("twice", [another_day, a_packed_twin])
def test_what_lies_there_twice_is_refused(shop: Shop, twice: Callable[[Path], None]):
    """Its events would be written twice, and without a key nobody would see it; nothing is started."""
    twice(landed(shop))
    with pytest.raises(SourceRepeatedError, match="are one, by a link, or one is a copy"):
        shop.stream()
    assert not shop.table.table.exists()


@pytest.mark.prove
def test_what_is_read_once_is_written(shop: Shop):
    """Links to what lies elsewhere or is hidden, a file without bytes beside its twin, a link that leads nowhere."""
    day = landed(shop)
    for number, folder in enumerate((shop.root / "elsewhere", shop.landing / ".staging"), start=2):
        folder.mkdir()
        shop.land(event(number, "2024-01-05T10:00:00")).rename(folder / f"{number}.json")
        (shop.landing / f"{number}.json").symlink_to(folder / f"{number}.json")
    (day / "a.json~").write_text("\n")  # as somebody puts it there whose file of this name is gone
    (day / "b.json.gz").write_bytes(gzip.compress(b""))
    (day / "b.part").write_text("{}\n{}\n")  # two names with one beginning are no copies
    (day / ".a.json.bak").write_bytes((day / "a.json").read_bytes())
    assert list(landed_twice(str(shop.landing))) == []
    (day / "nowhere").symlink_to(day / "gone.json")
    assert list(landed_twice(str(shop.landing))) == []
    (day / "nowhere").unlink()
    (day / "b.part").unlink()
    shop.stream()
    assert shop.ids() == [1, 2, 3]
    assert list(landed_twice("s3a://bucket/events")) == []


@pytest.mark.prove
def test_what_comes_to_lie_there_twice_is_told(spark, tmp_path: Path):
    """A link that is made while the stream is followed, in a table without a key: its events are there twice by now."""
    shop = Shop(
        spark,
        tmp_path,
        spec=live_spec(
            key_columns=[], latest_wins_by=[], live={"path": "events", "starts": "2024-01-04", "late": "keep"}
        ),
    )
    day = landed(shop)
    shop.stream()

    def seen():
        at = {"checkpoint": str(shop.root / "checkpoints"), "now": shop.now}
        checks = inspect(shop.table, shop.spec.live, str(shop.landing), **at)
        return next(check for check in checks if check.name == "landed_files_are_as_read")

    assert seen().passed
    another_name(day)
    assert not seen().passed
    assert f"`{day}/latest.json` is `{day}/a.json` too" in seen().what
    (day / "latest.json").unlink()
    assert seen().passed
