"""The database's disk fills up, since nobody takes what its slot keeps: nothing is lost, and everybody is told in words."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from backfill_assets.errors import BackfillAssetsError
from tests.live.changes.world import DAYS, World, new_world
from tests.support import postgres
from tests.support.disks import small_disk
from tests.support.shop import published_keys

pytestmark = [pytest.mark.spark, pytest.mark.prove]

MEGABYTES = 160


@pytest.fixture
def server() -> Iterator[postgres.Server]:
    """A server whose disk holds little; it can be made larger."""
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    with small_disk(folder, MEGABYTES):
        shutil.chown(folder, "nobody", "nogroup")
        server = postgres.Server(folder / "data", postgres.free_port())
        server.run("initdb", "-D", str(server.data), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale", "-N")
        server.configure(port=str(server.port), **postgres.SETTINGS)
        server.start()
        yield server
        if server.is_running:
            server.stop("immediate")
    folder.rmdir()


def fill(world: World) -> None:
    """Write until the disk is full."""
    with pytest.raises(psycopg.Error):
        write_without_end(world)


def write_without_end(world: World) -> None:
    text = "x" * 9_000
    with world.server.connected(world.name) as connection:
        for number in itertools.count():
            connection.execute(
                "UPDATE customers SET note = %s, balance = %s WHERE id <= 200", (f"{number}{text}", number % 1_000)
            )


def failure_of(action: Any) -> str:
    """Say in which words an action has failed; empty if it did not."""
    try:
        action()
    except BackfillAssetsError as error:
        return str(error)
    return ""


def test_a_full_disk_loses_nothing(spark, tmp_path, server):
    """Reads and captures end in words or succeed; once there is room again, the table ends as the database."""
    world = new_world(spark, tmp_path, server=server)
    world.land()
    assert published_keys(world.launch()) == list(DAYS)
    before = world.content()
    fill(world)
    actions = (world.land, lambda: world.launch(rewrite_identical=True), world.refresh().once)
    failures = [said for said in map(failure_of, actions) if said]
    assert failures, "a server without room for the changes that a capture asks for cannot answer it"
    for said in failures:  # what failed, the state, what to do
        assert "the database of `SHOP_" in said
        assert "nothing is lost. " in said or "what was published before stays. " in said
        assert said.endswith((" start the capture again.", " launch again.")), said
    folder = server.data.parent
    subprocess.run(["mount", "-o", f"remount,size={8 * MEGABYTES}m", str(folder)], check=True)
    if server.is_running:
        server.stop("immediate")
    server.start()
    world.bring_up()
    assert world.content() == world.rows() != before
