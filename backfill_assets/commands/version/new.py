"""`backfill-assets version new`: the spec of a table's next version, written beside the present one to be edited."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from backfill_assets.commands.project import Project, ProjectTable
from backfill_assets.commands.terminal import definitions_option, new_console, one_message_for_an_error
from backfill_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from backfill_assets.core.spec.no_effect import Place
    from backfill_assets.core.spec.table import TableSpec

AHEAD = timedelta(hours=12)
"""So far ahead the stream of a new version begins at least: time to edit it, have it reviewed, and start it."""

NOTHING_WRITTEN_HERE = "No file was written."


@click.command()
@click.argument("key")
@click.option("--downstream", is_flag=True, help="Write one of every table made of it too, made of the new version.")
@click.option(
    "--from",
    "origin",
    type=click.Choice(["source", "version"]),
    default="source",
    show_default=True,
    help="Where its history is read from: as before, or from the version before.",
)
@click.option(
    "--no-stream",
    is_flag=True,
    help="Without a stream or change feed; with `--from version` the version before is followed.",
)
@definitions_option
def new(key: str, *, downstream: bool, origin: Literal["source", "version"], no_stream: bool, module: str) -> None:
    """Write the next version of the table KEY as a `defs.yaml` beside the present one. Edit it before it is made.

    Its stream, if it has one, begins at the next boundary of its partitions that is at least twelve hours ahead. Its
    change feed, if it has one, is the same; with `--from version` the version before is followed instead.

    Two versions of one table that feed the same table would double it, and such a project does not load: `--downstream`
    writes a version of every table below, of which only the inputs are others.

    \b
    Examples:
      backfill-assets version new bronze/orders --downstream
      backfill-assets version new bronze/orders --from version --no-stream
    """
    with one_message_for_an_error(), Project.load(module, looks=True) as project:
        written = write_versions(project, key, downstream=downstream, origin=origin, with_stream=not no_stream)
    console = new_console()
    for one, file in written.items():
        console.print(f"{one}: {file}", highlight=False, markup=False, soft_wrap=True)
    first = next(iter(written))
    console.print(
        f"Edit them, say in `version_of` what columns have become, and run `dg check defs`; then `backfill-assets "
        f"version deploy {first} --check`.",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def write_versions(
    project: Project, key: str, *, downstream: bool, origin: Literal["source", "version"], with_stream: bool
) -> dict[str, Path]:
    """Write the specs of new versions; return their files by key.

    Repeated after it was killed, it writes those that are missing.

    Raises:
        ConfigurationError: There is no such table, it was not read from a file, or there is another file already.
    """
    from backfill_assets.core.spec.lakehouse import all_below
    from backfill_assets.core.spec.version_sets import followed_by
    from backfill_assets.core.spec.versions import key_of, name_of, number_of

    chosen = project.table(key)
    specs = chosen.specs
    below = [
        one
        for one, spec in specs.items()
        if downstream and one != key and not spec.source.is_of_version and key in all_below(one, specs)
    ]
    next_ones = {
        one: key_of(name_of(one), 1 + max(number_of(other) for other in specs if name_of(other) == name_of(one)))
        for one in (key, *sorted(below, key=lambda one: (len(all_below(one, specs)), one)))
    }

    def drawn_up(following: Mapping[str, str]) -> dict[Path, str]:
        texts: dict[Path, str] = {}
        for one, other in following.items():
            table, source = project.table(one), origin if one == key else "source"
            texts[_place(table, other)] = _text(project, table, following, source, with_stream=with_stream)
        return texts

    begun = {one: max(followed_by(one, specs), key=number_of, default=other) for one, other in next_ones.items()}
    following, texts = begun, drawn_up(begun)
    there = [place for place, one in zip(texts, begun, strict=True) if begun[one] != next_ones[one]]
    if not all(_is_text(place, texts[place]) for place in there):  # they were edited, so others are asked for
        following, texts = next_ones, drawn_up(next_ones)
    _write_all(texts)
    return dict(zip(following.values(), texts, strict=True))


def _write_all(texts: Mapping[Path, str]) -> None:
    """Write files, each of them whole or not at all; one that is there as it would be written is left as it is."""
    for place, text in texts.items():
        if place.exists() and not _is_text(place, text):
            raise ConfigurationError(
                f"`{place}` is there already.",
                state=NOTHING_WRITTEN_HERE,
                remedy="Go on with it, or remove it first.",
            )
    missing = [place for place in texts if not place.exists()]
    for place in missing:
        place.parent.mkdir(parents=True, exist_ok=True)
        _beside(place).write_text(texts[place], encoding="utf-8")
    for place in missing:  # what others are made of first: what is there after a kill loads
        _beside(place).replace(place)


def _beside(place: Path) -> Path:
    return place.with_name(f".{place.name}.new")


def _is_text(place: Path, text: str) -> bool:
    return place.exists() and place.read_text(encoding="utf-8") == text


def _place(table: ProjectTable, key: str) -> Path:
    """Return the file of a new version's spec: in a folder of its own, beside that of the version before."""
    file = Path(table.table.file)
    if not table.table.file:
        raise ConfigurationError(
            f"`{table.spec.key}` is built in Python, so there is no `defs.yaml` to write another one from.",
            state=NOTHING_WRITTEN_HERE,
            remedy=f"Build one more with `key={key!r}` and `version_of`.",
        )
    return file.parent.parent / key.partition("/")[2] / "defs.yaml"


def _text(
    project: Project,
    table: ProjectTable,
    following: Mapping[str, str],
    origin: Literal["source", "version"],
    *,
    with_stream: bool,
) -> str:
    from backfill_assets.commands.version.spec_text import next_spec

    spec = table.spec
    starts = first_boundary(spec, datetime.now(UTC) + AHEAD) if spec.live and with_stream else None
    copies = spec.key if origin == "version" or spec.source.is_of_version else None
    file = Path(table.table.file)
    return next_spec(
        file.read_text(encoding="utf-8"),
        spec.key,
        following,
        starts=starts,
        copies=copies,
        module=_module_of(project, file.parent),
        with_feed=with_stream,
        useless=_useless(spec, copies, with_stream=with_stream),
    )


def _useless(spec: TableSpec, copies: str | None, *, with_stream: bool) -> list[Place]:
    """Return the fields that nothing would read in the next version, since it copies this one or has no stream."""
    from backfill_assets.core.spec.no_effect import without_effect
    from backfill_assets.core.spec.version_source import VersionSpec

    changes: dict[str, Any] = {"version_of": None}
    changes |= {"source": VersionSpec(table=copies), "changes": None} if copies else {}
    changes |= {} if with_stream else {"live": None, "changes": None}
    return [place for place, _ in without_effect(spec.model_copy(update=changes))]


def first_boundary(spec: TableSpec, after: datetime) -> date:
    """Return the first day of the first partition that begins after an instant."""
    from backfill_assets.core.calendar.windows import first_day, midnight_utc

    day = after.astimezone(spec.grid.zone).date()
    while first_day(day, spec.grain) != day or midnight_utc(day, spec.grid.zone) < after:
        day += timedelta(days=1)
    return day


def _module_of(project: Project, folder: Path) -> str:
    """Return the dotted name of a folder below the package that holds the definitions."""
    module: Any = sys.modules[project.module]
    depth = project.module.count(".") + (1 if Path(module.__file__).name == "__init__.py" else 0)
    package = Path(module.__file__).resolve().parents[depth]
    return ".".join(folder.resolve().relative_to(package).parts)
