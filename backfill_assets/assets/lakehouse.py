"""All tables of a lakehouse together: their definitions, the session they share, and what watches over all of them."""

from __future__ import annotations

import sysconfig
import warnings
from functools import partial
from importlib import import_module
from pathlib import Path

import dagster as dg
from dagster.components.core.component_tree import ComponentTreeException
from dagster_shared.record import replace

from backfill_assets.assets.alerts import alert_definitions
from backfill_assets.assets.checks import partition_checks
from backfill_assets.assets.factory import quiet_previews, tables_of
from backfill_assets.assets.reconciliation import reconciliation_definitions
from backfill_assets.assets.spec_problems import wrong_specs
from backfill_assets.assets.status import status_definitions
from backfill_assets.assets.undo import undo_definitions
from backfill_assets.core.spec.paths import place_of, shared_folders
from backfill_assets.errors import TableSpecError
from backfill_assets.runs.partitions import shared_definitions
from backfill_assets.runs.resources import Lakehouse


def lakehouse_definitions(*tables: dg.Definitions, lakehouse: Lakehouse | None = None) -> dg.Definitions:
    """Join tables to what Dagster loads: adds the session, the executor, and what is about all tables.

    That is the reconciliation of every table, the page with their status, the job that takes launches back, and the
    sensor that tells of alerts. Runs are executed in one process, so that all steps share one JVM.

    Args:
        tables: What `build_lakehouse_table` or `load_tables` returns.
        lakehouse: Where the tables lie; read from the environment if not given.

    Raises:
        TableSpecError: A stream, or a change feed, shares a folder with another stream or with a history.
    """
    # Dagster's own code passes this beta parameter when it joins checks to resources; users' own warnings stay.
    warnings.filterwarnings("ignore", r"Parameter `execution_type` of function `AssetsDefinition", dg.BetaWarning)
    lakehouse = lakehouse or Lakehouse()
    joined = _with_shared_partitions(dg.Definitions.merge(*tables))
    _refuse_shared_folders(joined, lakehouse)
    return dg.Definitions.merge(
        joined,
        reconciliation_definitions(joined, lakehouse),
        undo_definitions(joined, lakehouse),
        alert_definitions(joined, lakehouse),
        status_definitions(joined, lakehouse),
        dg.Definitions(resources={"lakehouse": lakehouse}, executor=dg.in_process_executor),
    )


def _with_shared_partitions(joined: dg.Definitions) -> dg.Definitions:
    """Give the tables of one grain and zone equal partitions definitions, and each table its checks with the same.

    Only here all tables of a project are known, those from YAML and those made in Python.
    """
    tables, specs = tables_of(joined)
    shared = shared_definitions({key: table.spec for key, table in tables.items()})
    by_asset = {table.asset_key: shared[key] for key, table in tables.items()}

    def shares(spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.replace_attributes(partitions_def=by_asset.get(spec.key, spec.partitions_def))

    with quiet_previews():
        of_tables = [partition_checks(table, specs, shared[key]) for key, table in tables.items()]
        mapped = [
            one.map_asset_specs(shares) if isinstance(one, dg.AssetsDefinition) and by_asset.keys() & one.keys else one
            for one in joined.assets or []
        ]
    return replace(joined, assets=mapped, asset_checks=[*(joined.asset_checks or []), *of_tables])


def load_tables(path_within_project: Path) -> dg.Definitions:
    """Load every `defs.yaml` of a project.

    Args:
        path_within_project: A folder of the project, or of its package where that is installed from a wheel.

    Raises:
        TableSpecError: A table is wrong; the message names file, line, field and what would be right for all of them.
    """
    try:
        if not path_within_project.resolve().is_relative_to(sysconfig.get_path("purelib")):
            return dg.load_from_defs_folder(path_within_project=path_within_project)
        defs = import_module(f"{path_within_project.name}.defs")  # an installed package lies in no project
        with warnings.catch_warnings():  # of Dagster's own code about itself, as `load_from_defs_folder` ignores them
            warnings.simplefilter("ignore", dg.BetaWarning)
            warnings.simplefilter("ignore", dg.PreviewWarning)
            return dg.ComponentTree.from_module(defs, project_root=path_within_project.parent).build_defs()
    except ComponentTreeException as error:
        if isinstance(error.__cause__, TableSpecError):  # its message says all: leave out the tree and the stack
            raise error.__cause__.with_traceback(None) from None
        raise


def _refuse_shared_folders(joined: dg.Definitions, lakehouse: Lakehouse) -> None:
    """Compare the folders of all tables once more: now it is known where relative paths lead."""
    tables, specs = tables_of(joined)
    wrong = [
        f"{tables[key].file if key in tables and tables[key].file else key}: {shared.reader.field}: {shared}"
        for shared in shared_folders(specs, partial(place_of, root=lakehouse.root_uri))
        for key in [shared.reader.key]
    ]
    if wrong:
        raise wrong_specs(wrong)
