"""A lakehouse in which some tables lie in a folder of their own, and everything else is read where it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import dagster as dg
from pydantic import PrivateAttr

from backfill_assets.core.history.reasons import ReasonKind
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.runs.recording import failure_in_words
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.run_tags import RANGE_END, RANGE_START

if TYPE_CHECKING:
    from backfill_assets.lake.table import LakeTable


class Rehearsal(Lakehouse):
    """Writes the tables that it is told below its own root, and reads all others, and sources, in another lakehouse."""

    _real: Lakehouse = PrivateAttr()
    _keys: frozenset[str] = PrivateAttr(default=frozenset())

    @classmethod
    def of(cls, real: Lakehouse, root: str, keys: Sequence[str]) -> Self:
        """Return a rehearsal of some tables of a lakehouse, below a root."""
        made = cls(root=root)
        made._real, made._keys, made._spark = real, frozenset(keys), real.spark
        return made

    def table(self, spec: TableSpec, log: Callable[[str], None]) -> LakeTable:
        """Return a table: of its own, or of the lakehouse that it reads."""
        return super().table(spec, log) if spec.key in self._keys else self._real.table(spec, log)

    def checkpoint_path(self, key: str) -> str:
        """Return the folder of a stream's checkpoint in the lakehouse that it reads."""
        return self._real.checkpoint_path(key)

    def landing_path(self, path: str) -> str:
        """Return a source's folder in the lakehouse that it reads."""
        return self._real.landing_path(path)

    def publish(self, definitions: dg.Definitions, spec: TableSpec, first: str, last: str) -> str:
        """Launch a range of a table; return why it failed, or nothing. Dagster's own history hears nothing of it."""
        key = dg.AssetKey.from_user_string(spec.key)
        with_this = dg.Definitions(
            assets=[
                one for one in definitions.assets or [] if isinstance(one, dg.AssetsDefinition) and key in one.keys
            ],
            resources={"lakehouse": dg.ResourceDefinition.hardcoded_resource(self)},
            executor=dg.in_process_executor,
        )
        job = with_this.resolve_implicit_global_asset_job_def().get_subset(asset_selection={key})
        config: dict[str, Any] = {
            "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
            "ops": {key.to_python_identifier(): {"config": {"reason": f"{ReasonKind.HISTORY_MISSING}: rehearsal"}}},
        }
        with dg.DagsterInstance.ephemeral() as instance:
            tags = {RANGE_START: first, RANGE_END: last}
            result = job.execute_in_process(instance=instance, tags=tags, run_config=config, raise_on_error=False)
            if result.success:
                return ""
            return next(filter(None, map(failure_in_words, result.all_events)), "the run failed.")
