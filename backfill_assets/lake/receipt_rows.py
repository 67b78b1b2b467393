"""A receipt as rows of the table that keeps it: one for each partition, or one without a partition."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from backfill_assets.core.state.receipts import Measured, PartitionReceipt, Receipt
from backfill_assets.core.state.tallies import instant_of


def rows_of(version: int, receipt: Receipt) -> list[dict[str, Any]]:
    """Return one row for each partition; one without a partition where the receipt names none."""
    of_all = {
        "version": version,
        "kind": receipt.kind,
        "receipt_id": receipt.receipt_id,
        "run_id": receipt.run_id,
        "root_run_id": receipt.root_run_id,
        "staged_from_version": receipt.staged_from_version,
        "source": json.dumps(receipt.source),
        "reason": receipt.reason,
        "code_version": receipt.code_version,
        "checksum_encoding": receipt.checksum_encoding,
        "late_version": receipt.late_version,
        "flow": receipt.flow,
        "made_at": receipt.made_at,
        "columns": receipt.columns,
        "began_at": receipt.began_at,
        "plan": receipt.plan,
        "by": receipt.by,
        "overrides": receipt.overrides,
    }
    if not receipt.partitions:
        return [of_all]
    return [
        {
            **of_all,
            "partition": key,
            "rows": part.rows,
            "checksum": part.checksum,
            "first_event_time": _iso(part.first_event_micros),
            "last_event_time": _iso(part.last_event_micros),
            "superseded_rows": part.superseded_rows,
            "late_rows": part.late_rows,
            "rows_before": part.rows_before,
            "fingerprint": part.fingerprint,
            "measures": json.dumps(part.measures) if part.measures else None,
        }
        for key, part in receipt.partitions.items()
    ]


def _iso(micros: int | None) -> str | None:
    instant = instant_of(micros)
    return None if instant is None else instant.isoformat(timespec="microseconds")


def receipt_of(table: str, rows: Sequence[Mapping[str, Any]]) -> Receipt:
    """Join the rows of one commit again, which have the first and last event time in microseconds too."""
    first = rows[0]
    return Receipt(
        receipt_id=first["receipt_id"],
        table=table,
        run_id=first["run_id"],
        root_run_id=first["root_run_id"],
        staged_from_version=first["staged_from_version"],
        source=json.loads(first["source"]),
        partitions={row["partition"]: _partition_of(row) for row in rows if row["partition"] is not None},
        reason=first["reason"],
        code_version=first["code_version"],
        kind=first["kind"],
        late_version=first["late_version"],
        checksum_encoding=first["checksum_encoding"],
        flow=first["flow"],
        made_at=first["made_at"],
        columns=first["columns"],
        began_at=first["began_at"],
        plan=first["plan"],
        by=first["by"],
        overrides=first["overrides"],
    )


def _partition_of(row: Mapping[str, Any]) -> PartitionReceipt:
    return PartitionReceipt(
        row["rows"],
        row["checksum"],
        row["first_micros"],
        row["last_micros"],
        row["fingerprint"],
        superseded_rows=row["superseded_rows"],
        late_rows=row["late_rows"],
        measures=tuple(Measured(*each) for each in json.loads(row["measures"] or "[]")),
        rows_before=row["rows_before"],
    )
