"""Which partitions of other tables are made of some partitions of a table. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.calendar.windows import Window
from backfill_assets.core.spec.source_spec import Input
from backfill_assets.core.spec.table import TableSpec


def window_read(spec: TableSpec, partition: Partition, offsets: Input) -> Window:
    """Return the window of an input that is read for a partition, with its offsets."""
    grid = spec.grid
    start, end = partition, partition
    for _ in range(-offsets.start_offset):  # also to before this table's start: an input may begin earlier
        start = grid.previous(start)
    for _ in range(offsets.end_offset):
        end = grid.following(end)
    return Window(start.window.start_utc, end.window.end_utc)


def made_of(key: str, partitions: Sequence[Partition], specs: Mapping[str, TableSpec]) -> dict[str, list[Partition]]:
    """Return the partitions of every table below one that are made of some of its partitions, by table key.

    What is made of these is among them too. Partitions are in order, and each table comes after those that it is made
    of; tables of which nothing is made of these partitions are left out.

    Args:
        specs: Of all tables of the lakehouse, by key.
    """
    found: dict[str, list[Partition]] = {}
    waiting = [(key, sorted(set(partitions)))]
    while waiting:
        upstream, changed = waiting.pop(0)
        for name, spec in sorted(specs.items()):
            for source in spec.inputs:
                if source.table != upstream or not changed:
                    continue
                known = {p.key for p in found.get(name, [])}
                more = [p for p in _touched(spec, source, changed) if p.key not in known]
                if more:
                    found[name] = sorted([*found.get(name, []), *more])
                    waiting.append((name, more))
    inputs = {name: {source.table for source in specs[name].inputs} & found.keys() for name in sorted(found)}
    return {name: found[name] for name in TopologicalSorter(inputs).static_order()}


def _touched(spec: TableSpec, source: Input, changed: Sequence[Partition]) -> list[Partition]:
    """Return the partitions of a table for which one of the changed partitions of an input is read."""
    grid = spec.grid
    around = grid.covering(Window(changed[0].window.start_utc, changed[-1].window.end_utc))
    around = around or [grid.partition_of(grid.start_utc)]  # what lies before the table may be read for its first ones
    for _ in range(-source.start_offset):
        around.append(grid.following(around[-1]))
    for _ in range(source.end_offset):
        if around[0].window.start_utc > grid.start_utc:
            around.insert(0, grid.previous(around[0]))
    ends = [partition.window.end_utc for partition in changed]
    found: list[Partition] = []
    for partition in around:
        window = window_read(spec, partition, source)
        nearest = bisect_right(ends, window.start_utc)
        if nearest < len(changed) and changed[nearest].window.start_utc < window.end_utc:
            found.append(partition)
    return found
