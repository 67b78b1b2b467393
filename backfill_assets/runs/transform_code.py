"""The code of a transform: the text of its module, and of the modules that `source.code` names. Nothing is run."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from backfill_assets.errors import NOTHING_WRITTEN, TableSpecError


def code_of_module(module: str, also: Sequence[str] = ()) -> str:
    """Return the text of a module, and of others.

    Args:
        also: More modules, as `source.code` names them.

    Raises:
        TableSpecError: One of them is no module of Python text.
    """
    return "\n".join(f"# {name}\n{_text_of(name)}" for name in (module, *also))


def code_of_function(function: Callable[..., Any] | None, also: Sequence[str] = ()) -> str:
    """Return the name of a function, the text of its module, and that of others; empty if there is no function.

    Raises:
        TableSpecError: The function has no module of Python text, for example because it was made in a notebook.
    """
    if function is None:
        return ""
    try:
        text = Path(inspect.getsourcefile(function) or "").read_text(encoding="utf-8")
    except (TypeError, OSError) as error:
        raise TableSpecError(
            f"The transform {function!r} has no file with its text, so a change of it would go unnoticed.",
            state=NOTHING_WRITTEN,
            remedy="Pass a function of a module, or give `source.code_version` and change it with the function.",
        ) from error
    named = [getattr(function, "__qualname__", ""), text, *([code_of_module(also[0], also[1:])] if also else [])]
    return "\n".join(named)


def imported_and_not_listed(module: str, listed: Sequence[str]) -> Iterator[str]:
    """Yield the modules of the same project that a module imports and `source.code` does not list."""
    file, parts = file_of(module), module.split(".")
    if file is None:
        return
    is_package = file.name == "__init__.py"
    for node in ast.walk(ast.parse(file.read_bytes())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = parts[: len(parts) - node.level + is_package] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        for name in names:
            if name.split(".")[0] == parts[0]:  # only these may be looked for: that imports their packages
                found = name if file_of(name) else name.rpartition(".")[0]
                if found not in (module, *listed):
                    yield found


def file_of(module: str) -> Path | None:
    """Return the file with the text of a module; None if there is none. The packages around it are imported."""
    try:
        found = find_spec(module)
    except (ImportError, ValueError):
        return None
    return Path(found.origin) if found and found.origin and found.origin.endswith(".py") else None


def _text_of(module: str) -> str:
    if (file := file_of(module)) is None:
        raise TableSpecError(
            f"There is no module `{module}` of Python text.",
            state=NOTHING_WRITTEN,
            remedy="Correct its name in `source.code`, or `source.transform`.",
        )
    return file.read_text(encoding="utf-8")
