"""What ends a run is one message: of ours, of Spark, or of somebody's code; no stack trace of Java reaches its reader."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from backfill_assets.errors import CommitConflictError
from backfill_assets.runs.recording import failures_for_dagster
from tests.spark.test_failures import JavaError

JAVA = "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows.\n\tat org.apache.X.y(X.java:1)"


def ended_by(error: Exception) -> Any:
    """Return what Dagster keeps of a run that an error has ended."""

    @dg.asset
    def orders() -> None:
        with failures_for_dagster("bronze/orders"):
            raise error

    ran = dg.materialize([orders], instance=dg.DagsterInstance.ephemeral(), raise_on_error=False)
    (failed,) = [event.step_failure_data for event in ran.get_step_failure_events()]
    return failed


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (JavaError(JAVA), "`bronze/orders`: Spark failed: [TASK_WRITE_FAILED] Task failed while writing rows. Nothing"),
        (CommitConflictError("Somebody came.", state="Nothing was written.", remedy="Wait."), "Somebody came. Nothing"),
    ],
)
def test_failure_of_spark_has_no_java_stack(error, says):
    """The run's error is three sentences, and nothing of Java's stack is behind it."""
    failed = ended_by(error)
    assert failed.user_failure_data.description.startswith(says)
    assert "org.apache" not in failed.error.to_string()
    assert failed.error.cause is None


def test_exception_of_code_names_its_line():
    """A transform's exception is told with file and line; its author finds the stack as the cause."""
    failed = ended_by(KeyError("amount"))
    said = failed.user_failure_data.description
    assert said.startswith("`bronze/orders`: KeyError: 'amount' (test_failures.py, line ")
    assert "whole in the table or absent" in said
    assert failed.error.cause.cls_name == "KeyError"
