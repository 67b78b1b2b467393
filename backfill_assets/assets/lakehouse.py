"""All tables of a lakehouse together: their definitions, the session they share, and what watches over all of them."""

from __future__ import annotations

import warnings
from pathlib import Path

import dagster as dg
from dagster.components.core.component_tree import ComponentTreeException

from backfill_assets.assets.alerts import alert_definitions
from backfill_assets.assets.reconciliation import reconciliation_definitions
from backfill_assets.assets.status import status_definitions
from backfill_assets.assets.undo import undo_definitions
from backfill_assets.errors import TableSpecError
from backfill_assets.runs.resources import Lakehouse


def lakehouse_definitions(*tables: dg.Definitions, lakehouse: Lakehouse | None = None) -> dg.Definitions:
    """Join tables to what Dagster loads: adds the session, the executor, and what is about all tables.

    That is the reconciliation of every table, the page with their status, the job that takes launches back, and the
    sensor that tells of alerts. Runs are executed in one process, so that all steps share one JVM.

    Args:
        tables: What `build_lakehouse_table` or `load_tables` returns.
        lakehouse: Where the tables lie; read from the environment if not given.
    """
    # Dagster's own code passes this beta parameter when it joins checks to resources; users' own warnings stay.
    warnings.filterwarnings("ignore", r"Parameter `execution_type` of function `AssetsDefinition", dg.BetaWarning)
    joined = dg.Definitions.merge(*tables)
    return dg.Definitions.merge(
        joined,
        reconciliation_definitions(joined),
        undo_definitions(joined),
        alert_definitions(joined),
        status_definitions(joined),
        dg.Definitions(resources={"lakehouse": lakehouse or Lakehouse()}, executor=dg.in_process_executor),
    )


def load_tables(path_within_project: Path) -> dg.Definitions:
    """Load every `defs.yaml` of a project.

    Raises:
        TableSpecError: A table is wrong; the message names file, line, field and what would be right for all of them.
    """
    try:
        return dg.load_from_defs_folder(path_within_project=path_within_project)
    except ComponentTreeException as error:
        if isinstance(error.__cause__, TableSpecError):  # its message says all: leave out the tree and the stack
            raise error.__cause__.with_traceback(None) from None
        raise
