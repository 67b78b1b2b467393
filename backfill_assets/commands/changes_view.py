"""`backfill-assets changes-view`: statements by which a catalog reads a feed's raw changes as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from backfill_assets.commands.project import Project
from backfill_assets.commands.terminal import definitions_option, new_console, one_message_for_an_error
from backfill_assets.errors import ConfigurationError, FeedBehindError

if TYPE_CHECKING:
    from backfill_assets.core.view_sql import Dialect


@click.command("changes-view")
@click.argument("key")
@click.option(
    "--dialect", type=click.Choice(["spark", "duckdb"]), default="spark", show_default=True, help="Of the statements."
)
@definitions_option
def changes_view(key: str, *, dialect: Dialect, module: str) -> None:
    """Print statements that make a view of the rows that the change feed of KEY has brought, as they are now.

    For those who read `<table>_changes`, and not the table: each row that has changed since the feed began, once, with
    the types of the spec; none that was deleted, or emptied away. The view is called like the table, with
    `_from_changes` behind. Run the statements again when the spec changes, and after `--new-stream`.

    \b
    Examples:
      backfill-assets changes-view bronze/customers | spark-sql
      backfill-assets changes-view bronze/customers --dialect duckdb | duckdb views.db
    """
    from backfill_assets.core.view_sql import view_of_changes
    from backfill_assets.live.changes.table import ChangesTable

    with one_message_for_an_error(), Project.load(module, looks=True) as project:
        chosen = project.table(key)
        feed = chosen.spec.changes
        if feed is None:
            raise ConfigurationError(
                f"`{key}` has no `changes` in its spec.", state="Nothing was read.", remedy="Name a table that has."
            )
        changes = ChangesTable(chosen.lakehouse.session, chosen.spec, chosen.lakehouse.table_path(key))
        with new_console(stderr=True).status("Looking at where the feed begins"):
            reach = changes.reach()
        if reach is None:
            raise FeedBehindError(
                f"`{key}`: its feed has brought nothing yet.",
                state="Nothing was written.",
                remedy=f"Start `backfill-assets capture {feed.capture}` and `backfill-assets live {key}`.",
            )
        click.echo(view_of_changes(f"{key}_from_changes", changes.path, chosen.spec, reach.began, dialect))
