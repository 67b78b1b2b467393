"""`backfill-assets version views`: statements by which a catalog knows the current versions by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from backfill_assets.commands.project import Project
from backfill_assets.commands.terminal import definitions_option, new_console, one_message_for_an_error

if TYPE_CHECKING:
    from backfill_assets.core.state.current_versions import CurrentVersions
    from backfill_assets.core.view_sql import Dialect


@click.command()
@click.option(
    "--dialect", type=click.Choice(["spark", "duckdb"]), default="spark", show_default=True, help="Of the statements."
)
@definitions_option
def views(*, dialect: Dialect, module: str) -> None:
    """Print statements that make a view of each table's current version; run them again after each cut-over.

    A table that was never made is left out, with a comment that says so. The views of one generation belong together:
    of DuckDB's all change in one transaction. `_current` below the root is a Delta table that says the same to any
    reader.

    \b
    Examples:
      backfill-assets version views | spark-sql
      backfill-assets version views --dialect duckdb | duckdb views.db
    """
    from backfill_assets.assets.factory import tables_of
    from backfill_assets.core.view_sql import views_of_versions
    from backfill_assets.table.readers import log_of

    with one_message_for_an_error(), Project.load(module, looks=True) as project:
        with new_console(stderr=True).status("Looking at what is current"):
            now = project.lakehouse.current_table().read()
        tables = tables_of(project.definitions)[0]
        paths: dict[str, str] = {}
        missing: list[str] = []
        for name, key in current_keys(sorted(tables), now).items():
            path = project.lakehouse.table_path(key)
            if not log_of(project.lakehouse.session, path).exists():
                missing.append(name)
            else:
                paths[name] = path
        click.echo(views_of_versions(paths, dialect, missing=missing))


def current_keys(keys: list[str], now: CurrentVersions) -> dict[str, str]:
    """Return the key of the current version of every table, by its name."""
    from backfill_assets.core.state.current_versions import names_of

    return {name: now.key_of(name) for name in names_of(keys)}
