"""Whose table it is: the fence that a table with a live stream must have, and the one stream that it names."""

from __future__ import annotations

from backfill_assets.core.history.ports import Rows
from backfill_assets.core.live.ports import LiveLake
from backfill_assets.core.live.receipts import is_batch
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.fence import Fence
from backfill_assets.errors import StreamMismatchError


def the_fence_of(spec: TableSpec, lake: LiveLake[Rows]) -> Fence:
    """Return the fence of a table that must have one.

    Raises:
        StreamMismatchError: The spec names no live stream.
    """
    fence = lake.fence()
    if fence is None:
        raise StreamMismatchError(
            f"`{spec.key}` has no live stream, and so no fence.",
            state="Nothing was changed.",
            remedy="Add `live:` to its spec: the folder of its events, and the first day that the stream owns.",
        )
    return fence


def another_stream(spec: TableSpec, fence: Fence, stream: str) -> StreamMismatchError:
    """Return the error for a stream that a table does not belong to."""
    return StreamMismatchError(
        f"`{spec.key}` belongs to stream `{fence.stream or 'none'}`, and this is `{stream}`: two streams would "
        "write the same events twice.",
        state="Nothing was written.",
        remedy="Start the writer with the checkpoint of that stream. If it is lost: seal the live partitions, "
        "launch them from their "
        f"source, then `backfill-assets live {spec.key} --new-stream`.",
    )


def has_written(lake: LiveLake[Rows], fence: Fence) -> bool:
    """Say whether the stream of a fence has committed a batch."""
    return fence.last_batch >= 0 or lake.find(is_batch(fence.stream)) is not None
