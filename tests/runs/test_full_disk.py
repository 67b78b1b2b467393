"""The disk of a lakehouse fills up in the middle of a save, or may not be written to: no partition is in between."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.disks import leave_free, small_disk
from tests.support.launching import Lake, new_lake
from tests.support.shop import multiset, orders

pytestmark = [
    pytest.mark.spark,
    pytest.mark.prove,
    pytest.mark.usefixtures("spark"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a disk of its own"),
]

DAY_1, DAY_2 = "2024-01-01", "2024-01-02"
MEGABYTES = 8
SMALL = orders(DAY_1)
LARGE = [{**row, "customer": os.urandom(30).hex()} for row in orders(DAY_2, 1_400)]
"""So many bytes that do not become fewer when they are packed: 50 KB of names."""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A lakehouse on a small disk, of which a day is published; its history lies elsewhere."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk, MEGABYTES):
        lake = replace(new_lake(tmp_path / "elsewhere"), root=disk)
        lake.export(DAY_1, SMALL)
        assert lake.launch(DAY_1).succeeded
        lake.export(DAY_2, LARGE)
        yield lake


def mount(*options: str) -> None:
    subprocess.run(["mount", *options], check=True)


@contextmanager
def only(lake: Lake, kilobytes: int) -> Iterator[None]:
    """Let so much of the disk be free."""
    ballast = leave_free(lake.root, kilobytes)
    yield
    ballast.unlink()


def test_a_disk_that_fills_up_leaves_each_partition_old_or_new(lake):
    """However little room there is, a launch ends in words, or publishes; when there is room again the next one does the rest."""
    ended: list[bool] = []
    for kilobytes in (0, 4, 40, 80, 120, 160):
        with only(lake, kilobytes):
            ran = lake.launch(DAY_2, only="MISSING")
            ended.append(ran.succeeded)
            if not ran.succeeded:
                assert "a disk, or another storage, refused what was asked of it" in ran.failure or (
                    "The lock file" in ran.failure and "No space left" in ran.failure
                ), (kilobytes, ran.failure)
            assert lake.content() in (multiset(SMALL), multiset([*SMALL, *LARGE])), kilobytes
    assert not ended[0], "there was no room at all"
    assert lake.launch(DAY_2, only="MISSING").succeeded
    assert lake.content() == multiset([*SMALL, *LARGE])
    assert lake.watch().succeeded


def test_a_disk_that_may_not_be_written_to_is_looked_at(lake):
    """A launch says so, and changes nothing; looking needs no write."""
    mount("-o", "remount,ro", str(lake.root))
    ran = lake.launch(DAY_2)
    assert not ran.succeeded
    assert "Read-only file system" in ran.failure, ran.failure
    assert lake.watch().succeeded
    assert lake.reconcile(DAY_1).succeeded
    assert lake.content() == multiset(SMALL)
    mount("-o", "remount,rw", str(lake.root))
    assert lake.launch(DAY_2).succeeded
    assert lake.content() == multiset([*SMALL, *LARGE])
