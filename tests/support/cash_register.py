"""The kind of source of a user's own that `docs/sources.md` shows, run as it stands there."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from backfill_assets.core.spec import sources
from tests.support.shop import Row

PAGE = (Path(__file__).parents[2] / "docs/sources.md").read_text().partition("## A kind of your own")[2]


def block(language: str) -> str:
    """The one fenced block of a language on that part of the page."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    return found


@contextmanager
def kinds_restored() -> Iterator[None]:
    """Forget afterwards which kinds were registered in between."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "_KINDS", dict(sources._KINDS))
        yield


def page_module(name: str = "cash_register") -> ModuleType:
    """Run the page's code; it registers its kind, so call it inside of `kinds_restored`."""
    module = ModuleType(name)
    exec(compile(block("python"), "docs/sources.md", "exec", dont_inherit=True), module.__dict__)
    return module


def write_register(file: Path, rows: Iterable[Row]) -> Path:
    """Add orders to a cash register's file, as the old program writes them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as register, register:
        register.execute(
            "CREATE TABLE IF NOT EXISTS orders (order_id INTEGER, customer TEXT, amount TEXT, ordered_at TEXT)"
        )
        register.executemany(
            "INSERT INTO orders VALUES (?, ?, ?, ?)",
            [(r["order_id"], r["customer"], str(r["amount"]), r["ordered_at"].isoformat()) for r in rows],
        )
    return file
