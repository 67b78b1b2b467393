"""All specs of a lakehouse, held against each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from backfill_assets.core.spec.fields import unknown
from backfill_assets.core.spec.paths import place_of, shared_folders
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.spec.versions import copy_problems, key_before, version_problems, versions_mixed


def check_together(specs: dict[str, TableSpec], report: Callable[[str, str], None]) -> None:
    """Hold all specs of a lakehouse against each other.

    Args:
        specs: By table key.
        report: Called with a key and a sentence for each contradiction.
    """
    _refuse_taken_names(specs, report)
    _refuse_side_tables(specs, report)
    _refuse_wrong_versions(specs, report)
    for shared in shared_folders(specs, place_of):
        report(shared.reader.key, f"{shared.reader.field}: {shared}")
    for key, spec in specs.items():
        for source in spec.inputs:
            if source.table not in specs:
                report(key, f"source: {unknown(source.table, sorted(specs), 'table')}")
            elif spec.source.is_of_version:
                continue  # its rows are found by their time, in whatever partitions they are
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
    "_history": "what was done to it",
    "_late": "its late rows",
    "_quarantine": "its quarantine",
}
"""What a table keeps in a folder with its own name and this at the end."""


def _refuse_side_tables(specs: dict[str, TableSpec], report: Callable[[str, str], None]) -> None:
    """Report tables that would share a folder, or an asset's key, with what belongs to another table."""
    for key, spec in specs.items():
        of_the_stream = {"_live": "its live stream"} if spec.live or spec.changes else {}
        of_the_feed = {"_changes": "the changes of its feed"} if spec.changes else {}
        for suffix, what in (BESIDE_A_TABLE | of_the_stream | of_the_feed).items():
            if key + suffix in specs:
                report(key + suffix, f"key: `{key}` has {what} under this name; choose another one")


def _refuse_taken_names(specs: dict[str, TableSpec], report: Callable[[str, str], None]) -> None:
    """Report once-flows whose name something else in the lakehouse has."""
    taken = {key: f"the table `{key}`" for key in specs}
    taken |= {f"{key}_live": f"the live stream of `{key}`" for key, spec in specs.items() if spec.live or spec.changes}
    for key, spec in specs.items():
        for flow in spec.once_flows:
            if flow.key in taken:
                report(
                    key,
                    f"once: the flow `{flow.name}` has the name of {taken[flow.key]}; choose another one, with "
                    "`name` or in `ranges`",
                )
            taken.setdefault(flow.key, f"a flow of `{key}`")
    for joint in ("_", "__"):  # jobs, checks, sensors and steps are named so
        named: dict[str, str] = {}
        for key in specs:
            other = named.setdefault(key.replace("/", joint), key)
            if other != key:
                report(
                    key,
                    f"key: Dagster's names of its jobs and checks would be those of `{other}`: both are "
                    f"`{key.replace('/', joint)}` there; choose another one",
                )


def _refuse_wrong_versions(specs: dict[str, TableSpec], report: Callable[[str, str], None]) -> None:
    """Report versions that do not follow from the one before, and tables that are made of two versions of one table."""
    for key, spec in specs.items():
        if version := spec.version_of:
            before = key_before(key, version)
            if before not in specs and not version.retired:
                report(
                    key,
                    f"version_of: {unknown(before, sorted(specs), 'table')}. If it was retired and its spec removed, "
                    "say `retired: true` here",
                )
            elif before in specs:
                for problem in version_problems(spec, version, specs[before]):
                    report(key, f"version_of.{problem}")
        if spec.source.is_of_version:
            for source in spec.inputs:
                if version and source.table in specs:
                    for problem in copy_problems(spec, version, specs[source.table]):
                        report(key, problem)
            continue
        made_of = {source.table: all_below(source.table, specs) for source in spec.inputs}
        for first, second in versions_mixed(made_of):
            report(
                key,
                f"source: it is made of `{first}` and of `{second}`, two versions of one table: what is in both would "
                "count twice. Make it of one version only; `backfill-assets version new --downstream` writes a version "
                "of each table below",
            )


def all_below(key: str, specs: Mapping[str, TableSpec]) -> frozenset[str]:
    """Return a table and every table that its rows are made of; a copy of an earlier version is made of itself."""
    found: set[str] = set()
    waiting = [key]
    while waiting:
        one = waiting.pop()
        if one in found or one not in specs:
            continue
        found.add(one)
        if not specs[one].source.is_of_version:
            waiting += [source.table for source in specs[one].inputs]
    return frozenset(found)
