"""The steps of a new version in a folder that is thrown away, with a sample."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_assets.commands.version.chosen import ChosenVersion
from backfill_assets.core.spec.history import history_of
from backfill_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from backfill_assets.core.calendar.partitions import Partition
    from backfill_assets.core.history.version_comparison import VersionComparison
    from backfill_assets.runs.rehearsal import Rehearsal


def rehearsed(
    chosen: ChosenVersion, into: Path, *, last: int, keep: bool, log: Callable[[str], None]
) -> tuple[list[VersionComparison], list[str]]:
    """Make, copy and compare new versions in a folder, which is removed afterwards unless it is kept.

    Sources and present tables are read where they are. No boundary is waited for.

    Args:
        last: Number of the newest partitions of history.

    Returns:
        The comparisons; and what could not be published, in words.
    """
    _make_folder(into)
    try:
        return _rehearse(chosen, into, last, log=log)
    finally:
        if not keep:
            shutil.rmtree(into, ignore_errors=True)


def _make_folder(into: Path) -> None:
    """Make the folder that is removed at the end; one that is there is somebody else's, and is left as it is.

    Raises:
        ConfigurationError: It is there already.
    """
    try:
        into.mkdir(parents=True)
    except FileExistsError as error:
        raise ConfigurationError(
            f"`{into}` is there already.",
            state="Nothing was rehearsed, and nothing was written.",
            remedy="Name a folder that is not: it is removed at the end.",
        ) from error


def _rehearse(
    chosen: ChosenVersion, into: Path, last: int, *, log: Callable[[str], None]
) -> tuple[list[VersionComparison], list[str]]:
    """Publish partitions of new versions below a folder, and compare them; return what came of it, and failures."""
    from backfill_assets.core.calendar.windows import Window
    from backfill_assets.core.history.downstream import window_read
    from backfill_assets.runs.rehearsal import Rehearsal

    rehearsal = Rehearsal.of(chosen.project.lakehouse, str(into.absolute()), [pair.new for pair in chosen.pairs])
    found: list[VersionComparison] = []
    problems: list[str] = []
    sample: list[Partition] = []
    made: dict[str, Window] = {}
    for pair in chosen.pairs:
        spec = chosen.specs[pair.new]
        complete = _complete(chosen, rehearsal, pair.new, log)
        if not sample:
            sample = complete[-last:]
            wanted = sample
        else:
            start, end = sample[0].window.start_utc, sample[-1].window.end_utc
            wanted = [
                p
                for p in complete
                if start <= p.window.start_utc
                and p.window.end_utc <= end
                and all(
                    max(read.start_utc, history_of(chosen.specs[key]).start_utc) >= made[key].start_utc
                    and read.end_utc <= made[key].end_utc
                    for key, read in ((one.table, window_read(spec, p, one)) for one in spec.inputs)
                    if key in made
                )
            ]
        if not wanted:
            problems.append(f"`{pair.new}`: no partition lies within the sample; rehearse more, with `--last`.")
            continue
        log(f"{pair.new}: {len(wanted):,} partitions, {wanted[0].key}...{wanted[-1].key}")
        if failure := rehearsal.publish(chosen.project.definitions, spec, wanted[0].key, wanted[-1].key):
            problems.append(f"`{pair.new}`: {failure}")
            break
        made[pair.new] = Window(wanted[0].window.start_utc, wanted[-1].window.end_utc)
        found.append(_compared(chosen, rehearsal, (pair.before, pair.new), wanted, log))
    return found, problems


def _complete(chosen: ChosenVersion, rehearsal: Rehearsal, key: str, log: Callable[[str], None]) -> list[Partition]:
    from backfill_assets.core.state.fence import first_fence, is_history

    spec, table = chosen.specs[key], chosen.table(key)
    transform = table.table.transform() if table.table.transform else None
    until = rehearsal.source(spec, chosen.specs, transform, log).complete_until()
    fence, now = first_fence(spec), datetime.now(UTC)
    partitions = history_of(spec).until(min(until, now)) if until else []
    return [p for p in partitions if p.window.end_utc <= min(until or now, now) and (not fence or is_history(p, fence))]


def _compared(
    chosen: ChosenVersion,
    rehearsal: Rehearsal,
    keys: tuple[str, str],
    partitions: Sequence[Partition],
    log: Callable[[str], None],
) -> VersionComparison:
    from backfill_assets.core.calendar.windows import Window
    from backfill_assets.lake.version_comparison import compare_versions

    window = Window(partitions[0].window.start_utc, partitions[-1].window.end_utc)
    before = chosen.lake(keys[0], log)
    return compare_versions(before, rehearsal.table(chosen.specs[keys[1]], log), window=window)
