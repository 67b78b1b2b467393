"""A table's spec, turned into a partitioned asset and its check."""

import contextlib
import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from backfill_assets.assets import checks, live, once
from backfill_assets.runs import launch as launches
from backfill_assets.assets.catch_up import catch_up_schedule
from backfill_assets.runs.partitions import partition_mapping, partitions_definition
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.core.spec.files import DeltaSource
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.calendar.windows import Grain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Only(Enum):
    """Which of the partitions that a launch names it writes."""

    ALL = "all"
    MISSING = "missing"


class LaunchConfig(dg.Config):
    """What can be set for one launch, in the dialog's Config section or with `--config`."""

    only: Only = Field(
        default=Only.ALL,
        description="`ALL` writes every partition that the launch names. `MISSING` leaves out those whose receipt names the "
        "source's content, and the code, as they are now.",
    )
    max_partitions_per_chunk: int | None = Field(
        default=None, ge=1, le=2000, description="Partitions in one commit; the spec's `chunk.max_partitions` if not given."
    )
    discard_uncovered_rows: bool = Field(
        default=False,
        description="Whether rows may go that a live stream wrote and the source lacks. Otherwise their partition is refused.",
    )
    may_find_nothing: bool = Field(
        default=False,
        description="Whether the launch may end well without writing, because its source is complete for none of its partitions, or "
        "all of them are live. Otherwise it fails. For schedules.",
    )
    reason: str = Field(default="", description="Why this launch; it is kept in every commit's receipt.")


@dataclass(frozen=True)
class Table:
    """A table's spec with what only code can say of it.

    Args:
        transform: Returns the function that makes the rows from the input tables' frames; called when a launch needs it.
        transform_source: Text of that function's module: a change of it makes published partitions stale.
        file: The YAML that it was read from; empty if it was made in Python.
    """

    spec: TableSpec
    transform: "Callable[[], Callable[..., DataFrame]] | None" = None
    transform_source: str = field(default="", repr=False)
    file: str = field(default="", repr=False)

    @property
    def asset_key(self) -> dg.AssetKey:
        return dg.AssetKey(self.spec.key.split("/"))

    @property
    def code_version(self) -> str:
        """A short hash of all that decides the rows: columns, key, grain, source and transform."""
        deciding = self.spec.model_dump_json(
            include={"columns", "key_columns", "event_time", "grain", "time_zone", "partition_column", "latest_wins_by", "source"},
            exclude={"columns": {"__all__": {"description"}}},
        )
        return hashlib.sha256(f"{deciding}{self.transform_source}".encode()).hexdigest()[:8]


def build_lakehouse_table(
    spec: TableSpec,
    transform: "Callable[..., DataFrame] | None" = None,
    *,
    inputs: Mapping[str, TableSpec] | None = None,
) -> dg.Definitions:
    """Return the asset and the check of one table, the same as a `defs.yaml` gives.

    Args:
        spec: The table.
        transform: For a table made of others: takes one DataFrame for each of `spec.source.tables`, returns the rows.
        inputs: Specs of the tables that it is made of, by key.

    Example:
        >>> spec = TableSpec(key="bronze/visits", ...)
        >>> defs = lakehouse_definitions(build_lakehouse_table(spec))
    """
    table = Table(spec, None if transform is None else lambda: transform, _source_of(transform))
    return definitions_of(table, {**(inputs or {}), spec.key: spec})


def definitions_of(table: Table, specs: Mapping[str, TableSpec]) -> dg.Definitions:
    """Return the asset and the checks of one table.

    Args:
        specs: All tables of the lakehouse, by key.
    """
    with quiet_previews():
        spec = table.spec
        launch_job = dg.define_asset_job(f"launch_{spec.key.replace('/', '_')}", selection=dg.AssetSelection.assets(table.asset_key))
        of_table = dg.Definitions(
            assets=[_asset(table, specs)],
            asset_checks=[checks.partition_checks(table, specs)],
            jobs=[checks.reconcile_job(table), *([launch_job] if spec.live or spec.catch_up else [])],
            schedules=[catch_up_schedule(table, spec.catch_up, launch_job)] if spec.catch_up else [],
        )
        flows = once.once_definitions(table, specs)
        if spec.live is None:
            return dg.Definitions.merge(of_table, flows)
        return dg.Definitions.merge(of_table, flows, live.live_definitions(table, spec.live, launch_job))


def _asset(table: Table, specs: Mapping[str, TableSpec]) -> dg.AssetsDefinition:
    spec = table.spec
    inputs = spec.source.tables if isinstance(spec.source, DeltaSource) else []

    @dg.asset(
        key=table.asset_key,
        description=_description(spec),
        partitions_def=partitions_definition(spec),
        deps=[dg.AssetDep(dg.AssetKey(i.table.split("/")), partition_mapping=partition_mapping(i)) for i in inputs],
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=spec.layer,
        kinds={"deltalake", "spark"},
        owners=spec.owners,
        tags=spec.tags,
        code_version=table.code_version,
        metadata=_definition_metadata(spec),
    )
    def overwrite_partitions(context: dg.AssetExecutionContext, config: LaunchConfig, lakehouse: Lakehouse) -> dg.MaterializeResult[Any]:
        return launches.run(context, table, specs, lakehouse, config)

    _remember(overwrite_partitions, table, specs)
    return overwrite_partitions


def _remember(asset: dg.AssetsDefinition, table: Table, specs: Mapping[str, TableSpec]) -> None:
    """Let `tables_of` find the table again in definitions that were merged; Dagster keeps the function as it is."""
    compute: Any = asset.node_def.compute_fn  # type: ignore[union-attr]
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
    source = spec.source
    made = f"files below `{source.path}`" if not isinstance(source, DeltaSource) else ", ".join(f"`{i.table}`" for i in source.tables)
    key = ", ".join(f"`{name}`" for name in spec.key_columns) or "none"
    clock = "hours" if spec.grain is Grain.HOURLY else "days"
    return (
        f"{spec.description}\n\n| | |\n|---|---|\n| history from | {made} |\n| partition | {spec.grain} by `{spec.event_time}`, "
        f"{clock} of {spec.time_zone} |\n| key | {key} |\n| chunk | at most {spec.max_partitions_per_chunk} partitions a commit |\n"
    )


def _source_of(function: Callable[..., Any] | None) -> str:
    """Return the text of a function; empty if it has none."""
    if function is None:
        return ""
    import inspect

    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""


@contextlib.contextmanager
def quiet_previews() -> Iterator[None]:
    """Say nothing of the two Dagster features that this project uses on purpose and tests: users' own warnings stay."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Parameter `backfill_policy`", dg.BetaWarning)
        warnings.filterwarnings("ignore", r"Specifying a partitions_def on an AssetCheckSpec", dg.PreviewWarning)
        yield
