"""What is left beside a table when a launch or an undo ends: what was not published, and the copy of the receipts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.plan import Launch
from backfill_assets.core.state.attempts import Attempt, Outcome, refusals
from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.errors import BackfillAssetsError
from backfill_assets.runs.launch_report import LaunchReport

if TYPE_CHECKING:
    from backfill_assets.lake.table import LakeTable


NOT_FILLED = "The history of the table could not be filled; the next launch does it."


def fill_copy(delta: LakeTable, warn: Callable[[str], None]) -> None:
    """Fill the history of a table; if that cannot be done now, whatever was done is done without it."""
    from backfill_assets.spark.failures import SPARK_FAILURES, first_words

    try:
        delta.history.fill()
    except (*SPARK_FAILURES, BackfillAssetsError, OSError) as error:
        warn(f"{NOT_FILLED} {first_words(error)}")


def newest_refusals(
    delta: LakeTable,
    partitions: Iterable[Partition],
    published: Mapping[str, PublishedPartition],
    differing: Collection[str],
) -> Mapping[str, str]:
    """Return when and why launches have refused partitions last, in words, by key.

    Nothing is read if all of them are published and none differs from its source.
    """
    if not differing and all(partition.key in published for partition in partitions):
        return {}
    return refusals(delta.history.attempts(), published)


def attempts_of(request: Launch, report: LaunchReport, error: BaseException | None, version: int) -> Iterator[Attempt]:
    """Yield which partitions were refused, and that the launch stopped or failed, if it did.

    Args:
        error: What ended the launch, if anything did.
        version: Newest version of the table.
    """
    now = datetime.now(UTC).isoformat(timespec="milliseconds")

    def attempt(outcome: Outcome, why: str = "", partitions: dict[str, str] | None = None) -> Attempt:
        return Attempt(now, outcome, version, request.run, why=why, partitions=partitions or {})

    if report.refused:
        whys = {v.partition.key: " ".join(str(finding) for finding in v.findings) for v in report.refused}
        yield attempt("refused", partitions=whys)
    if isinstance(error, dg.DagsterExecutionInterruptedError):
        yield attempt("stopped", "It was terminated: by a person, or by a limit of time.")
    elif error is not None:
        yield attempt("failed", error.what if isinstance(error, BackfillAssetsError) else type(error).__name__)
