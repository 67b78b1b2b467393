"""What `backfill-assets live --acknowledge` does: note that somebody dealt with files that changed after landing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from backfill_assets.commands.fence import with_stream
from backfill_assets.commands.project import Project
from backfill_assets.errors import ConfigurationError


def acknowledge_files(
    project: Project, key: str, paths: Sequence[str], *, checkpoint: str | None, log: Callable[[str], None]
) -> None:
    """Note that somebody has dealt with files as they are now; the check shows who and when.

    Raises:
        ConfigurationError: There is no such table, it has no live stream, or a file has not changed. Nothing is noted.
    """
    from backfill_assets.live.changed_files import acknowledge, changed_since_listed, named
    from backfill_assets.runs.run_tags import launched_by

    chosen, stream = with_stream(project.table(key))
    table, folder = chosen.lakehouse.live_table(chosen.spec, log), chosen.lakehouse.landing_path(stream.path)
    at, fence = checkpoint or chosen.lakehouse.checkpoint_path(key), table.fence()
    spark = chosen.lakehouse.session
    found = changed_since_listed(spark, at, fence.stream, folder) if fence and fence.stream else None
    changed = {file.path: file for file in found[0]} if found else {}
    wanted = [named(path) for path in paths]
    if unknown := [path for path in wanted if path not in changed]:
        there = ", ".join(f"`{path}`" for path in list(changed)[:5])
        raise ConfigurationError(
            f"`{unknown[0]}` has not changed since the stream of `{key}` listed it.",
            state="Nothing was noted.",
            remedy=f"Changed are: {there}." if there else "There is nothing to acknowledge.",
        )
    said = f"as {launched_by({})} said at {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    acknowledge(spark, at, [changed[path] for path in wanted], said)
