"""The demo of a version: a table rebuilt beside itself with two tables that are made of it, cut over, and back."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from backfill_assets.demo.orders import write_orders
from backfill_assets.demo.place import FIRST_DAY
from backfill_assets.demo.processes import launch
from backfill_assets.demo.story import Story
from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError

ORDERS, SALES, REVENUE = "bronze/orders", "silver/daily_sales", "gold/monthly_revenue"
DAYS = 59
"""Two months from the first day on."""

_PACKAGE = "shop_of_versions"
_HOME = ".dagster"
_MODULE = f"{_PACKAGE}.definitions"
_PROJECT = f"""\
[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "{_PACKAGE}"
registry_modules = ["backfill_assets"]
"""
_EDITS = (
    ('"decimal(18,2)"', '"decimal(20,4)"', "amounts have four digits behind the point"),
    ("grain: daily", "grain: monthly", "a partition is a month"),
    (
        "    # cast: [column]               of",
        "    cast: [amount] # of",
        "and the amount is said to be of another type",
    ),
)
"""What a person changes in the spec of the new version: text, other text, and why."""


def tell(root: Path, console: Console, *, orders_per_day: int, seed: int) -> int:
    """Tell the whole story; return the exit code: 0 if every step ended as it should.

    Raises:
        ConfigurationError: There is a folder that the demo did not make.
    """
    story, started = Story(console), time.monotonic()
    place = root / "versions"
    _make_room(place)
    _make_project(place)
    os.environ["LAKEHOUSE_ROOT"] = str(place / "lakehouse")  # for the processes of the story
    os.environ["DAGSTER_HOME"] = str(_make_home(place))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(place), os.environ.get("PYTHONPATH"))))
    console.print("[bold]A table with another type and another grain, beside the one that is read[/]")
    console.print(
        f"Everything is kept below {place}, a project of its own, with a history of its own.", highlight=False
    )

    _load(story, place, orders_per_day, seed)
    _write(story, place)
    copied, seconds = _run(story, "version", "deploy", ORDERS)
    ranges = ", ".join(f"{run['table']} {run['range'][0]}...{run['range'][1]}" for run in copied.get("runs", []))
    good = bool(ranges) and not any(run["failure"] for run in copied["runs"])
    story.tell("copied", f"by ordinary launches: {ranges}", seconds, good=good)

    before = _current(place)
    story.step("Both are compared, and one commit gives readers the new tables, all three at once")
    _, seconds = _run(story, "version", "cutover", ORDERS, "--reason", "four digits")
    after = _current(place)
    good = {*after.values()} == {f"{key}__v2" for key in (ORDERS, SALES, REVENUE)} and not before
    story.tell("cut over", ", ".join(f"{name} is {key}" for name, key in after.items()), seconds, good=good)
    at = time.monotonic()
    kind, total, count = _read(place, after[ORDERS]) if after else ("nothing", Decimal(0), 0)
    same = (total, count) == _read(place, ORDERS)[1:]
    said = f"a reader without Spark finds {count:,} orders, amounts of type {kind}, {total:,.2f} in all"
    story.tell("read", f"{said}{', as before' if same else ''}", time.monotonic() - at, good=same and "20, 4" in kind)

    story.step("Somebody doubts it: back, as quickly")
    _, seconds = _run(story, "version", "rollback", ORDERS, "--reason", "totals of January are doubted")
    back = _current(place)
    good = {*back.values()} == {ORDERS, SALES, REVENUE}
    story.tell("rolled back", ", ".join(f"{name} is {key}" for name, key in back.items()), seconds, good=good)
    return story.summary(time.monotonic() - started, _next_steps(place))


def _make_room(place: Path) -> None:
    """Delete what an earlier run of this demo has left; refuse to delete anything else."""
    if place.exists() and not (place / ".demo-versions").exists():
        raise ConfigurationError(
            f"`{place}` is there already, and this demo did not make it.",
            state=NOTHING_WRITTEN,
            remedy="Set LAKEHOUSE_ROOT to another folder for the demo.",
        )
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / ".demo-versions").touch()


def _make_project(place: Path) -> None:
    """Write a project with the shop's three tables, of which new versions can be written."""
    ours = Path(__file__).parent.parent
    package = place / _PACKAGE
    for key in (ORDERS, SALES, REVENUE):
        shutil.copytree(ours / "defs" / key, package / "defs" / key, ignore=shutil.ignore_patterns("__pycache__"))
    (place / "pyproject.toml").write_text(_PROJECT)
    for name in ("__init__.py", "defs/__init__.py"):
        (package / name).touch()
    shutil.copy(ours / "definitions.py", package / "definitions.py")


def _make_home(place: Path) -> Path:
    """Make a home for Dagster with a history in files: these tables have the names of others in any history of ours."""
    home = place / _HOME
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    return home


def _load(story: Story, place: Path, orders_per_day: int, seed: int) -> None:
    story.step("Two months of orders, their sales by day, and their revenue by month")
    landing = place / "lakehouse/landing/orders"
    write_orders(landing, first_day=FIRST_DAY, days=DAYS, orders_per_day=orders_per_day, seed=seed)
    last = FIRST_DAY + timedelta(days=DAYS - 1)
    for tables, end in (([ORDERS, SALES], last), ([REVENUE], last.replace(day=1))):
        launched = launch(story.console, tables, f"{FIRST_DAY}...{end}", {}, module=_MODULE)
        story.tell("loaded", f"{', '.join(tables)}: {launched.said()}", launched.seconds, good=launched.ok)


def _write(story: Story, place: Path) -> None:
    """Let the specs of the new versions be written, and change what is to be another."""
    story.step("New versions of all three are written, and the first one is edited")
    _, seconds = _run(
        story, "version", "new", ORDERS, "--downstream", "--from", "version", "--no-stream", is_json=False
    )
    spec = place / _PACKAGE / "defs" / f"{ORDERS}__v2" / "defs.yaml"
    text = spec.read_text() if spec.exists() else ""
    missing = [old for old, _, _ in _EDITS if old not in text]
    for old, new, why in _EDITS:
        text = text.replace(old, new)
        lines = f"   [red]- {escape(old.strip())}[/]\n   [green]+ {escape(new.strip())}[/]  [dim]{why}[/]"
        story.console.print(lines, highlight=False)
    if not missing:
        spec.write_text(text)
    story.tell("written", "three specs, of which a person has changed one", seconds, good=not missing)


def _run(story: Story, *arguments: str, is_json: bool = True) -> tuple[dict[str, Any], float]:
    """Run one of our commands; return what it says as JSON, and the seconds that it took. What fails is shown."""
    shown = shlex.join(["backfill-assets", *arguments, "--definitions", _MODULE])
    story.console.print(f"   [dim]$ {shown}[/]", highlight=False, soft_wrap=True)
    command = [sys.executable, "-m", "backfill_assets.cli", *arguments, "--definitions", _MODULE]
    at = time.monotonic()
    with story.console.status(arguments[1]):
        done = subprocess.run(  # noqa: S603 (our own command)
            [*command, *(["--json"] if is_json else [])], capture_output=True, text=True, check=False
        )
    if done.returncode:
        story.console.print(done.stderr[-2000:], highlight=False, markup=False)
        story.is_good = False
    answer = json.loads(done.stdout) if is_json and not done.returncode else {}
    return answer, time.monotonic() - at


def _current(place: Path) -> dict[str, str]:
    """Return what is current, as another reader finds it; nothing where nothing was ever switched."""
    import deltalake

    folder = place / "lakehouse/_current"
    if not folder.exists():
        return {}
    rows = deltalake.DeltaTable(folder).to_pyarrow_table(columns=["name", "key"]).to_pylist()
    return {row["name"]: row["key"] for row in sorted(rows, key=lambda row: row["name"])}


def _read(place: Path, key: str) -> tuple[str, Decimal, int]:
    """Return the type of a version's amounts, their sum, and the number of its rows, by another reader."""
    import deltalake

    amounts = deltalake.DeltaTable(place / "lakehouse/tables" / key).to_pyarrow_table(columns=["amount"])["amount"]
    return str(amounts.type), sum(amounts.to_pylist(), Decimal(0)), len(amounts)


def _next_steps(place: Path) -> Sequence[tuple[str, str]]:
    settings = f"PYTHONPATH=. LAKEHOUSE_ROOT=lakehouse DAGSTER_HOME={shlex.quote(str(place / _HOME))}"
    here = f"cd {shlex.quote(str(place))} && {settings} backfill-assets"
    return [
        (f"{here} version status --definitions {_MODULE}", "all versions side by side, and what comes next"),
        (f"{here} history {ORDERS} --definitions {_MODULE}", "what was done, by whom, and why"),
        (f"{here} views --dialect duckdb --definitions {_MODULE}", "views for a catalog"),
    ]
