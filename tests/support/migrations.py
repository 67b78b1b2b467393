"""Dagster's migrations of its databases, which it reads anew for each history and each run: half a tenth of what tests cost."""

from __future__ import annotations

from typing import Any

from alembic.script import ScriptDirectory


def read_migrations_once() -> None:
    """Let this process read each folder of migrations once."""
    read, known = ScriptDirectory.from_config, dict[str | None, ScriptDirectory]()

    def from_config(config: Any) -> ScriptDirectory:
        folder = config.get_main_option("script_location")
        if folder not in known:
            known[folder] = read(config)
        return known[folder]

    ScriptDirectory.from_config = from_config
