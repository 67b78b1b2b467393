"""Figures as the benchmarks print them."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def table(title: str, rows: Sequence[tuple[str, float, str]]) -> list[str]:
    """Return lines of a table: name, median seconds, a remark."""
    width = max(len(title), *(len(name) for name, _, _ in rows))
    lines = [f"{title:<{width}}  seconds", "-" * (width + 9)]
    return lines + [f"{name:<{width}}  {seconds:7.1f}  {remark}".rstrip() for name, seconds, remark in rows]


def spread(seconds: Sequence[float]) -> str:
    return f"{min(seconds):.1f} to {max(seconds):.1f} in {len(seconds)} runs" if len(seconds) > 1 else ""


def tell(what: str, seconds: float | None) -> None:
    """Say on the error stream how far it is; the result goes to the other one."""
    print(f"{what}: {'n/a' if seconds is None else f'{seconds:.1f} s'}", file=sys.stderr, flush=True)
