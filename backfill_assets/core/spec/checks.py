"""How the reconciliation of a table shows in Dagster."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from backfill_assets.core.spec.fields import Strict


class Severity(StrEnum):
    """What a failed check means: `error` stops what comes after it, `warn` only shows."""

    ERROR = "error"
    WARN = "warn"


class Rule(StrEnum):
    """What holds for a partition whose check `reconciled` is green."""

    ROWS_MATCH_SOURCE = "rows_match_source"
    KEYS_ARE_UNIQUE = "keys_are_unique"
    ROWS_INSIDE_PARTITION = "rows_inside_partition"
    SCHEMA_MATCHES = "schema_matches"


class Tolerance(Strict):
    """How much of a partition may differ from its source. Whatever it lets pass is said beside the outcome.

    Where both are given, both must hold. A row that differs in its values counts once.
    """

    rows: int | None = Field(default=None, ge=1, description="So many rows, at most.")
    share: float | None = Field(
        default=None, gt=0, le=1, description="So much of the source's rows, at most: 0.001 is one in a thousand."
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.rows is None and self.share is None:
            raise ValueError("say `rows`, `share` or both")
        return self

    def lets_pass(self, differing: int, source_rows: int) -> bool:
        """Say whether so many rows of so many may differ."""
        few = self.rows is None or differing <= self.rows
        return few and (self.share is None or differing <= self.share * source_rows)

    def __str__(self) -> str:
        parts = [f"{self.rows:,} rows" if self.rows is not None else ""]
        parts += [f"{self.share:g} of the source's rows" if self.share is not None else ""]
        return " and ".join(filter(None, parts))


class Checks(Strict):
    """How the reconciliation shows in Dagster."""

    severity: Severity = Field(
        default=Severity.ERROR,
        description="`error`: what is made of a partition that differs is not run. `warn`: it only shows.",
    )
    separate: list[Rule] = Field(
        default_factory=list[Rule],
        description="Rules that are checks of their own too. Each costs an event per partition.",
    )
    tolerance: Tolerance | None = Field(
        default=None,
        description="How much of a partition may differ from its source before the check fails: `{rows: 10}`, "
        "`{share: 0.001}` or both. Without it not a row.",
    )
    show_values: bool = Field(
        default=False,
        description="Whether rows that differ or break a rule are shown with all their values. They stay in Dagster's "
        "history and logs, which others read than the table. Without it: key, event time, and which columns differ.",
    )
