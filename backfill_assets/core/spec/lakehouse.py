"""All specs of a lakehouse, held against each other."""

from __future__ import annotations

from collections.abc import Callable

from backfill_assets.core.spec.fields import unknown
from backfill_assets.core.spec.table import TableSpec


def check_together(specs: dict[str, TableSpec], report: Callable[[str, str], None]) -> None:
    """Hold all specs of a lakehouse against each other.

    Args:
        specs: By table key.
        report: Called with a key and a sentence for each contradiction.
    """
    _refuse_taken_names(specs, report)
    _refuse_side_tables(specs, report)
    for key, spec in specs.items():
        for source in spec.source.inputs:
            if source.table not in specs:
                report(key, f"source: {unknown(source.table, sorted(specs), 'table')}")
            elif specs[source.table].time_zone != spec.time_zone:
                report(
                    key,
                    f"time_zone: `{spec.time_zone}`, but `{source.table}` has `{specs[source.table].time_zone}`: "
                    "a day of one is not a day of the other",
                )
            elif specs[source.table].start > spec.start:
                report(
                    key,
                    f"start: `{spec.start}` lies before the start of `{source.table}` "
                    f"(`{specs[source.table].start}`), which it is made of",
                )


BESIDE_A_TABLE = {
    "_receipts": "the copy of its receipts",
    "_attempts": "what was refused, stopped or failed",
    "_late": "its late rows",
    "_quarantine": "its quarantine",
}
"""What a table keeps in a folder with its own name and this at the end."""


def _refuse_side_tables(specs: dict[str, TableSpec], report: Callable[[str, str], None]) -> None:
    """Report tables that would share a folder, or an asset's key, with what belongs to another table."""
    for key, spec in specs.items():
        of_the_stream = {"_live": "its live stream"} if spec.live else {}
        for suffix, what in (BESIDE_A_TABLE | of_the_stream).items():
            if key + suffix in specs:
                report(key + suffix, f"key: `{key}` has {what} under this name; choose another one")


def _refuse_taken_names(specs: dict[str, TableSpec], report: Callable[[str, str], None]) -> None:
    """Report once-flows whose name something else in the lakehouse has."""
    taken = {key: f"the table `{key}`" for key in specs}
    taken |= {f"{key}_live": f"the live stream of `{key}`" for key, spec in specs.items() if spec.live}
    for key, spec in specs.items():
        for flow in spec.once_flows:
            if flow.key in taken:
                report(
                    key,
                    f"once: the flow `{flow.name}` has the name of {taken[flow.key]}; choose another one, with "
                    "`name` or in `ranges`",
                )
            taken.setdefault(flow.key, f"a flow of `{key}`")
