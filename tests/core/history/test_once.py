"""Once-flows: what the receipts say of each, over fakes."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import pytest

from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.once import progress_of, reset_receipt
from backfill_assets.core.history.outcomes import Published
from backfill_assets.core.history.undo import carry_out
from backfill_assets.core.history.undo_plan import Undo, of_launch, plan_undo
from backfill_assets.core.spec.once import OnceFlow
from backfill_assets.core.state.receipts import PartitionReceipt, Run
from tests.core.history.world import KEYS, World
from tests.support.fakes import orders_of, receipt_of

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)


class Shop(World):
    """A table over lists with one flow of the first four days."""

    def __post_init__(self):
        super().__post_init__()
        self.flow = OnceFlow("bronze/first_days", tuple(self.spec.grid.partition(key) for key in KEYS[:4]), "ranges")

    @property
    def progress(self):
        return progress_of(self.flow, self.lake.receipts())

    def publish(self, partitions, *, stop_after=None, **launch):
        outcomes = self.outcomes(partitions, chunk=1, now=lambda: NOW, **launch)
        assert all(isinstance(outcome, Published) for outcome in islice(outcomes, stop_after))
        outcomes.close()

    def load(self, **how):
        self.publish(self.progress.left, flow=self.flow.name, **how)

    def reset(self, flow=None):
        receipt = reset_receipt(
            flow or self.flow,
            self.spec.key,
            Run(reason="why"),
            version=self.lake.version(),
            now=NOW,
        )
        self.lake.add_version({}, metadata=receipt.to_json())


@pytest.fixture
def shop():
    return Shop()


def test_a_flow_that_never_ran(shop):
    """Without a receipt of its own a flow has all of its partitions left, whoever else published them."""
    shop.publish(shop.flow.partitions)
    assert (shop.progress.state, shop.progress.left, shop.progress.rows) == ("never run", list(shop.flow.partitions), 0)
    assert shop.progress.in_words() == "`first_days` never ran."


def test_a_flow_that_is_done(shop):
    """When each partition has a receipt of the flow nothing is left; who did it, when, and how many rows is known."""
    shop.load(run_id="the run")
    progress = shop.progress
    assert (progress.state, progress.left) == ("done", [])
    assert progress.rows == sum(len(shop.source.files[key]) for key in KEYS[:4])
    assert (progress.newest.version, progress.newest.receipt.run.id) == (4, "the run")
    assert progress.in_words().endswith("the last at 2025-06-01T12:00:00+00:00 in version 4 by run the run.")


def test_a_flow_that_was_taken_back_may_run_again(shop):
    """After an undo nothing of it is published; after the undo of that, all of it; other launches' rows are not its."""
    shop.publish(shop.flow.partitions[:1])
    shop.source.files[KEYS[0]] = orders_of(shop.spec, KEYS[0], amount=3)
    shop.load(run_id="bad")
    for name, run_id, state in [("bad", "undo 1", "never run"), ("undo 1", "undo 2", "done")]:
        undo = Undo(name, of_launch(name, []), Run(run_id))
        list(carry_out(shop.spec, shop.lake, undo, plan_undo(shop.spec, shop.lake, undo), Effects(now=lambda: NOW)))
        assert shop.progress.state == state
    assert {one.receipt.run.id for one in shop.progress.published.values()} == {"bad"}


def test_a_flow_that_was_killed_continues_with_the_rest(shop):
    """What was published before the kill is not left; the next run does the others, each once."""
    shop.load(stop_after=3)
    assert (shop.progress.state, [p.key for p in shop.progress.left]) == ("partly", KEYS[3:4])
    shop.load()
    assert shop.progress.state == "done"
    assert [list(receipt.partitions) for _, receipt in sorted(shop.lake.receipts().items())] == [
        [key] for key in KEYS[:4]
    ]


def test_a_correction_by_somebody_else_does_not_make_it_run_again(shop):
    """An ordinary launch, or another flow, writes the same partitions later: the flow stays done, with what it did."""
    shop.load(run_id="the run")
    rows = shop.progress.rows
    shop.source.files[KEYS[1]] = shop.source.files[KEYS[1]][:2]
    shop.publish(shop.flow.partitions[1:2], run_id="a correction")
    shop.publish(shop.flow.partitions[2:3], flow="another")
    assert (shop.progress.state, shop.progress.rows, shop.progress.newest.receipt.run.id) == ("done", rows, "the run")


def test_after_a_reset_it_runs_again(shop):
    """A reset counts from its version on; the flow of another name is not reset by it; rows stay as they are."""
    shop.load()
    content = shop.lake.content()
    shop.reset(OnceFlow("bronze/another", shop.flow.partitions, "ranges"))
    assert shop.progress.state == "done"
    shop.reset()
    assert (shop.progress.state, len(shop.progress.left), shop.lake.content()) == ("never run", 4, content)
    assert shop.progress.in_words() == "`first_days` never ran since it was reset."
    shop.load()
    assert (shop.progress.state, shop.lake.content()) == ("done", content)


def test_a_reset_is_no_publish(shop):
    """The newest publish of each partition is the same after a reset, and a launch that asks for what is missing writes nothing."""
    shop.load()
    before = shop.lake.published()
    shop.reset()
    assert shop.lake.published() == before


def test_what_was_put_back_is_left():
    """A publish whose content was lost in the write, and put back, was not done."""
    flow = Shop().flow
    day = PartitionReceipt(3, "ff", 1, 2, "f")
    publish = receipt_of({KEYS[0]: day, KEYS[1]: day}, flow=flow.name)
    restore = receipt_of({KEYS[1]: day}, flow=flow.name, kind="put_back")
    assert set(progress_of(flow, {1: publish}).published) == set(KEYS[:2])
    assert set(progress_of(flow, {1: publish, 2: restore}).published) == {KEYS[0]}
    assert set(progress_of(flow, {1: publish, 2: restore, 3: publish}).published) == set(KEYS[:2])


def test_a_flow_whose_range_was_made_longer(shop):
    """A range that is changed in the spec keeps what was done of it; the rest is left."""
    shop.load()
    longer = OnceFlow(shop.flow.key, tuple(shop.spec.grid.partition(key) for key in KEYS), "ranges")
    progress = progress_of(longer, shop.lake.receipts())
    assert (progress.state, [p.key for p in progress.left]) == ("partly", KEYS[4:])
