"""Whatever landed is written: whatever it is called, whatever time it has, and although an earlier table had it."""

from __future__ import annotations

from tests.support.live_shop import Shop, event


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
