"""What all commands share on a terminal: their common options, their exit codes, and the boundary that words errors.

Importing it, or any command, imports neither Dagster nor Spark: help is shown at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backfill_assets.core.words import shortened
from backfill_assets.errors import BackfillAssetsError, ConfigurationError, WindowError

if TYPE_CHECKING:
    from rich.console import Console

    from backfill_assets.core.calendar.partitions import Partition
    from backfill_assets.core.spec.table import TableSpec

EXIT_DIFFERS = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""As a shell says it of what Ctrl-C has ended."""
EXIT_UNREAD = 141
"""As a shell says it of what could not say its answer, because whoever read it has ended: `| head`, for example."""

DEFINITIONS = "BACKFILL_ASSETS_DEFINITIONS"
"""The variable that names the definitions which every command acts on."""

TRACEBACK = "BACKFILL_ASSETS_TRACEBACK"
"""The variable with which an error that nobody foresaw shows its stack trace."""

DOTENV = "BACKFILL_ASSETS_DOTENV"
"""The variable by which a command tells its processes which `.env` it has read: what it has set since is to stay."""

SHOP = "backfill_assets.definitions"
"""The definitions of the shop that the demo tells of."""

WIDTH_IN_A_FILE = 200
"""Columns of a table that no terminal shows, so that ids and texts are whole for whoever searches it."""


def project_here() -> tuple[Path, dict[str, Any]] | None:
    """Return the folder of the project that the working directory lies in, and what `dg` is told of it; else None.

    Raises:
        click.UsageError: What describes the project is no TOML.
    """
    import tomllib

    for folder in (Path.cwd(), *Path.cwd().parents):
        for name, at in (("dg.toml", ("project",)), ("pyproject.toml", ("tool", "dg", "project"))):
            try:
                told: Any = tomllib.loads((folder / name).read_text(encoding="utf-8"))
                for part in at:
                    told = told[part]
                told["root_module"]
            except ValueError as error:
                raise click.UsageError(f"`{folder / name}` cannot be read: {error}.") from error
            except (OSError, KeyError, TypeError):
                continue
            return folder, told
    return None


def definitions_here() -> str:
    """Return the module of definitions of the project that the working directory lies in; the shop's if in none."""
    found = project_here()
    if found is None:
        return SHOP
    _, told = found
    return str(told.get("code_location_target_module") or f"{told['root_module']}.definitions")


definitions_option = click.option(
    "--definitions",
    "module",
    default=definitions_here,
    show_default="of the project in this folder, else the shop's",
    envvar=DEFINITIONS,
    show_envvar=True,
    metavar="MODULE",
    help="Module of the Dagster definitions that hold the table, and name its lakehouse.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")


def new_console(*, stderr: bool = False) -> Console:
    """Return a console for standard output, or for what is said beside it."""
    from rich.console import Console

    class Answer(Console):
        def on_broken_pipe(self) -> None:  # Rich would exit with 1
            raise BrokenPipeError

    stream = sys.stderr if stderr else sys.stdout
    is_piped = not stream.isatty() and "COLUMNS" not in os.environ
    return Answer(stderr=stderr, log_path=False, width=WIDTH_IN_A_FILE if is_piped else None)


def diary(console: Console) -> Callable[[str], None]:
    """Return what says a line with the time of day in front; nothing in it is markup, since others may have said it."""
    from rich.markup import escape

    def say(text: str) -> None:
        console.print(f"[dim]{datetime.now(UTC):%H:%M:%S}[/] {escape(text)}", highlight=False, soft_wrap=True)

    return say


class Commands(click.Group):
    """Commands that exit with 1 only when their answer says so; click does it for whatever else ends them too."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):  # the one while it works, the other at a question
            click.echo("Stopped.", err=True)
            sys.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python says the rest of it at its end
            sys.exit(EXIT_UNREAD)


@contextmanager
def one_message_for_an_error() -> Iterator[None]:
    """Run a command: print an error of this project, of Spark, or of Dagster's history as one message, and exit with 2.

    An error that nobody foresaw is one message too, and exits with 2 all the same: 1 says that something differs.
    """
    try:
        _adopt_environment()
        yield
    except (
        click.ClickException,
        click.exceptions.Exit,
        click.Abort,
        BrokenPipeError,
    ):  # click and `Commands` word them
        raise
    except BackfillAssetsError as error:
        _print(error)
        sys.exit(EXIT_USAGE)
    except Exception as error:  # noqa: BLE001 (whatever it is, its exit code must not be that of an answer)
        _print(_as_one_message(error))
        if os.environ.get(TRACEBACK):
            traceback.print_exc()
        sys.exit(EXIT_USAGE)


def _as_one_message(error: Exception) -> BackfillAssetsError:
    """Return an error of ours for one of Spark, of Dagster's history, or that nobody foresaw."""
    from backfill_assets.runs.recording import error_of_history

    context = click.get_current_context(silent=True)
    name = context.command_path if context else "backfill-assets"
    if unavailable := error_of_history(error):
        return unavailable
    if "pyspark" in sys.modules:
        from backfill_assets.spark.failures import SPARK_FAILURES, translate_spark_error

        ours = translate_spark_error(error, name) if isinstance(error, SPARK_FAILURES) else None
        if ours is not None:
            return ours
    frame = traceback.extract_tb(error.__traceback__)[-1]
    said = shortened(" ".join(str(error).split()), 300).rstrip(".")
    return BackfillAssetsError(
        f"`{name}`: {type(error).__name__}: {said} ({Path(frame.filename).name}, line {frame.lineno}).",
        state="The command has ended; each commit that it made is whole.",
        remedy=f"Nobody foresaw this error. Set {TRACEBACK}=1 to see where it arose, and report it.",
    )


def _print(error: BackfillAssetsError) -> None:
    from rich.markup import escape

    console = new_console(stderr=True)
    console.print(f"[bold red]{type(error).__name__}[/] {escape(error.what)}", highlight=False, soft_wrap=True)
    for sentence in (error.state, error.remedy):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)


def partitions_named(spec: TableSpec, partition_range: str) -> list[Partition]:
    """Return the partitions of a range `A...B`.

    Raises:
        WindowError: It is not a range of the table.
    """
    first, dots, last = partition_range.partition("...")
    if not dots:
        raise WindowError(
            f"`{partition_range}` is not a range.",
            state="Nothing was read.",
            remedy="Write first and last partition with three dots between, for example "
            f"`{spec.start}...{spec.start}`.",
        )
    return spec.grid.between(first, last)


def text_in(file: Path, remedy: str) -> str:
    """Return what a file holds that a command is given.

    Raises:
        ConfigurationError: It cannot be read, or is no text.
    """
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"`{file}` cannot be read: {error}.", state="Nothing was written.", remedy=remedy
        ) from error


def _adopt_environment() -> None:
    """Set what the project's `.env` sets; give Dagster a home, and the lakehouse a root, if none is set.

    These lie in the project's folder, with its settings: a command that is called below a project acts on what is the
    project's, and not on an empty place of its own.
    """
    folder = found[0] if (found := project_here()) else Path.cwd()
    _read_dotenv(folder)
    home = Path(os.environ.setdefault("DAGSTER_HOME", str(folder / ".dagster")))
    if folder != Path.cwd() and not os.environ.get("LAKEHOUSE_ROOT"):
        os.environ["LAKEHOUSE_ROOT"] = str(folder / ".lakehouse")
    if not home.is_absolute():
        raise ConfigurationError(
            f"DAGSTER_HOME (`{home}`) is no absolute path, and Dagster takes no other.",
            state="Nothing was run.",
            remedy=f"Set it to `{home.absolute()}`, for example.",
        )
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"DAGSTER_HOME (`{home}`) cannot be made: {error}.",
            state="Nothing was run.",
            remedy="Set it to a folder that you may write to.",
        ) from error
    settings, of_project = home / "dagster.yaml", folder / "dagster.yaml"
    if not settings.exists() and of_project.exists():
        settings.write_text(of_project.read_text())


def _read_dotenv(folder: Path) -> None:
    """Set what a project's `.env` sets, over the environment, as `dg dev` does; a command's processes find it done."""
    path = folder / ".env"
    if not path.exists() or os.environ.get(DOTENV) == str(path):
        return
    from dotenv import dotenv_values

    from backfill_assets.core.spec.fields import is_uri

    try:
        found = {
            name: value for name, value in dotenv_values(path).items() if value is not None and name != DEFINITIONS
        }
        root = found.get("LAKEHOUSE_ROOT")
        if root and not is_uri(root):
            found["LAKEHOUSE_ROOT"] = str(folder / root)
        os.environ.update({**found, DOTENV: str(path)})
    except (OSError, ValueError) as error:  # no text; or a value that no environment takes
        raise ConfigurationError(
            f"`{path}` cannot be read: {error}.",
            state="Nothing was run.",
            remedy="Correct it: `dg` and `backfill-assets` act on what it sets.",
        ) from error
