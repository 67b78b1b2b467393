"""What a table is besides its columns: facts that it is made with, which no spec can change afterwards. Pure.

A table that is cut into days holds other rows below `2024-01-01` than one that is cut into months. Were it written by a
spec of the other kind, rows would be there twice, or gone, and every comparison of the new partitions would be green.
"""

from __future__ import annotations

from collections.abc import Mapping

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.fence import AT
from backfill_assets.errors import NOTHING_WRITTEN, TableFactsError

PREFIX = "backfill_assets."
OTHER_TABLE = (
    "Change the spec back. A table cannot become another one: give the new one a key of its own, load it, and let its "
    "readers move."
)
FACTS = ("grain", "time_zone", "event_time", "key_columns")


def facts_of(spec: TableSpec) -> dict[str, str]:
    """Return the facts of a table as properties of it."""
    values = (spec.grain.value, spec.time_zone, spec.event_time, ", ".join(spec.key_columns))
    return {f"{PREFIX}{name}": value for name, value in zip(FACTS, values, strict=True)}


def refuse_other_facts(spec: TableSpec, properties: Mapping[str, str], path: str) -> None:
    """Hold the facts of a table against its spec; those that it was made without are not looked at.

    | the table has                | the spec has              | |
    |------------------------------|---------------------------|-|
    | `grain` `daily`              | `grain: daily`            | |
    | `grain` `daily`              | `grain: monthly`          | refused |
    | `time_zone` `UTC`            | `time_zone: Asia/Kolkata` | refused |
    | `event_time` `ordered_at`    | `event_time: paid_at`     | refused |
    | `key_columns` `order_id`     | `key_columns: [id]`       | refused |
    | a fence                      | no `live`                 | refused |

    Raises:
        TableFactsError: One differs.
    """
    wanted = facts_of(spec)
    problems = [
        f"its `{name.removeprefix(PREFIX)}` is `{properties[name]}`, not `{value}`"
        for name, value in wanted.items()
        if properties.get(name, value) != value
    ]
    if spec.live is None and AT in properties:
        problems.append(f"a live stream owns its partitions from `{properties[AT]}` on, and the spec has no `live`")
    if problems:
        raise TableFactsError(
            f"`{spec.key}`: the table at `{path}` is another one than its spec describes: {'; '.join(problems)}.",
            state=NOTHING_WRITTEN,
            remedy=OTHER_TABLE,
            problems=problems,
        )
