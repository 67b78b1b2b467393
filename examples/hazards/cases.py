"""Run every hazard in one Spark process; print a line of JSON for each case as it ends."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from backfill_assets.errors import BackfillAssetsError
from backfill_assets.spark import session
from backfill_assets.spark.settings import settings_from_environment
from examples.hazards import boundary, overwhelmed, retry, two_writers
from examples.hazards.scene import Case
from examples.hazards.shop import Shop

CORES = 2
"""What Spark may use here, whatever the machine has: it is also the most readers that a source gets."""


def main(root: Path, seed: int) -> int:
    """Run the hazards one by one."""
    try:
        spark = _session(root)
        shop = Shop.of(seed)
        hazards: dict[str, Callable[[Path], Iterator[Case]]] = {
            "collision": lambda folder: two_writers.run(spark, folder, shop),
            "retry": lambda folder: retry.run(spark, folder, shop),
            "overwhelmed": lambda folder: overwhelmed.run(spark, folder, seed),
            "boundary": lambda folder: boundary.run(spark, folder, shop),
        }
        for hazard, run in hazards.items():
            for case in run(root / hazard):
                _tell(hazard=hazard, case=case.name, wrong=case.wrong.to_dict(), facts=case.facts)
    except BackfillAssetsError as error:
        _tell(error=[error.what, error.state, error.remedy])
        return 2
    spark.stop()
    return 0


def _session(root: Path) -> SparkSession:
    """Start a session as this project's launches have it, on this machine."""
    asked = settings_from_environment(os.environ)
    warehouse = {"spark.sql.warehouse.dir": str(root / "warehouse")}
    config = session.classic_config(
        replace(asked, master=f"local[{CORES}]", remote=None, extra={**warehouse, **asked.extra})
    )
    return session.start_session(config)


def _tell(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
