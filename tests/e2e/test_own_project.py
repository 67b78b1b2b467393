"""What docs/project.md says: the project that it describes is made from its words, launched and reconciled."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import deltalake
import pytest

from tests.e2e.world import BIN

pytestmark = [pytest.mark.e2e, pytest.mark.prove]

PAGE = (Path(__file__).parents[2] / "docs/project.md").read_text()
VISIT = {"visit_id": 7, "visited_at": "2024-01-01T08:00:00Z"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_project_of_the_page_is_launched(tmp_path: Path, warm_server: dict[str, str]):
    """Its files load, its commands launch a day and reconcile it, and another reader finds the row."""
    table, settings = blocks("yaml")
    lakehouse, home, project = tmp_path / "lakehouse", tmp_path / "home", tmp_path / "project"
    files = {
        project / "pyproject.toml": blocks("toml")[0],
        project / "shop/__init__.py": "",
        project / "shop/definitions.py": blocks("python")[0].replace("/data/lakehouse", str(lakehouse)),
        project / "shop/defs/bronze/visits/defs.yaml": table,
        project / ".env": blocks("shell")[0].replace("/data/dagster", str(home)),
        home / "dagster.yaml": settings,
        lakehouse / "landing/visits/2024/01/01/a.json": json.dumps(VISIT),
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    clean = {name: value for name, value in os.environ.items() if name not in ("DAGSTER_HOME", "LAKEHOUSE_ROOT")}
    path = os.pathsep.join([str(project), os.environ.get("PYTHONPATH", "")])  # instead of `pip install --editable .`
    environment = {**clean, **warm_server, "PYTHONPATH": path, "DAGSTER_DISABLE_TELEMETRY": "1"}
    commands = [line.removeprefix("$ ") for line in blocks("console")[1].splitlines()]
    assert commands.pop(0) == "pip install --editable ."
    for command in commands:
        program, *words = shlex.split(command)
        own = {"DAGSTER_HOME": str(home)} if program == "backfill-assets" else {}
        ran = subprocess.run(
            [str(BIN / program), *words],
            cwd=project,
            env=environment | own,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout[-2000:]}\n{ran.stderr[-3000:]}"
    assert "all 1 partitions (1 rows) equal their source" in ran.stdout
    found = deltalake.DeltaTable(str(lakehouse / "tables/bronze/visits")).to_pyarrow_table().to_pylist()
    assert [row["visit_id"] for row in found] == [7]
    assert list((home / "history").glob("*")), "Dagster's history is where the page says"
