"""The project as a whole: what it loads, what it leaves alone, and how its files hold together."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import dagster as dg
import grimp
import pytest
import yaml
from dagster._core.secrets.env_file import get_env_var_dict

from backfill_assets.cli import main

ROOT = Path(__file__).parents[1]
FORBIDDEN = ("repo1." + "maven", "pypi" + ".org", "/" + "work/", "/tmp/" + "spike")
"""Hosts of package registries, and folders of the machine this was written on: neither belongs in a file of the project."""

LOAD_AND_TELL = """
import json, sys
import dagster as dg
import psutil
from backfill_assets.definitions import defs
loaded = defs()
dg.Definitions.validate_loadable(loaded)
heavy = sorted(name for name in ("pyspark", "py4j", "delta", "deltalake", "pyarrow", "numpy") if name in sys.modules)
print(json.dumps({"heavy": heavy, "processes": [child.name() for child in psutil.Process().children(recursive=True)]}))
"""


@pytest.fixture(scope="module")
def loaded() -> dg.Definitions:
    from backfill_assets.definitions import defs

    return defs(None)


TABLES = [f"bronze/{name}" for name in ("audit_log", "customers", "orders", "registration_events")]
TABLES += ["gold/monthly_revenue", "silver/daily_sales"]
NOT_OURS = {"__pycache__", "spark-warehouse"}


def project_files() -> Iterator[Path]:
    """Every text of the project: not what tools leave behind, in folders that start with a dot or are named like an egg.

    Nor `.env`, which is each machine's own.
    """
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            n for n in folders if n == ".ci" or not (n.startswith(".") or n in NOT_OURS or n.endswith(".egg-info"))
        ]
        yield from (Path(folder) / name for name in names if name not in (".git", ".env"))


# -- what is loaded ----------------------------------------------------------------------------------------------------


def test_dg_and_workspace_name_the_same_module():
    """`dg` and `dagster` load the same module under the same name, whichever file they read."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dg"]["project"]
    (location,) = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]

    assert (
        location["python_module"]["module_name"]
        == project["code_location_target_module"]
        == "backfill_assets.definitions"
    )
    assert location["python_module"]["location_name"] == project["code_location_name"]


@pytest.mark.parametrize("page", ["pyproject.toml", "backfill_assets/commands/new_project.py"])
def test_dg_and_dagster_name_a_location_alike(page: str):
    """`dagster dev` names a location after its module; under another name in `dg`, Dagster warns and forgets schedules."""
    _, _, settings = (ROOT / page).read_text().partition("[tool.dg.project]")
    project = tomllib.loads(settings.partition("\n[")[0].partition('"""')[0])
    assert project["code_location_name"] == project["code_location_target_module"]


def test_one_dagster_home_for_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`dg` and `dagster` obey the environment's DAGSTER_HOME, as `backfill-assets` does; without one all use this folder's."""
    folder = tmp_path / "a # folder"
    folder.mkdir()
    (folder / ".env").write_text("PASSWORD=mine\nDAGSTER_HOME=/moved # by make setup")
    for _ in range(2):
        subprocess.run(["make", "-s", "-f", ROOT / "Makefile", "dotenv"], cwd=folder, check=True)
    monkeypatch.setenv("DAGSTER_HOME", "/elsewhere")
    assert get_env_var_dict(str(folder)) == {"PASSWORD": "mine", "DAGSTER_HOME": "/elsewhere"}
    monkeypatch.delenv("DAGSTER_HOME")
    assert get_env_var_dict(str(folder)) == {"PASSWORD": "mine", "DAGSTER_HOME": f"{folder}/.dagster"}


def test_no_lakehouse_of_ones_own_is_cleaned_away(tmp_path: Path):
    """`make clean` deletes what the demo makes in this folder, whatever its name; what variables name stays, and it says so."""
    folder, theirs = tmp_path / "my folder", tmp_path / "data"
    for path in (folder / ".lakehouse", folder / ".dagster", theirs / "lakehouse", theirs / "dagster", tmp_path / "my"):
        path.mkdir(parents=True)
    named = {"LAKEHOUSE_ROOT": str(theirs / "lakehouse"), "DAGSTER_HOME": str(theirs / "dagster")}
    command = ["make", "-s", "-f", ROOT / "Makefile", "clean"]
    said = subprocess.run(
        command, cwd=folder, env=os.environ | named, check=True, capture_output=True, text=True
    ).stdout
    assert said.splitlines() == [f"{name}, {path}, stays." for name, path in named.items()]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["dagster", "data", "lakehouse", "my", "my folder"]


def test_asset_keys(loaded: dg.Definitions):
    """These assets are loaded, and no others."""
    assert sorted(key.to_user_string() for key in loaded.resolve_asset_graph().get_all_asset_keys()) == [
        "bronze/audit_log",
        "bronze/audit_log_live",
        "bronze/customers",
        "bronze/customers_live",
        "bronze/orders",
        "bronze/orders_live",
        "bronze/registration_events",
        "bronze/registration_events_2022",
        "bronze/registration_events_2023",
        "bronze/registration_events_2024",
        "gold/monthly_revenue",
        "reconciliation",
        "silver/daily_sales",
        "status",
    ]


def test_check_keys(loaded: dg.Definitions):
    """Each table has one check of its own and one on `reconciliation`; a live stream has six around its fence."""
    keys = loaded.resolve_asset_graph().asset_check_keys
    fence = ["landed_files_are_as_read", "late_rows_are_folded", "live_is_writing", "no_gap_at_fence"]
    fence += ["no_overlap_at_fence", "nothing_is_quarantined"]
    assert sorted(f"{key.asset_key.to_user_string()}:{key.name}" for key in keys) == sorted(
        [
            *(f"{table}:reconciled" for table in TABLES),
            *(f"bronze/orders_live:{check}" for check in fence),
            *(f"reconciliation:{table.replace('/', '_')}_reconciled" for table in TABLES),
        ]
    )


def test_jobs_and_schedules(loaded: dg.Definitions):
    """Each table has a job that runs its checks alone; what looks is on, and schedules that write are off until they are switched on."""
    jobs = sorted(job.name for job in loaded.resolve_all_job_defs() if not job.name.startswith("__"))
    assert jobs == [
        "inspect_bronze_orders",
        "launch_bronze_orders",
        "live_bronze_orders",
        "reconcile_bronze_audit_log",
        "reconcile_bronze_customers",
        "reconcile_bronze_orders",
        "reconcile_bronze_registration_events",
        "reconcile_gold_monthly_revenue",
        "reconcile_silver_daily_sales",
        "reconciliation_job",
        "undo",
    ]

    schedules = [schedule for schedule in loaded.schedules or [] if isinstance(schedule, dg.ScheduleDefinition)]
    assert sorted(s.name for s in schedules) == [
        "catch_up_bronze_orders",
        "fold_late_bronze_orders",
        "inspect_bronze_orders_hourly",
        "live_bronze_orders_every_minute",
        "reconciliation_nightly",
    ]
    running = [s.name for s in schedules if s.default_status == dg.DefaultScheduleStatus.RUNNING]
    assert sorted(running) == ["inspect_bronze_orders_hourly", "reconciliation_nightly"]
    sensors = [(sensor.name, sensor.default_status) for sensor in loaded.sensors or []]
    assert sorted(sensors) == [(name, dg.DefaultSensorStatus.RUNNING) for name in ("alerts", "status")]


def test_every_table_is_launched_as_one_run_for_a_range(loaded: dg.Definitions):
    """Every table can be launched over a range from the command line, which needs `single_run` on each."""
    graph = loaded.resolve_asset_graph()
    for key in graph.materializable_asset_keys:
        if graph.get(key).is_partitioned:
            assert graph.get(key).backfill_policy == dg.BackfillPolicy.single_run(), key


def test_loading_starts_nothing_and_touches_nothing(tmp_path: Path):
    """Loading the definitions imports no Spark, starts no process and makes no folder."""
    lakehouse = tmp_path / "lakehouse"
    ran = subprocess.run(
        [sys.executable, "-c", LOAD_AND_TELL],
        cwd=tmp_path,
        env={**os.environ, "LAKEHOUSE_ROOT": str(lakehouse), "DAGSTER_HOME": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {"heavy": [], "processes": []}
    assert list(tmp_path.iterdir()) == []


def test_definitions_load_without_a_warning(tmp_path: Path):
    """Loading says nothing: no preview or beta warnings of features that this project uses on purpose."""
    code = (
        "from backfill_assets.definitions import defs; import dagster as dg; dg.Definitions.validate_loadable(defs())"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


# -- how it holds together ---------------------------------------------------------------------------------------------


def test_layers():
    """Imports point from Dagster to Spark to pure logic, as pyproject.toml says."""
    ran = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout


def commands(command: click.Command, path: str = "backfill-assets") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from commands(below, f"{path} {name}")


@pytest.mark.parametrize(("path", "command"), [pytest.param(*pair, id=pair[0]) for pair in commands(main)])
def test_every_command_explains_itself(path: str, command: click.Command):
    """Each command says what it does, and each option what it means."""
    assert command.help, path
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, f"{path} {option.opts[0]}"


def test_no_file_names_a_command_that_does_not_exist():
    """Documents, messages, tests and examples name only commands and groups that the command line has."""
    known = {path for path, _ in commands(main)}
    named = {
        (str(file.relative_to(ROOT)), " ".join(words.split()))
        for file in project_files()
        for words in re.findall(
            r"backfill-assets( [a-z][a-z-]*(?:(?<= version) [a-z]+)?)",
            file.read_text(encoding="utf-8", errors="replace"),
        )
    }
    assert len(named) > 100
    assert sorted((file, words) for file, words in named if f"backfill-assets {words}" not in known) == []


def test_no_file_names_a_registry_or_a_folder_of_somebodys_machine():
    """No file of the project names a host of a package registry or a folder that only one machine has."""
    found = [
        f"{file.relative_to(ROOT)}: {word}"
        for file in project_files()
        for word in FORBIDDEN
        if word in file.read_text(encoding="utf-8", errors="replace")
    ]
    assert found == []


def test_no_two_files_import_each_other():
    """There is no circle of modules anywhere in the package, imports for annotations alone included."""
    graph = grimp.build_graph("backfill_assets", cache_dir=None)
    circles = {
        " > ".join(chain)
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
        if (chain := graph.find_shortest_chain(importer=imported, imported=importer))
    }
    assert circles == set()
