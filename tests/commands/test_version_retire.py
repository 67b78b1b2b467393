"""`version retire`: a version that is given up is written by nobody, and what follows it lives on without it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import pytest

from backfill_assets import build_lakehouse_table, lakehouse_definitions, read
from backfill_assets.commands.fence import look_at_fence
from backfill_assets.commands.follow_changes import follow_changes
from backfill_assets.commands.version import retire
from backfill_assets.core.state.current_versions import Switch
from backfill_assets.errors import ConfigurationError, TableLockedError
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.table import Table
from tests.commands.places import Place, copied
from tests.commands.versions import (
    DAYS,
    TOTALS_V2,
    V2,
    amounts,
    both,
    current,
    independent,
    run,
    second,
    steps,
    stream,
    streamed,
)
from tests.live.test_version_of_a_stream import second_spec
from tests.support.launching import ORDERS, TOTALS
from tests.support.live_shop import Shop, event, live_spec
from tests.support.shop import orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture
def place(shop_with_totals: Place, tmp_path: Path) -> Place:
    return copied(shop_with_totals, tmp_path)


def alone(place: Place, spec: Any) -> Any:
    """A project that has one version of the orders, and no other."""
    return lakehouse_definitions(build_lakehouse_table(spec), lakehouse=Lakehouse(root=str(place.lake.root)))


def gaps(place: Place, definitions: Any) -> list[str]:
    """The states of the partitions of the second version that are not as they should be."""
    found = place.run("gaps", V2, "--json", definitions=definitions)
    told: list[Any] = json.loads(found.stdout)["tables"][0]["gaps"]
    assert found.exit_code == bool(told), found.output
    return [state for one in told for state in one["states"]]


@pytest.mark.prove
def test_a_version_that_was_never_current_is_given_up(shop_brought_up, tmp_path):
    """Readers by name get the first one as before, and `_current` says where it lies; once more adds no step."""
    place = copied(shop_brought_up, tmp_path / "place")
    lakehouse = Lakehouse(root=str(place.lake.root))
    run(place, "retire", TOTALS_V2, "--yes", TOTALS_V2)
    run(place, "retire", V2, "--yes", V2)
    run(place, "retire", V2, "--yes", V2)
    assert current(place) == {ORDERS: ORDERS, TOTALS: TOTALS}
    found, sums = read([ORDERS, TOTALS], lakehouse=lakehouse)
    assert (dict(found.dtypes)["amount"], found.count(), sums.count()) == ("decimal(18,2)", 16, len(DAYS))
    assert read(ORDERS, lakehouse=lakehouse).count() == 16
    given_up = [one for one in steps(place) if one["what"] == "retired"]
    assert sorted(one["key"] for one in given_up) == [V2, TOTALS_V2]
    assert all(one["switch_id"] for one in given_up)
    assert "is retired" in run(place, "cutover", V2, code=2)


@pytest.mark.prove
def test_nobody_writes_what_is_given_up(spark, tmp_path):
    """Neither its stream, with whatever checkpoint, nor a change feed; and while one of these runs no other does."""
    shop = Shop(spark, tmp_path)
    shop.export("2024-01-02", event(1, "2024-01-02T10:00:00"))
    shop.land(event(2, "2024-01-05T10:00:00"))
    lakehouse = Lakehouse(root=str(tmp_path))
    lakehouse._spark = spark

    def writer(checkpoint: str | None = None) -> Any:
        return lakehouse.live_writer(shop.spec, shop.spec.live, shop.said.append, checkpoint=checkpoint)

    def follow() -> None:
        chosen: Any = SimpleNamespace(spec=shop.spec, lakehouse=lakehouse)
        follow_changes(chosen, None, once=True, is_new_feed=False, stop=threading.Event(), say=shop.said.append)

    held: list[str] = []

    def try_all() -> None:
        for other in (writer(f"{tmp_path}/another").run, follow):
            with pytest.raises(TableLockedError, match="held by another writer"):
                other()
            held.append("refused")

    running = writer()
    running.refuse = try_all
    assert running.run(once=True) == 1
    assert held == ["refused"] * 2
    keys = {"bronze/orders": "bronze/orders__v2"}
    paths = {"bronze/orders__v2": "/elsewhere"}
    given_up = Switch("s", keys, {"bronze/orders": "bronze/orders"}, paths, "", "", "", ("bronze/orders",))
    lakehouse.current_table().switch(given_up)
    shop.land(event(3, "2024-01-05T11:00:00"))
    for other in (lambda: writer().run(once=True), lambda: writer(f"{tmp_path}/another").run(once=True), follow):
        with pytest.raises(ConfigurationError, match="was retired; nothing is written into it"):
            other()
    assert shop.ids() == [2]
    fence: Any = SimpleNamespace(table=lambda _: SimpleNamespace(spec=shop.spec, lakehouse=lakehouse))
    with pytest.raises(ConfigurationError, match="was retired; nothing is written into it"):
        look_at_fence(fence, "bronze/orders", None, carry=True, is_sure=True, log=shop.said.append)


@pytest.mark.prove
def test_life_goes_on_after_the_first_version(place):
    """It is retired and its spec removed: the next one loads with one word, is launched, shown, and followed by a third."""
    spec = independent()
    definitions = both(place, orders_v2=spec)
    run(place, "deploy", V2, "--empty", definitions=definitions)
    run(place, "deploy", V2, definitions=definitions)
    run(place, "cutover", V2, definitions=definitions)
    run(place, "retire", TOTALS, "--yes", TOTALS, definitions=definitions)
    todo = run(place, "retire", ORDERS, "--yes", ORDERS, definitions=definitions)["left_to_do"]
    assert todo[0] == f"Say `retired: true` in `version_of` of `{V2}`, which follows it."
    assert todo[1].startswith("Remove its spec in the same reviewed change")
    failed = place.lake.launch(DAYS[0])
    assert not failed.succeeded
    assert "`bronze/orders` is a version that was retired; nothing is written into it" in failed.failure

    later = independent(version_of={"table": ORDERS, "retired": True})
    assert Table(later).code_version == Table(spec).code_version
    definitions = alone(place, later)
    (status,) = run(place, "status", definitions=definitions)["versions"]
    assert (status["key"], status["state"], status["lacking"], status["following"]) == (V2, "current", 0, "")
    assert run(place, "status", ORDERS, definitions=definitions)["versions"][0]["key"] == V2
    assert "nothing to be held against" in run(place, "deploy", V2, "--check", code=2, definitions=definitions)
    place.lake.export(DAYS[0], orders(DAYS[0], 5))
    planned = place.run("plan", V2, "--partition-range", f"{DAYS[0]}...{DAYS[0]}", "--json", definitions=definitions)
    assert planned.exit_code == 0, planned.output


@pytest.mark.prove
def test_what_a_copy_lacks_is_not_given_up(shop_brought_up, tmp_path, monkeypatch):
    """The first version was launched, or its launch undone, since it was copied: its rows would be nowhere else."""
    place = copied(shop_brought_up, tmp_path / "place")
    run(place, "deploy", V2)  # of files that lie elsewhere now
    run(place, "cutover", V2)
    run(place, "retire", TOTALS, "--yes", TOTALS)
    place.lake.export(DAYS[0], orders(DAYS[0], 5))
    assert place.lake.launch(DAYS[0]).succeeded
    said = {"table": ORDERS, "cast": ["amount"], "retired": True}
    later = both(place, orders_v2=second(version_of=said))
    refused = " ".join(run(place, "retire", ORDERS, "--yes", ORDERS, code=2, definitions=later).split())
    assert f"`{V2}` is copied from `{ORDERS}`, and 1 of its partitions, `2024-01-01` to `2024-01-01`" in refused
    run(place, "deploy", V2, code=None)
    deltalake.DeltaTable(f"{place.lake.root}/tables/{V2}").delete("ordered_at >= '2024-02-01'")
    refused = " ".join(run(place, "retire", ORDERS, "--yes", ORDERS, code=2, definitions=later).split())
    assert "1 of its partitions, `2024-02-01` to `2024-02-01`" in refused, "what only the first version can mend"
    run(place, "deploy", V2, code=None)
    look = retire.refuse_what_was_not_copied

    def launched_meanwhile(*of: Any) -> None:
        look(*of)
        place.lake.export(DAYS[0], orders(DAYS[0], 6))
        assert place.lake.launch(DAYS[0]).succeeded

    with monkeypatch.context() as patch:
        patch.setattr(retire, "refuse_what_was_not_copied", launched_meanwhile)
        refused = " ".join(run(place, "retire", ORDERS, "--yes", ORDERS, code=2, definitions=later).split())
    assert f"`{ORDERS}` was published into while its copies were held against it" in refused
    run(place, "deploy", V2, code=None)
    run(place, "retire", ORDERS, "--yes", ORDERS, definitions=later)
    assert amounts(place, V2) == amounts(place, ORDERS)


def copying(place: Place, **changes: Any) -> Any:
    """The orders of a stream, and a second version that is copied from them and has no stream."""
    spec = second_spec(time_zone="UTC", live=None, **changes)
    return lakehouse_definitions(
        build_lakehouse_table(live_spec()),
        build_lakehouse_table(spec, inputs={ORDERS: live_spec()}),
        lakehouse=Lakehouse(root=str(place.lake.root)),
    )


@pytest.mark.prove
def test_what_has_landed_is_not_given_up_with_a_version(spark, tmp_path):
    """A file waits for the stream of the first one, and its copy has none: it would be in no table, and nobody told."""
    place, shop, _ = streamed(spark, tmp_path)
    followed = copying(place)
    shop.land(event(11, "2024-01-05T10:00:00"))
    stream(place, ORDERS, followed)
    for step in ("deploy", "cutover"):
        run(place, step, V2, definitions=followed)
    shop.land(event(12, "2024-01-06T10:00:00"))
    said = {"table": ORDERS, "renamed": {"total": "amount"}, "cast": ["total"], "retired": True}
    definitions = copying(place, version_of=said)
    refused = " ".join(run(place, "retire", ORDERS, "--yes", ORDERS, code=2, definitions=definitions).split())
    assert (
        f"Not all that landed for the stream of `{ORDERS}` by now is written, and `{V2}` has it from nowhere" in refused
    )
    assert f"`backfill-assets live {ORDERS} --once`, then `backfill-assets version deploy {V2}`" in refused
    stream(place, ORDERS, followed)
    assert "1 of its partitions" in " ".join(
        run(place, "retire", ORDERS, "--yes", ORDERS, code=2, definitions=definitions).split()
    )
    run(place, "deploy", V2, definitions=followed)
    run(place, "retire", ORDERS, "--yes", ORDERS, definitions=definitions)
    rows = deltalake.DeltaTable(f"{place.lake.root}/tables/{V2}").to_pyarrow_table().to_pylist()
    assert sorted(row["order_id"] for row in rows) == [2, 3, 11, 12]
