"""Reads the tables in docstrings, so that tests hold the code against what its documentation says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def table_of(documented: Callable[..., Any]) -> list[dict[str, str]]:
    """Return the rows of the one table in a docstring, each by column name.

    Raises:
        AssertionError: There is no table, or a row has not as many cells as the head.
    """
    lines = [line.strip() for line in (documented.__doc__ or "").splitlines()]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert len(cells) > 2, f"{documented.__qualname__} has no table in its docstring"
    head, rule, *rows = cells
    assert all(set(cell) == {"-"} for cell in rule), rule
    assert all(len(row) == len(head) for row in rows), rows
    return [dict(zip(head, row, strict=True)) for row in rows]
