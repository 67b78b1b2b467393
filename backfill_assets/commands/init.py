"""`backfill-assets init`: a new project; or a first `defs.yaml` from a look at a few files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from backfill_assets.commands.new_project import write_project
from backfill_assets.commands.project import Project
from backfill_assets.commands.terminal import definitions_option, new_console, one_message_for_an_error, project_here
from backfill_assets.core.calendar.windows import Grain
from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError

if TYPE_CHECKING:
    from backfill_assets.core.spec.table import TableSpec
    from backfill_assets.runs.resources import Lakehouse


@click.command()
@click.argument("key", required=False)
@click.option("--project", "name", metavar="NAME", help="Write a new Dagster project into the folder NAME.")
@click.option(
    "--from",
    "source",
    metavar="PATH",
    help="Folder of the files, below `landing/`; or an absolute path or URI.",
)
@click.option(
    "--grain",
    type=click.Choice([grain.value for grain in Grain]),
    help="How long one partition is. Default: as the paths are; daily where they name no time.",
)
@click.option(
    "--output",
    metavar="FILE",
    help="Where to write it; `-` prints it. Default: `<defs folder of the project>/KEY/defs.yaml`.",
)
@definitions_option
def init(
    key: str | None, *, name: str | None, source: str | None, grain: str | None, output: str | None, module: str
) -> None:
    """Write a new project, or a first `defs.yaml` for the table KEY from a look at a few files of its source.

    Files are Parquet, JSON lines or CSV, below folders or with names that say an hour, a day, a month or a year; or
    nothing (then every file is read once, for the first and the last day).

    Each guess is marked with a comment on its line. Read them before the first launch.

    \b
    Examples:
      backfill-assets init --project shop
      backfill-assets init bronze/orders --from orders
      backfill-assets init bronze/orders --from orders --grain monthly
      backfill-assets init bronze/orders --from s3a://bucket/export/orders --output -
    """
    if name and (key or source or grain or output):
        raise click.UsageError("`--project` writes a whole project: give it alone.")
    with one_message_for_an_error():
        console = new_console(stderr=True)
        if name:
            written = write_project(name, Path.cwd())
            console.print(_next_steps(written), highlight=False, markup=False, soft_wrap=True)
            return
        if not key or not source:
            raise click.UsageError("Give the key of a table and `--from PATH`, or `--project NAME`.")
        path = None if output == "-" else place_for(key, output)
        check_key(key)
        with Project.load(module) as project, console.status(f"Looking at {source}"):
            text = first_spec(project.lakehouse, key, source, grain)
        if path is None:
            click.echo(text, nl=False)
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(
                f"`{path}` cannot be written: {error.strerror}.",
                state=NOTHING_WRITTEN,
                remedy="Name another file with `--output`.",
            ) from error
        console.print(
            f"{path} is written. Read it, correct what was guessed, and run `dg check defs`.",
            highlight=False,
            soft_wrap=True,
        )


def _next_steps(folder: Path) -> str:
    return f"""{folder} is written. Next:

  cd {folder.name}
  pip install --editable .
  mkdir -p .lakehouse/landing/visits/2024/01/01   # put files there, by day
  backfill-assets init bronze/visits --from visits
  dg check defs
  dg launch --assets 'key:"bronze/visits"' --partition-range 2024-01-01...2024-01-01"""


def check_key(key: str) -> None:
    """Raise an error for a key that no table can have.

    Raises:
        ConfigurationError: It is none.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*/[a-z][a-z0-9_]*", key):
        raise ConfigurationError(
            f"`{key}` is not a key of a table.",
            state=NOTHING_WRITTEN,
            remedy="A key is `layer/name`, both of small letters, digits and `_`: for example `bronze/orders`.",
        )


def place_for(key: str, output: str | None) -> Path:
    """Return where the first `defs.yaml` of a table belongs.

    Raises:
        ConfigurationError: There is a file already, or no project around the working directory.
    """
    path = Path(output) if output else _defs_folder() / key / "defs.yaml"
    if path.exists():
        raise ConfigurationError(
            f"`{path}` exists already.",
            state="It was left as it is.",
            remedy=f"`backfill-assets schema {key}` proposes changes of it; `--output` names another file.",
        )
    return path


def _defs_folder() -> Path:
    """Return the folder of the project's definitions, as `[tool.dg.project]` says."""
    if found := project_here():
        folder, told = found
        below = (told.get("defs_module") or f"{told['root_module']}.defs").replace(".", "/")
        return next((place for place in (folder / below, folder / "src" / below) if place.is_dir()), folder / below)
    raise ConfigurationError(
        "There is no Dagster project here: no `pyproject.toml` with `[tool.dg.project]` in this folder or above it.",
        state=NOTHING_WRITTEN,
        remedy="Run it inside the project, or name a file with `--output`.",
    )


def first_spec(lakehouse: Lakehouse, key: str, path: str, grain: str | None = None) -> str:
    """Return the YAML of a table made of the files below a folder.

    Args:
        grain: None: as the files' paths are.

    Raises:
        SourceMissingError: There is no such folder.
        ConfigurationError: The files do not make a table.
    """
    from backfill_assets.commands.first_draft import draft
    from backfill_assets.core.calendar.layouts import FLAT
    from backfill_assets.core.spec.files import FilesSpec
    from backfill_assets.sources.files.sample import days_of, sample_of

    root, written = _root_of(lakehouse, path)
    sample, wanted = sample_of(lakehouse.session, key, root), Grain(grain) if grain else None
    text = draft(key, written, sample, wanted)
    spec = _validated(key, text)
    if sample.layout.template == FLAT and isinstance(spec.source, FilesSpec):
        text = draft(key, written, sample, wanted, days_of(lakehouse.session, spec, spec.source, root))
        _validated(key, text)
    return text


def _validated(key: str, text: str) -> TableSpec:
    import yaml
    from pydantic import ValidationError

    from backfill_assets.core.spec.table import TableSpec

    try:
        return TableSpec.model_validate(yaml.safe_load(text)["attributes"])
    except ValidationError as error:
        raise ConfigurationError(
            f"`{key}`: what was found does not make a table: {error.errors()[0]['msg']}.",
            state=NOTHING_WRITTEN,
            remedy="Write the spec by hand.",
        ) from error


def _root_of(lakehouse: Lakehouse, path: str) -> tuple[str, str]:
    """Return a source's folder, and how a spec names it: below `landing/`, or absolute."""
    from backfill_assets.core.spec.fields import is_uri

    root, landing = lakehouse.landing_path(path), lakehouse.landing_path("")
    if not is_uri(root) and not Path(root).is_dir() and Path(path).is_dir():
        root = os.path.abspath(path)  # noqa: PTH100 (a str, and no links resolved)
    return root, root[len(landing) :].strip("/") if root.startswith(landing) and root != landing else root
