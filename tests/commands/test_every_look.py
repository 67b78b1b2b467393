"""Every command that only looks leaves each byte of the lakehouse and of Dagster's home as it was; each other one is named."""

from __future__ import annotations

import click
import dagster as dg
import pytest

from backfill_assets import TableSpec, build_lakehouse_table, lakehouse_definitions
from backfill_assets.cli import main
from backfill_assets.runs.resources import Lakehouse
from tests.commands.places import Place, below, new_place, said_in
from tests.commands.test_looking import LOOKS
from tests.support.launching import ORDERS
from tests.support.shop import COLUMNS, orders

DAYS = [f"2024-01-0{n}" for n in range(1, 4)]
RANGE = f"{DAYS[0]}...{DAYS[-1]}"
V2 = TableSpec.model_validate(
    {
        "key": f"{ORDERS}__v2",
        "columns": {**COLUMNS, "amount": "decimal(20,4)"},
        "key_columns": ["order_id"],
        "event_time": "ordered_at",
        "grain": "monthly",
        "start": "2024-01-01",
        "source": {"kind": "version", "table": ORDERS},
        "version_of": {"table": ORDERS, "cast": ["amount"]},
    }
)
LOOKING: dict[str, tuple[str, ...]] = {
    "estimate": (),
    "fence": (ORDERS,),
    "gaps": (),
    "history": (ORDERS,),
    "plan": (ORDERS, "--partition-range", RANGE, "--downstream", "--reason", "logic changed"),
    "plan --deep": (ORDERS, "--partition-range", RANGE),
    "preview": (ORDERS, "--partition", DAYS[0]),
    "schema": (ORDERS,),
    "status": (),
    "undo --dry-run": ("{run}",),
    "verify": (ORDERS,),
    "version status": (ORDERS,),
}
"""Each command that looks, with what it is asked; `--json` is added."""

MAY_FAIL = {"fence": 2}
"""Of a table without a stream."""

LOOKS_ELSEWHERE = {"once", "reconcile"}
"""Tested in `test_looking.py`: the first needs a flow, the second is a run, of which Dagster's history tells."""

TOUCHES_NO_LAKEHOUSE = {"init", "version new", "views"}
WRITES = {
    *("apply", "capture", "demo", "live", "reset", "resume", "stop"),
    *(f"version {what}" for what in ("deploy", "cutover", "rollback", "retire")),
}


def commands(group: click.Group = main, before: str = "") -> set[str]:
    """Return the names of every command."""
    found: set[str] = set()
    for name, command in group.commands.items():
        found |= (
            commands(command, f"{name} ") if isinstance(command, click.Group) and name != "demo" else {before + name}
        )
    return found


def test_every_command_looks_or_is_known_to_write():
    """A new one has to be put where it belongs."""
    looking = {" ".join(word for word in name.split() if not word.startswith("-")) for name in LOOKING}
    assert looking | LOOKS_ELSEWHERE | TOUCHES_NO_LAKEHOUSE | WRITES == commands()
    assert not (looking | LOOKS_ELSEWHERE) & (WRITES | TOUCHES_NO_LAKEHOUSE)
    assert set(LOOKS) >= LOOKS_ELSEWHERE


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Place:
    """Two of three days are published; one of them has changed at its source; a version is declared."""
    place = new_place(tmp_path_factory.mktemp("place"))
    for day in DAYS:
        place.lake.export(day, orders(day))
    with place.instance() as place.lake.instance:
        assert place.lake.launch(DAYS[0], DAYS[1]).succeeded
    place.lake.export(DAYS[1], orders(DAYS[1], 4))
    return place


def definitions(place: Place) -> dg.Definitions:
    spec = place.lake.spec
    second = build_lakehouse_table(V2, inputs={ORDERS: spec})
    return lakehouse_definitions(build_lakehouse_table(spec), second, lakehouse=Lakehouse(root=str(place.lake.root)))


@pytest.mark.prove
@pytest.mark.spark
@pytest.mark.parametrize("name", LOOKING)
def test_a_look_changes_no_byte(place: Place, name: str):
    """Neither below the lakehouse's root, nor of what Dagster knows."""
    with place.instance() as instance:
        (run,) = instance.get_runs()
    asked = [word.format(run=run.run_id) for word in (*name.split(), *LOOKING[name], "--json")]
    before, known = below(place.lake.root), said_in(place.home)
    result = place.run(*asked, definitions=definitions(place))
    assert result.exit_code in (0, 1, MAY_FAIL.get(name, 0)), result.output
    assert "Traceback" not in result.output
    assert below(place.lake.root) == before
    assert said_in(place.home) == known
