"""The files of a new Dagster project with tables of this package: what `init --project` writes."""

from __future__ import annotations

import re
from pathlib import Path

from backfill_assets.errors import ConfigurationError

FILES = {
    "pyproject.toml": """\
[project]
name = "{name}"
version = "0.1.0"
dependencies = ["backfill-assets"]

[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[tool.setuptools.packages.find]
include = ["{name}*"]

[tool.setuptools.package-data]
{name} = ["**/*.yaml"]

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "{name}"
code_location_target_module = "{name}.definitions"
code_location_name = "{name}.definitions"  # the name that `dagster dev` gives it
""",
    "{name}/__init__.py": "",
    "{name}/definitions.py": """\
from pathlib import Path

import dagster as dg

from backfill_assets import Lakehouse, lakehouse_definitions, load_tables


@dg.definitions
def defs() -> dg.Definitions:
    return lakehouse_definitions(load_tables(Path(__file__).parent), lakehouse=Lakehouse())
""",
    "{name}/defs/__init__.py": "",
    ".env": """\
# Read by `dg`, `dagster` and `backfill-assets` in this folder. A variable of the environment wins.
DAGSTER_HOME="${{DAGSTER_HOME:-{folder}/.dagster}}"
LAKEHOUSE_ROOT="${{LAKEHOUSE_ROOT:-{folder}/.lakehouse}}"
""",
    ".dagster/dagster.yaml": """\
# Dagster's defaults work too. These make the events of a long range some twenty times faster,
event_log_storage:
  module: backfill_assets.assets.event_log
  class: BatchingSqliteEventLogStorage
  config: {{}}
# let one launch run at a time (each has a JVM),
concurrency:
  pools:
    granularity: run
    default_limit: 1
# and find runs that were killed.
run_monitoring:
  enabled: true
  free_slots_after_run_end_seconds: 60
""",
    ".gitignore": """\
.env
.dagster/
.lakehouse/
""",
}
"""Text by path. `{name}` is the project's name, and `{folder}` its absolute folder."""


def write_project(name: str, parent: Path) -> Path:
    """Write the files of a new project, and return its folder.

    Args:
        name: Of the project and of its package.
        parent: The folder in which its folder is made.

    Raises:
        ConfigurationError: It is no name of a Python package, or there is such a folder, or it cannot be written.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ConfigurationError(
            f"`{name}` is not the name of a Python package.",
            state="Nothing was written.",
            remedy="Use small letters, digits and `_`, a letter first: for example `shop`.",
        )
    folder = parent.resolve() / name
    try:
        folder.mkdir(parents=True)
        for path, text in FILES.items():
            file = folder / path.format(name=name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.format(name=name, folder=folder), encoding="utf-8")
    except FileExistsError as error:
        raise ConfigurationError(
            f"`{folder}` exists already.",
            state="It was left as it is.",
            remedy="Choose another name. `backfill-assets init KEY --from PATH`, run in a project, adds a table.",
        ) from error
    except OSError as error:
        raise ConfigurationError(
            f"`{folder}` cannot be written: {error.strerror}.",
            state="The project is not complete.",
            remedy="Delete the folder, and run the command where you may write.",
        ) from error
    return folder
