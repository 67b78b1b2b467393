"""`backfill-assets views`: statements by which a catalog knows the tables by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from backfill_assets.commands.project import Project
from backfill_assets.commands.terminal import definitions_option, new_console, one_message_for_an_error

if TYPE_CHECKING:
    from backfill_assets.core.view_sql import Dialect


@click.command()
@click.argument("keys", nargs=-1)
@click.option(
    "--dialect", type=click.Choice(["spark", "duckdb"]), default="spark", show_default=True, help="Of the statements."
)
@definitions_option
def views(keys: tuple[str, ...], *, dialect: Dialect, module: str) -> None:
    """Print statements that make a view of each of the tables KEYS, for a catalog; of all tables if none is named.

    The view `bronze.orders` reads the current version of `bronze/orders`. A table that follows a database has a second
    view, `<table>_from_changes`: the rows that have changed since its feed began, as they are now. If a table does not
    exist yet, a comment says so.

    Run the statements again after each cut-over, when a spec changes, and after `live --new-stream`. DuckDB changes all
    views in one transaction.

    \b
    Examples:
      backfill-assets views > views.sql
      backfill-assets views bronze/customers --dialect duckdb | duckdb views.db
    """
    from backfill_assets.core.view_sql import statements

    with one_message_for_an_error(), Project.load(module, looks=True) as project:
        with new_console(stderr=True).status("Looking at the tables"):
            queries, remarks = queries_of(project, keys, dialect)
        click.echo(statements(queries, dialect, remarks))


def queries_of(project: Project, keys: Sequence[str], dialect: Dialect) -> tuple[dict[str, str], list[str]]:
    """Return the query of each view by its name, `layer/name`, and which tables have none.

    Raises:
        ConfigurationError: There is no such table.
    """
    from backfill_assets.assets.factory import tables_of
    from backfill_assets.core.state.current_versions import names_of
    from backfill_assets.core.view_sql import rows_at, rows_from_changes
    from backfill_assets.live.changes.table import ChangesTable
    from backfill_assets.table.readers import log_of

    session, now = project.lakehouse.session, project.lakehouse.current_table().read()
    _, specs = tables_of(project.definitions)
    wanted = [project.table(key).spec.key for key in keys] or specs
    queries: dict[str, str] = {}
    remarks: list[str] = []
    for name in names_of(sorted(wanted)):
        key = now.key_of(name)
        path = project.lakehouse.table_path(key)
        if log_of(session, path).exists():
            queries[name] = rows_at(path, dialect)
        else:
            remarks.append(f"{name} has no view: no launch has made it yet")
        spec = specs.get(key)
        if spec is None or spec.changes is None:
            continue
        changes = ChangesTable(session, spec, path)
        if reach := changes.reach():
            queries[f"{name}_from_changes"] = rows_from_changes(changes.path, spec, reach.began, dialect)
        else:
            remarks.append(f"{name}_from_changes has no view: its feed has brought nothing yet")
    return queries, remarks
