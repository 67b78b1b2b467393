"""What docs/project.md says: the package is built and installed, and the commands of the page are run word for word."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import deltalake
import pytest

from tests.e2e.world import BIN
from tests.support.interpreted import extra_conf

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/project.md").read_text()
COMMANDS = [
    line.removeprefix("$ ")
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the built wheel, which finds the wheel's dependencies where these tests have them."""
    place = tmp_path_factory.mktemp("installed")
    shutil.copytree(ROOT / "backfill_assets", place / "source/backfill_assets")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, place / "source")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", place, place / "source"], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "venv"], check=True)
    (libraries,) = (place / "venv/lib").glob("python*/site-packages")
    (libraries / "dependencies.pth").write_text(str(Path(deltalake.__file__).parents[1]))
    for name in ("dg", "dagster", "pip"):
        _, _, rest = (BIN / name).read_text().partition("\n")
        (place / "venv/bin" / name).write_text(f"#!{place}/venv/bin/python\n{rest}")
        (place / "venv/bin" / name).chmod(0o755)
    (wheel,) = place.glob("*.whl")
    subprocess.run([place / "venv/bin/pip", "install", "-q", "--no-deps", "--ignore-installed", wheel], check=True)
    return place / "venv/bin"


def test_commands_of_the_page_make_a_project(installed: Path, tmp_path: Path):
    """A table is drafted, launched and reconciled in a new project, and another reader finds its row."""
    assert COMMANDS[0] == "pip install backfill-assets", "it is installed already"
    names = ("DAGSTER_HOME", "LAKEHOUSE_ROOT", "PYTHONPATH", "VIRTUAL_ENV")
    clean = {name: value for name, value in os.environ.items() if name not in names}
    path = os.pathsep.join([str(installed), os.environ["PATH"]])
    environment = {**clean, "PATH": path, "PIP_NO_DEPS": "1", "DAGSTER_DISABLE_TELEMETRY": "1"}
    environment["SPARK_EXTRA_CONF"] = extra_conf({})
    script = "\n".join(["set -ex", *COMMANDS[1:]])
    ran = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, f"{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}"
    (drafted,) = re.findall(r"```yaml\n(type: .*?)```", PAGE, re.DOTALL)
    assert drafted in ran.stdout
    assert "all 1 partitions (1 rows) equal their source" in ran.stdout
    found = deltalake.DeltaTable(str(tmp_path / "shop/.lakehouse/tables/bronze/visits")).to_pyarrow_table().to_pylist()
    assert [row["visit_id"] for row in found] == [7]
    assert list((tmp_path / "shop/.dagster/history").glob("*")), "Dagster's history is where the page says"


def test_the_shop_is_loaded_from_the_wheel(installed: Path, tmp_path: Path):
    """`backfill-assets demo` needs its tables also where the package lies in no project."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [installed / "dagster", "asset", "list", "-m", "backfill_assets.definitions"],
        cwd=tmp_path, env={**environment, "DAGSTER_HOME": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "bronze/orders" in ran.stdout.split(), ran.stderr[-3000:]
