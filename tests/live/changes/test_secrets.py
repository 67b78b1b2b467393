"""A database's password while its changes are captured and folded in: it is needed everywhere, and shown nowhere."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.assets.factory import tables_of
from backfill_assets.assets.feed import FeedReporter
from backfill_assets.core.history.reconcile import reconcile
from backfill_assets.errors import BackfillAssetsError, ChangeFeedError, SourceRefusedError
from backfill_assets.live.changes.landed import STOPPED, feed_state
from tests.live.changes.world import DAYS, new_world
from tests.support.shop import published_keys


def command_lines() -> str:
    """What every process of this machine was started with."""
    said = ""
    for process in os.listdir("/proc"):  # noqa: PTH208 (processes end while they are listed)
        if process.isdigit():
            try:
                said += Path(f"/proc/{process}/cmdline").read_text(errors="replace")
            except OSError:
                continue
    return said


@pytest.mark.prove
def test_no_password_of_a_followed_database_comes_out(spark, tmp_path, monkeypatch, capfd):
    """Captured, launched, refreshed, compared, refused, stopped: not in a log, an error, a file, Dagster or a command line."""
    world, canary, said = new_world(spark, tmp_path), "canary-4d1e88a0-pass", list[str]()
    hba, variable = world.server.data / "pg_hba.conf", world.spec.source.connection
    before = hba.read_text()
    world.execute(f"CREATE ROLE \"{world.name}\" LOGIN SUPERUSER PASSWORD '{canary}'")
    hba.write_text(f"host all {world.name} 127.0.0.1/32 scram-sha-256\n{before}")
    world.execute("SELECT pg_reload_conf()")
    right = f"postgresql://{world.name}:{canary}@127.0.0.1:{world.server.port}/{world.name}"
    world.capture.log = world.log.append

    def failed(kind: type[BackfillAssetsError]) -> None:
        with pytest.raises(kind) as error:
            world.land()
        said.append(f"{error.value} {error.value.facts} {(world.folder / STOPPED).read_text()}")

    try:
        monkeypatch.setenv(variable, right)
        world.land()
        assert published_keys(world.launch()) == list(DAYS)
        world.execute("UPDATE customers SET balance = 3 WHERE id = 1")
        done = world.bring_up()
        assert len(done.published) == 1
        with world.capturing():
            said += [str(c) + c.as_of for c in reconcile(world.spec, world.partitions[:1], world.source, world.lake)]
        monkeypatch.setenv(variable, right.replace(canary, f"{canary}x"))
        with pytest.raises(SourceRefusedError) as refusal:
            world.launch_now(world.partitions[:1])
        said.append(str(refusal.value))
        monkeypatch.setenv(variable, right)
        world.execute("ALTER TABLE customers RENAME TO clients")
        failed(ChangeFeedError)
        definitions = lakehouse_definitions(build_lakehouse_table(world.spec))
        (tmp_path / "dagster").mkdir()
        with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as instance:
            table = tables_of(definitions)[0][world.spec.key]
            assert table.spec.changes is not None
            FeedReporter(instance, table, table.spec.changes, said.append).saw(
                done, feed_state(world.folder), datetime.now(UTC)
            )
            said += map(
                str, instance.get_event_records(dg.EventRecordsFilter(dg.DagsterEventType.ASSET_MATERIALIZATION))
            )
        said.append(command_lines())
    finally:
        hba.write_text(before)
        world.execute("SELECT pg_reload_conf()")
    said += [*world.log, *capfd.readouterr()]
    said += [file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file()]
    assert "the capture" in "".join(said), "Dagster has the feed's state"
    assert canary not in "".join(said)
