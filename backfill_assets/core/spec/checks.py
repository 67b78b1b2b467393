"""How the reconciliation of a table shows in Dagster."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

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
    show_values: bool = Field(
        default=False,
        description="Whether rows that differ or break a rule are shown with all their values. They stay in Dagster's "
        "history and logs, which others read than the table. Without it: key, event time, and which columns differ.",
    )
