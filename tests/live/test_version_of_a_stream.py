"""A new version of a streamed table: built beside it while both streams run, killed between any two steps, and equal at the end.

Other type, other grain, other zone: `decimal(18,2)` by UTC days becomes `decimal(20,4)` by months of Berlin. Events are late, come
twice, and change orders. `SCHEDULES=30` runs more schedules; a schedule is made again from its seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import FenceError, SameTableError, SchemaMismatchError, VersionError
from backfill_assets.lake import definition
from backfill_assets.lake.version_comparison import compare_versions
from backfill_assets.live import live_table
from backfill_assets.sources.context import SourceContext
from backfill_assets.sources.version import VersionSource, build
from backfill_assets.table.transaction import Transactions
from tests.live.test_schedules import STEPS, Killed, Kills, stepping, without_locks
from tests.support.live_shop import Shop, event, live_spec
from tests.support.seeds import rounds, within
from tests.support.shop import launch

GATE_SECONDS = 10
"""So long the gate tries schedules, up to five of them; `make prove` runs fifteen."""

DAYS = ["2024-01-02", "2024-01-03", "2024-01-04", "2024-01-31", "2024-02-01", "2024-02-03"]
BOUNDARY = ["2024-01-31T22:59:59.999999", "2024-01-31T23:00:00", "2024-01-31T23:00:00.000001"]
"""The last instant before the new version's boundary, the boundary, and the first instant after it: the zone is Berlin."""
BEFORE_T, AFTER_T = datetime(2024, 1, 20, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC)
SECOND: dict[str, Any] = {
    "key": "bronze/orders__v2",
    "columns": {
        "order_id": "bigint",
        "total": "decimal(20,4)",
        "ordered_at": "timestamp",
        "updated_at": "timestamp",
    },
    "grain": "monthly",
    "time_zone": "Europe/Berlin",
    "source": {"kind": "version", "table": "bronze/orders"},
    "live": {"path": "events_v2", "starts": "2024-02-01", "trigger_seconds": 0.2},
    "version_of": {"table": "bronze/orders", "renamed": {"total": "amount"}, "cast": ["total"]},
}


def second_spec(**changes: Any) -> TableSpec:
    return live_spec(**{**SECOND, **changes})


@dataclass
class Second(Shop):
    """The second version of a shop's orders, in the same lakehouse."""

    first: Shop | None = None

    @property
    def landing(self) -> Path:
        return self.root / "landing" / "events_v2"

    @property
    def path(self) -> Path:
        return self.root / "tables/bronze/orders__v2"

    @property
    def source(self) -> VersionSource:
        assert self.first is not None
        context = SourceContext(self.spec, self.spark, lambda p: str(self.root / "landing" / p), [self.first.delta])
        return build(self.spec.source, context)

    def copy(self) -> Any:
        """Launch January, which is all that lies before its fence."""
        self.delta.create()
        return launch(self.delta, self.source, self.spec.grid.between("2024-01-01", "2024-01-01"), log=self.said.append)


def two(spark: Any, root: Path, **changes: Any) -> tuple[Shop, Second]:
    first = Shop(spark, root)
    later = Second(spark, root, second_spec(**changes), first=first)
    first.now = later.now = AFTER_T
    return first, later


def land(shops: tuple[Shop, Second], events: list[dict[str, Any]]) -> None:
    """Land events for both: the new version has the field under its new name."""
    shops[0].land(*events)
    shops[1].land(*({**{k: v for k, v in one.items() if k != "amount"}, "total": one["amount"]} for one in events))


def drawn(rng: random.Random) -> list[list[dict[str, Any]]]:
    """Events in batches: new orders, changes of orders, and the same event once more."""
    batches: list[list[dict[str, Any]]] = []
    known: list[dict[str, Any]] = []
    for number in range(rng.randint(3, 6)):
        events = []
        for _ in range(rng.randint(2, 5)):
            at = f"{rng.choice(DAYS)}T{rng.choice([0, 22, 23])}:59:59.999999".replace("T0:", "T00:")
            at = rng.choice(BOUNDARY) if rng.random() < 0.2 else at
            stamp = f"2024-02-10T{number:02d}:00:{len(events):02d}"
            if known and rng.random() < 0.4:
                one = rng.choice(known)
                events.append(one if rng.random() < 0.5 else {**one, "amount": "9.00", "updated_at": f"{stamp}Z"})
            else:
                known.append(event(1000 + len(known), at, amount=f"{len(known)}.25", updated_at=stamp))
                events.append(known[-1])
        batches.append(events)
    return batches


def newest(events: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    """Of each order the newest row."""
    found: dict[int, dict[str, Any]] = {}
    for one in events:
        if one["order_id"] not in found or one["updated_at"] > found[one["order_id"]]["updated_at"]:
            found[one["order_id"]] = one
    return {(one["order_id"], one["amount"], datetime.fromisoformat(one["updated_at"])) for one in found.values()}


def held(shop: Shop, amount: str) -> set[tuple[Any, ...]]:
    """Of each order in a table the newest row, read with delta-rs."""
    rows = [{**row, "amount": f"{row[amount]:.2f}", "updated_at": row["updated_at"].isoformat()} for row in shop.rows()]
    return newest(rows)


def until_done(action: Any) -> None:
    """Do something again as long as it is killed."""
    while True:
        try:
            action()
        except Killed:
            continue
        return


@pytest.mark.prove
@pytest.mark.parametrize("seeds", rounds(range(5)), ids=lambda seeds: f"from {seeds[0]}")
def test_both_versions_end_equal(spark, tmp_path, seeds):
    """Whatever is killed when: both hold what landed and what was exported, at, before and after the boundary, and no more."""
    for seed in within(GATE_SECONDS, seeds):
        with pytest.MonkeyPatch.context() as patch:
            _schedule(random.Random(seed), two(spark, tmp_path / str(seed)), patch)


def _schedule(rng: random.Random, shops: tuple[Shop, Second], patch: pytest.MonkeyPatch) -> None:
    first, later = shops
    exported = [event(n, f"{day}T01:00:00") for n, day in enumerate(DAYS[:2])]
    for one in exported:
        first.export(one["ordered_at"][:10], one)
    patch.setattr(definition, "utc_now", lambda: BEFORE_T)
    without_locks(patch)
    kills = Kills(set(rng.sample(range(60), rng.randint(1, 4))))
    for name in STEPS:
        patch.setattr(live_table.LiveTable, name, in_a_batch(stepping(kills, getattr(live_table.LiveTable, name))))
    for name in ("write", "commit"):
        patch.setattr(Transactions, name, stepping(kills, getattr(Transactions, name)))
    until_done(lambda: first.launch("2024-01-02", "2024-01-03"))
    events: list[dict[str, Any]] = []
    steps = [
        later.copy,
        lambda: later.stream(checkpoint=_checkpoint(later)),
        lambda: first.launch("2024-01-02", "2024-01-03"),
    ]
    for batch in drawn(rng):
        land(shops, batch)
        events += batch
        _once_more(first.stream)
        for step in rng.sample(steps, rng.randint(0, 2)):
            _once_more(step)
    patch.undo()
    patch.setattr(definition, "utc_now", lambda: BEFORE_T)
    first.stream()
    later.stream(checkpoint=_checkpoint(later))
    first.launch("2024-01-02", "2024-01-03")
    later.copy()
    found = compare_versions(first.delta, later.delta)
    assert found.is_equal, str(found)
    assert held(first, "amount") == held(later, "total") == newest([*exported, *events])


def in_a_batch(step: Any) -> Any:
    """Have a step end in what Spark is told of: of a thread that dies of anything else it would wait for the answer."""

    def taken(*arguments: Any, **named: Any) -> Any:
        try:
            return step(*arguments, **named)
        except Killed as error:
            raise RuntimeError("Killed") from error

    return taken


def _once_more(step: Any) -> None:
    """Take a step, and again if it was killed; a stream raises what its batch raised in words of its own, and cut short."""
    for _ in range(8):
        try:
            step()
        except BaseException as error:
            if not isinstance(error, Killed) and "Killed" not in f"{error} {error.__cause__}":
                raise
        else:
            return


def _checkpoint(later: Second) -> str:
    return str(later.root / "checkpoints_v2")


def test_an_instant_at_the_boundary_belongs_to_one_side(spark, tmp_path, monkeypatch):
    """To the microsecond, and with the zone: what is before it is copied, what is at or after it comes by the stream."""
    monkeypatch.setattr(definition, "utc_now", lambda: BEFORE_T)
    shops = first, later = two(spark, tmp_path)
    first.export("2024-01-02", event(1, "2024-01-02T01:00:00"))
    first.launch("2024-01-02", "2024-01-02")
    later.delta.create()
    land(shops, [event(10 + number, at) for number, at in enumerate(BOUNDARY)])
    first.stream()
    later.stream(checkpoint=_checkpoint(later))
    assert (later.ids(), later.ids("_late")) == ([11, 12], [10])
    later.copy()
    assert (first.ids(), later.ids()) == ([1, 10, 11, 12], [1, 10, 11, 12])
    assert compare_versions(first.delta, later.delta).is_equal
    later.copy()
    assert later.ids() == [1, 10, 11, 12], "a copy that is made again doubles nothing"


@pytest.mark.parametrize("step", [0, 1], ids=["before the commit", "after the commit"])
def test_a_copy_that_was_killed_is_made_again(spark, tmp_path, monkeypatch, step):
    """Killed around its commit, a copy is absent or whole; made again it doubles nothing."""
    monkeypatch.setattr(definition, "utc_now", lambda: BEFORE_T)
    first, later = two(spark, tmp_path)
    for number, day in enumerate(DAYS[:2]):
        first.export(day, event(number, f"{day}T01:00:00"))
    first.launch(*DAYS[:2])
    later.delta.create()
    with monkeypatch.context() as patch:
        patch.setattr(Transactions, "commit", stepping(Kills({1 + step}), Transactions.commit))
        with pytest.raises(Killed):
            later.copy()
    assert later.ids() == [[], [0, 1]][step]
    for _ in range(2):
        later.copy()
        assert later.ids() == first.ids() == [0, 1]


def test_ingestion_that_moved_is_seen_in_the_receipts(spark, tmp_path, monkeypatch):
    """The new version gets batches and the old one none; then history is copied, and both are equal before that day."""
    monkeypatch.setattr(definition, "utc_now", lambda: BEFORE_T)
    first, later = two(spark, tmp_path)
    first.delta.create()
    later.delta.create()
    first.land(event(1, "2024-01-05T10:00:00"), event(2, BOUNDARY[0]))
    first.stream()
    later.land({**event(3, BOUNDARY[1]), "total": "2.25"}, {**event(4, "2024-02-03T10:00:00"), "total": "3.25"})
    later.stream(checkpoint=_checkpoint(later))
    assert first.stream() == 0, "nothing more lands for the old version"
    batches = [[receipt.rows + receipt.late_rows for _, receipt in shop.table.receipts()] for shop in (first, later)]
    assert batches == [[2], [2]]

    assert not compare_versions(first.delta, later.delta, until=datetime.fromisoformat(f"{BOUNDARY[1]}Z")).is_equal
    later.copy()
    found = compare_versions(first.delta, later.delta, until=datetime.fromisoformat(f"{BOUNDARY[1]}Z"))
    assert (found.is_equal, later.ids()) == (True, [1, 2, 3, 4])


def test_a_boundary_that_has_passed_is_refused(spark, tmp_path):
    """When the version is made, not when it was written: nothing of it is there, and the message names a later day."""
    _, later = two(spark, tmp_path)
    with pytest.raises(FenceError, match=r"has passed.*Set `live.starts` to"):
        later.delta.create()
    assert not later.path.exists()


def test_a_table_is_not_compared_with_itself(spark, tmp_path, monkeypatch):
    """Nor with what was never made."""
    monkeypatch.setattr(definition, "utc_now", lambda: BEFORE_T)
    first, later = two(spark, tmp_path)
    first.delta.create()
    with pytest.raises(VersionError, match="was not made"):
        compare_versions(first.delta, later.delta)
    with pytest.raises(SameTableError, match="always equal to itself"):
        compare_versions(first.delta, first.delta)


@pytest.mark.prove
def test_rows_that_are_still_to_come_are_waited_for(spark, tmp_path, monkeypatch):
    """A stream that lags behind is no difference if it comes up in time; a row too many of either is one."""
    monkeypatch.setattr(definition, "utc_now", lambda: BEFORE_T)
    shops = first, later = two(spark, tmp_path)
    later.delta.create()
    land(shops, [event(1, "2024-02-03T10:00:00"), event(2, "2024-02-03T11:00:00")])
    first.stream()

    def come_up(_: float) -> None:
        later.stream(checkpoint=_checkpoint(later))

    found = compare_versions(first.delta, later.delta, patience_seconds=60, sleep=come_up)
    assert (found.is_equal, found.came_later) == (True, 2)
    later.land(
        {"order_id": 3, "total": "1.00", "ordered_at": "2024-02-03T12:00:00Z", "updated_at": "2024-02-03T12:00:00Z"}
    )
    come_up(0)
    found = compare_versions(first.delta, later.delta, patience_seconds=0)
    assert [(day.day, day.only_before, day.only_new) for day in found.differing] == [("2024-02-03", 0, 1)]


def test_an_expression_that_cannot_be_read_says_so(spark, tmp_path, monkeypatch):
    """With what it cannot do, before anything is compared or copied."""
    monkeypatch.setattr(definition, "utc_now", lambda: BEFORE_T)
    first, later = two(
        spark,
        tmp_path,
        version_of={"table": "bronze/orders", "computed": {"total": "amont * 2"}, "dropped": ["amount"]},
    )
    first.delta.create()
    later.delta.create()
    with pytest.raises(SchemaMismatchError, match="amont"):
        compare_versions(first.delta, later.delta)
