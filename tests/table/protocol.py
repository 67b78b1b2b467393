"""How a launch publishes, as a small state machine: a launch in steps, and others who come between any two of them.

The table is a Delta log in memory. Its own conflict detection is as Delta's: it knows what came after a transaction began,
and nothing of what came before. `STEPS` are what `backfill_assets/table/transaction.py` compares around it. A schedule
draws who does something next; `Broken` says which promise a schedule has broken.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

STEPS = ("metadata", "fence", "base", "partitions", "exist", "predicate", "verify")
"""What is compared, in this order; each can be left out, to see that a schedule misses it."""

PARTITIONS = (0, 1, 2)


class Broken(Exception):  # noqa: N818 (what a test looks for)
    """A promise that a schedule has broken."""


@dataclass(frozen=True)
class File:
    """A data file: its name, its partition, and its rows."""

    name: int
    partition: int
    rows: frozenset[int]


@dataclass(frozen=True)
class Version:
    """What a table is at one version.

    Args:
        rule: Which rows the table allows; a write is checked by the rule that it saw.
        fence: The first live partition.
        touched: Partitions whose files this version changed.
        of_source: Number of the source's content, by partition, as a launch published it.
    """

    files: frozenset[File] = frozenset()
    rule: int = 0
    fence: int = 2
    touched: frozenset[int] = frozenset()
    changes_metadata: bool = False
    of_source: tuple[int, ...] = (0, 0, 0)

    def of(self, partition: int) -> frozenset[File]:
        return frozenset(file for file in self.files if file.partition == partition)


def rows_of(files: Collection[File]) -> frozenset[int]:
    return frozenset(row for file in files for row in file.rows)


@dataclass
class Table:
    """A log, and the files that lie on the disk."""

    versions: list[Version] = field(default_factory=lambda: [Version()])
    disk: set[File] = field(default_factory=set[File])
    number: int = 0
    source: int = 0
    rows: int = 0

    @property
    def newest(self) -> Version:
        return self.versions[-1]

    def new_file(self, partition: int, rows: Collection[int]) -> File:
        self.number += 1
        made = File(self.number, partition, frozenset(rows))
        self.disk.add(made)
        return made

    def new_row(self) -> int:
        self.rows += 1
        return self.rows

    def commit(self, **changes: object) -> None:
        self.versions.append(replace(self.newest, **{"changes_metadata": False, **changes}))

    def replace_files(self, partition: int, files: Collection[File], **more: object) -> None:
        others = self.newest.files - self.newest.of(partition)
        self.commit(files=others | frozenset(files), touched=frozenset({partition}), **more)


# -- the others --------------------------------------------------------------------------------------------------------


def append(table: Table, chance: random.Random) -> None:
    """Somebody else appends a row."""
    partition = chance.choice(PARTITIONS)
    table.replace_files(partition, table.newest.of(partition) | {table.new_file(partition, {table.new_row()})})


def optimize(table: Table, chance: random.Random) -> None:
    """Files become one, with the same rows."""
    partition = chance.choice(PARTITIONS)
    if table.newest.of(partition):
        table.replace_files(partition, {table.new_file(partition, rows_of(table.newest.of(partition)))})


def restore(table: Table, chance: random.Random) -> None:
    """Somebody takes the table back to an earlier version."""
    earlier = chance.choice(table.versions)
    if earlier.files <= table.disk:
        table.commit(files=earlier.files, touched=frozenset(PARTITIONS), of_source=earlier.of_source)


def alter(table: Table, chance: random.Random) -> None:
    """The table gets another rule."""
    del chance
    table.commit(rule=table.newest.rule + 1, touched=frozenset(), changes_metadata=True)


def seal(table: Table, chance: random.Random) -> None:
    """The fence moves; a launch may own one partition more, or one that it thought it owned is live."""
    table.commit(fence=chance.choice((1, 2, 3)), touched=frozenset(), changes_metadata=True)


def vacuum(table: Table, chance: random.Random) -> None:
    """A VACUUM that keeps nothing but what the newest version names."""
    del chance
    table.disk &= set(table.newest.files)


def correct_source(table: Table, chance: random.Random) -> None:
    """The source gets newer content."""
    del chance
    table.source += 1


OTHERS = (append, append, optimize, restore, alter, seal, vacuum, correct_source)


# -- a launch ----------------------------------------------------------------------------------------------------------


def launch(table: Table, chance: random.Random, without: Collection[str]) -> Iterator[None]:
    """Publish one partition, in up to three attempts. At each `yield` others may come, or this launch may be killed."""
    partition = chance.choice(PARTITIONS[:2])
    for _ in range(3):
        looked_at, of_source = table.newest, table.source
        if partition >= looked_at.fence or of_source < looked_at.of_source[partition]:
            return
        yield
        lies_in = 2 if chance.random() < 0.1 else partition
        written = table.new_file(lies_in, {1_000 * (of_source + 1) + 10 * partition + n for n in range(2)})
        yield
        if written not in table.disk:
            continue  # the audit cannot read it
        yield
        fresh, began = table.newest, len(table.versions)
        found = fresh.of(partition)
        is_conflict = {
            "metadata": fresh.rule != looked_at.rule,
            "fence": partition >= fresh.fence,
            "base": found != looked_at.of(partition),
            "partitions": written.partition != partition,
            "exist": written not in table.disk,
        }
        if any(is_found for step, is_found in is_conflict.items() if step not in without):
            continue
        yield
        since = table.versions[began:]
        reads = () if "predicate" in without else (partition,)
        if any(version.changes_metadata or version.touched & {*reads} for version in since):
            continue  # Delta's own conflict
        before = table.newest
        sources = tuple(of_source if n == partition else old for n, old in enumerate(before.of_source))
        table.commit(files=(before.files - found) | {written}, touched=frozenset({partition}), of_source=sources)
        judge(before, table.newest, partition, looked_at, written)
        if is_conflict["exist"]:
            raise Broken("a commit named a file that was gone")
        if written not in table.disk and "verify" not in without:
            continue  # it says so, and publishes the partition again
        if written not in table.disk:
            raise Broken("a launch succeeded, and a file of it is gone")
        return


def judge(before: Version, after: Version, partition: int, looked_at: Version, written: File) -> None:
    """Compare what a commit did with what its launch had looked at and audited."""
    if not rows_of(before.of(partition)) <= rows_of(looked_at.of(partition)):
        raise Broken("rows were removed that the launch had not looked at")
    if rows_of(after.of(partition)) != written.rows:
        raise Broken("a partition has other rows than those that were audited")
    if partition >= after.fence:
        raise Broken("history was written over a live partition")
    if after.rule != looked_at.rule:
        raise Broken("rows were committed that another rule had let through")
    if after.of_source[partition] < before.of_source[partition]:
        raise Broken("content went back to an older source")


def run(seed: int, without: Collection[str] = ()) -> None:
    """Run one schedule: two launches at a time, others in between, and kills.

    Raises:
        Broken: A promise did not hold.
    """
    chance, table = random.Random(seed), Table()
    launches = [launch(table, chance, without) for _ in range(2)]
    for _ in range(30):
        one = chance.randrange(3)
        if one == 2:
            chance.choice(OTHERS)(table, chance)
            continue
        if next(launches[one], table) is table or chance.random() < 0.02:
            launches[one] = launch(table, chance, without)
