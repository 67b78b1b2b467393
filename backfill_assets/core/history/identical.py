"""Partitions that a launch need not write: the table has, row for row, what would be written.

Three things have to agree, each of which finds what the others cannot: the newest receipt says that the same code made
the same content of the same source; the log names nobody who wrote the partition since; and the table's own rows,
read again, are those that were staged. A data file that is damaged or lost is found by the third, and written anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.outcomes import Identical
from backfill_assets.core.history.plan import Launch
from backfill_assets.core.history.ports import Lake, Rows
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.receipts import PublishedPartition, Receipt
from backfill_assets.core.state.surveys import Survey
from backfill_assets.core.state.tallies import EMPTY, Contents, Tally


def identical(
    spec: TableSpec, lake: Lake[Rows], launch: Launch, made: Receipt, staged: Mapping[str, Tally]
) -> Identical:
    """Return those partitions that are in the table as they would be written; perhaps none.

    | newest receipt             | written since | table's rows | identical |
    |----------------------------|---------------|--------------|-----------|
    | none, or not known         | -             | -            | no        |
    | other source, rows or code | -             | -            | no        |
    | the same                   | by anybody    | -            | no        |
    | the same                   | no            | others       | no        |
    | the same                   | no            | unreadable   | no        |
    | the same                   | no            | the same     | yes       |

    Args:
        made: The receipt that publishing the staged partitions would carry.
        staged: Tally of each of its partitions.
    """
    receipts = launch.may_be_identical
    same = {key: receipts[key] for key in made.partitions.keys() & receipts.keys()}
    same = {key: known for key, known in same.items() if _says_the_same(known, made, key)}
    if not same:
        return Identical((), {}, {}, -1)
    version = lake.version()
    since = lake.receipts_after(max(known.version for known in receipts.values()))
    touched = {key for receipt in since.values() for key in receipt.partitions} | lake.written_by_others(same).keys()
    same = {key: known for key, known in same.items() if key not in touched}
    tallies = {key: staged.get(key, EMPTY) for key in same}
    unchanged = lake.same_as(tallies) if same else frozenset[str]()
    return Identical(
        tuple(spec.grid.partition(key) for key in sorted(unchanged)),
        {key: same[key] for key in unchanged},
        {key: tallies[key] for key in unchanged},
        version,
    )


def is_as_published(
    published: Mapping[str, PublishedPartition],
    audited: Contents,
    partitions: Sequence[Partition],
    surveys: Mapping[str, Survey],
) -> bool:
    """Say whether nothing tells some partitions from what was published of them, before their rows are read.

    Where rows with the same key were resolved, what is read is more than what was published.

    Args:
        audited: Contents that an audit by this very code let through, by key.
    """
    return all(
        key in audited
        and (known := published.get(key)) is not None
        and known.partition.fingerprint == surveys[key].fingerprint
        and not known.partition.superseded_rows
        for key in (partition.key for partition in partitions)
    )


def _says_the_same(known: PublishedPartition, made: Receipt, key: str) -> bool:
    """Say whether a receipt says of a partition what the one that would be written says."""
    return known.partition == made.partitions[key] and known.receipt.how == made.how
