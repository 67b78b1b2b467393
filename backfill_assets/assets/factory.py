"""A table's spec, turned into a partitioned asset and its check."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg

from backfill_assets.assets import checks, live, once
from backfill_assets.assets.catch_up import catch_up_schedule, refuse_wrong_crons
from backfill_assets.assets.feed import feed_definitions
from backfill_assets.assets.follow import follow_sensor
from backfill_assets.core.calendar.windows import Grain
from backfill_assets.core.spec.source_spec import Input
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.runs import launch as launches
from backfill_assets.runs.launch_config import LaunchConfig
from backfill_assets.runs.partitions import partition_mapping, partitions_definition
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.run_tags import LAUNCHES, launch_job_name
from backfill_assets.runs.table import Table
from backfill_assets.runs.transform_code import code_of_function

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build_lakehouse_table(
    spec: TableSpec,
    transform: "Callable[..., DataFrame] | None" = None,
    *,
    inputs: Mapping[str, TableSpec] | None = None,
) -> dg.Definitions:
    """Return the asset of one table, the same as a `defs.yaml` gives; `lakehouse_definitions` adds its checks.

    Args:
        spec: The table.
        transform: For a table made of others: takes one DataFrame for each of `spec.source.tables`, returns the rows.
        inputs: Specs of the tables that it is made of, by key.

    Example:
        >>> spec = TableSpec(key="bronze/visits", ...)
        >>> defs = lakehouse_definitions(build_lakehouse_table(spec))
    """
    code = "" if spec.source.sets_code_version else code_of_function(transform, spec.source.modules_of_code)
    table = Table(spec, None if transform is None else lambda: transform, code)
    return definitions_of(table, {**(inputs or {}), spec.key: spec})


def definitions_of(table: Table, specs: Mapping[str, TableSpec]) -> dg.Definitions:
    """Return the asset of one table, its jobs, schedules and sensors.

    Args:
        specs: All tables of the lakehouse, by key.

    Raises:
        TableSpecError: A cron schedule of the table is none.
    """
    with quiet_previews():
        spec = table.spec
        refuse_wrong_crons(spec)
        launch_job = dg.define_asset_job(launch_job_name(spec), selection=dg.AssetSelection.assets(table.asset_key))
        of_table = dg.Definitions(
            assets=[_asset(table, specs)],
            jobs=[checks.reconcile_job(table), *([launch_job] if spec.live or spec.catch_up or spec.follow else [])],
            schedules=[catch_up_schedule(table, spec.catch_up, launch_job)] if spec.catch_up else [],
            sensors=[follow_sensor(table, specs, launch_job)] if spec.follow else [],
        )
        flows = once.once_definitions(table, specs)
        stream = (
            live.live_definitions(table, spec.live, launch_job, specs)
            if spec.live
            else feed_definitions(table, spec.changes)
            if spec.changes
            else dg.Definitions()
        )
        return dg.Definitions.merge(of_table, flows, stream)


def _asset(table: Table, specs: Mapping[str, TableSpec]) -> dg.AssetsDefinition:
    spec = table.spec

    @dg.asset(
        key=table.asset_key,
        description=_description(spec),
        partitions_def=partitions_definition(spec),
        deps=[_dependence(spec, source, specs) for source in spec.inputs],
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=LAUNCHES,
        group_name=spec.layer,
        kinds={"deltalake", "spark"},
        owners=spec.owners,
        tags=spec.tags,
        code_version=table.code_version,
        metadata=_definition_metadata(spec),
    )
    def overwrite_partitions(
        context: dg.AssetExecutionContext, config: LaunchConfig, lakehouse: Lakehouse
    ) -> dg.MaterializeResult[Any]:
        return launches.run(context, table, specs, lakehouse, config)

    _remember(overwrite_partitions, table, specs)
    return overwrite_partitions


def _dependence(spec: TableSpec, source: Input, specs: Mapping[str, TableSpec]) -> dg.AssetDep:
    same_zone = source.table not in specs or specs[source.table].time_zone == spec.time_zone
    return dg.AssetDep(
        dg.AssetKey.from_user_string(source.table), partition_mapping=partition_mapping(source, same_zone=same_zone)
    )


def _remember(asset: dg.AssetsDefinition, table: Table, specs: Mapping[str, TableSpec]) -> None:
    """Let `tables_of` find the table again in definitions that were merged; Dagster keeps the function as it is."""
    compute: Any = asset.node_def.compute_fn  # type: ignore[union-attr] (an op, not a graph)
    compute.decorated_fn.made_of = (table, specs)


def tables_of(definitions: dg.Definitions) -> tuple[dict[str, Table], dict[str, TableSpec]]:
    """Return the tables among definitions, and the specs of all that they may be made of, by key."""
    tables: dict[str, Table] = {}
    specs: dict[str, TableSpec] = {}
    for asset in definitions.assets or []:
        compute = getattr(asset.node_def, "compute_fn", None) if isinstance(asset, dg.AssetsDefinition) else None
        made = getattr(getattr(compute, "decorated_fn", None), "made_of", None)
        if made is not None:
            table, known = made
            tables[table.spec.key] = table
            specs.update(known)
    return tables, specs


def _definition_metadata(spec: TableSpec) -> dict[str, Any]:
    columns = [
        dg.TableColumn(
            name,
            column.type,
            column.description or None,
            dg.TableColumnConstraints(nullable=name not in spec.required_columns, unique=spec.key_columns == [name]),
        )
        for name, column in spec.columns.items()
    ]
    hourly = spec.grain is Grain.HOURLY
    partition = dg.TableColumn(
        spec.partition_column,
        *(("string", "Partition: the hour in UTC.") if hourly else ("date", "Partition: first local day.")),
        dg.TableColumnConstraints(nullable=False),
    )
    return {
        "dagster/column_schema": dg.TableSchema(columns=[*columns, partition]),
        "dagster/table_name": spec.key.replace("/", "."),
    }


def _description(spec: TableSpec) -> str:
    key = ", ".join(f"`{name}`" for name in spec.key_columns) or "none"
    version = f"- Version of: `{spec.version_of.table}`\n" if spec.version_of else ""
    clock = "hours" if spec.grain is Grain.HOURLY else "days"
    first = spec.description or f"{str(spec.grain).capitalize()} partitions by `{spec.event_time}`."
    # The list of assets shows the text as it is, in one line: a list can be read there, and a table cannot.
    return (
        f"{first}\n\n- History: {spec.source.description}\n"
        f"- Partition: {spec.grain} by `{spec.event_time}`, {clock} of {spec.time_zone}\n- Key: {key}\n"
        f"- Chunk: at most {spec.max_partitions_per_chunk:,} partitions in one commit\n"
        f"{version}"
    )


@contextlib.contextmanager
def quiet_previews() -> Iterator[None]:
    """Say nothing of the Dagster features that this project uses on purpose and tests: users' own warnings stay."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Parameter `backfill_policy`", dg.BetaWarning)
        warnings.filterwarnings("ignore", r"Parameter `allow_nonexistent_upstream_partitions`", dg.BetaWarning)
        warnings.filterwarnings("ignore", r"Specifying a partitions_def on an AssetCheckSpec", dg.PreviewWarning)
        yield
