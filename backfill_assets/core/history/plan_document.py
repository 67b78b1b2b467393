"""A plan as a document: what was looked at, what a launch would do with it, and whether that still holds. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from backfill_assets.core.calendar.partitions import Partition, runs_of
from backfill_assets.core.history.forecast import WRITES, Action, Forecast, PartitionForecast
from backfill_assets.core.history.planned_state import planned_digest
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.receipts import summed_columns
from backfill_assets.core.words import count_in_words
from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError, WindowError

FORMAT = 1
MARK = "backfill_assets_plan"

GUARDS = {"empty", "max_shrink", "expect"}
"""Fields of a spec that say which partitions are refused."""


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """What a launch of a range would do, with everything that was looked at to say so.

    Args:
        table: Table key.
        config: Of the launch: `only`, `allow_shrink`, `allow_unexpected`, `reason`.
        facts: What the plan was made of beside the partitions: code version, columns, guards, fence and version of the
            table.
        estimate: Seconds and, with prices, cost; each the least and the most.
        downstream: Ranges of partitions that are made of these, by table key, each with how many it is.
        made_at: Instant in ISO format, in UTC.
    """

    table: str
    partitions: tuple[PartitionForecast, ...]
    config: Mapping[str, Any]
    facts: Mapping[str, Any]
    is_deep: bool = False
    remarks: tuple[str, ...] = ()
    estimate: Mapping[str, Any] = field(default_factory=dict[str, Any])
    downstream: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])
    made_at: str = ""

    @property
    def id(self) -> str:
        """What names the plan: a digest of what it is made of and what it does."""
        deciding = [self.table, dict(self.config), dict(self.facts), [_fields_of(p) for p in self.partitions]]
        return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def written(self) -> list[PartitionForecast]:
        """The partitions that are written."""
        return [found for found in self.partitions if found.action in WRITES]

    def launches(self) -> list[list[PartitionForecast]]:
        """Return what each range launch writes: partitions that lie side by side."""
        by_partition = {found.partition: found for found in self.written}
        return [[by_partition[partition] for partition in run] for run in runs_of(sorted(by_partition))]

    def without(self, partitions: Collection[Partition]) -> PlanDocument:
        """Return the plan as far as it is about other partitions."""
        return replace(self, partitions=tuple(one for one in self.partitions if one.partition not in partitions))

    def to_json(self) -> str:
        """Return one JSON object."""
        counts = {action.value: sum(p.action is action for p in self.partitions) for action in Action}
        body = {
            MARK: FORMAT,
            "id": self.id,
            "table": self.table,
            "made_at": self.made_at,
            "config": dict(self.config),
            "facts": dict(self.facts),
            "deep": self.is_deep,
            "counts": counts,
            "estimate": dict(self.estimate),
            "launches": [[run[0].partition.key, run[-1].partition.key] for run in self.launches()],
            "downstream": {key: list(ranges) for key, ranges in self.downstream.items()},
            "remarks": list(self.remarks),
            "partitions": [_fields_of(found) for found in self.partitions],
        }
        return json.dumps(body, indent=1, ensure_ascii=False)


def facts_of(spec: TableSpec, forecast: Forecast, code_version: str) -> dict[str, Any]:
    """Return what a plan is made of beside its partitions."""
    return {
        "code_version": code_version,
        "columns": summed_columns(spec),
        "guards": spec.model_dump(mode="json", include=GUARDS),
        "fence": forecast.fence.at_utc.isoformat() if forecast.fence else None,
        "table_version": forecast.version,
    }


def table_of(text: str, name: str) -> str:
    """Return the key of the table that a plan is about.

    Raises:
        ConfigurationError: It is no plan, or one of a format that this version does not know.
    """
    return str(_body(text, name)["table"])


def plan_from_json(text: str, name: str, spec: TableSpec) -> PlanDocument:
    """Read a plan.

    Args:
        name: Where it was read from, for messages.

    Raises:
        ConfigurationError: It is no plan, or it was changed after it was made.
        WindowError: A partition of it is none of the table.
    """
    body = _body(text, name)
    try:
        partitions = tuple(
            PartitionForecast(
                spec.grid.partition(one["partition"]),
                Action(one["action"]),
                **{key: value for key, value in one.items() if key not in ("partition", "action")},
            )
            for one in body["partitions"]
        )
        read = PlanDocument(
            body["table"],
            partitions,
            body["config"],
            body["facts"],
            body["deep"],
            remarks=tuple(body["remarks"]),
            estimate=body["estimate"],
            downstream=body["downstream"],
            made_at=body["made_at"],
        )
        is_whole = read.id == body["id"]
    except WindowError:
        raise
    except KeyError as error:
        raise _no_plan(name, f"it lacks {error}") from error
    except (TypeError, AttributeError, ValueError) as error:
        raise _no_plan(name, f"somebody has changed it since it was made ({error})") from error
    if not is_whole:
        raise _no_plan(name, "somebody has changed it since it was made")
    return read


def drift(plan: PlanDocument, spec: TableSpec, now: Forecast, code_version: str) -> list[str]:
    """Return in words what is not as it was when a plan was made; nothing that the plan's launches do not touch.

    | changed since                              | named            |
    |--------------------------------------------|------------------|
    | nothing                                    | -                |
    | another partition was written              | -                |
    | the transform, or the spec                 | code             |
    | a column was added                         | columns, code    |
    | a guard of the spec                        | guards           |
    | a partition's files                        | source           |
    | a partition was published by another run   | table            |
    | somebody wrote rows to a partition         | table            |
    | somebody changed rows of a partition       | table            |
    | a late row came                            | late             |
    | the fence moved over a partition           | fence, partition |
    | what the launch would do with a partition  | partition        |

    Of a launch with `only: missing` what is published and as the source has it is not surveyed: that it was published
    since is named, and its source is not.

    Args:
        now: Of the partitions that the plan writes.
    """
    facts, found = facts_of(spec, now, code_version), list[str]()
    if facts["code_version"] != plan.facts["code_version"]:
        found.append("code: the spec or the transform is another one")
    if facts["columns"] != plan.facts["columns"]:
        found.append("columns: the spec has others")
    if facts["guards"] != plan.facts.get("guards", facts["guards"]):  # older plans do not name them
        found.append("guards: what the spec refuses is another (`max_shrink`, `expect` or `empty`)")
    if facts["fence"] != plan.facts["fence"]:
        found.append(f"fence: it was at {plan.facts['fence']}, and is at {facts['fence']}")
    have = {one.partition: one for one in now.partitions}
    for planned in plan.written:
        key, one = planned.partition.key, have.get(planned.partition)
        if one is None:
            found.append(f"partition {key}: it is none of the launch any more")
        elif one.action is Action.LEFT_OUT:
            found.append(f"partition {key}: it would be left out, since {one.why}")
        elif one.action is Action.IDENTICAL and planned.fingerprint and not one.fingerprint:
            found.append(f"table, partition {key}: it was published since, as its source has it")
        elif one.fingerprint != planned.fingerprint:
            found.append(f"source of {key}: it has changed")
        elif one.late_rows != planned.late_rows:
            found.append(f"late rows of {key}: they were {planned.late_rows:,}, and are {one.late_rows:,}")
        elif (one.made_of, one.rows_now) != (planned.made_of, planned.rows_now):
            found.append(
                f"table, partition {key}: it was written since; it had {count_in_words(planned.rows_now)} rows, "
                f"now {count_in_words(one.rows_now)}"
            )
        elif one.action is Action.REFUSED:
            found.append(f"partition {key}: it would be refused, since {one.why}")
    return found


def digest_of(launch: Sequence[PartitionForecast]) -> str:
    """Return the digest of what the partitions of one launch are made of, at the source and in the table."""
    return planned_digest({found.partition.key: found.made_of for found in launch})


def in_ranges(partitions: Sequence[Partition]) -> list[list[Any]]:
    """Return partitions as ranges: first key, last key and how many."""
    return [[run[0].key, run[-1].key, len(run)] for run in map(list, runs_of(sorted(partitions)))]


def _fields_of(found: PartitionForecast) -> dict[str, Any]:
    return {
        "partition": found.partition.key,
        "action": found.action.value,
        "why": found.why,
        "rows": found.rows,
        "rows_now": found.rows_now,
        "size_bytes": found.size_bytes,
        "files": found.files,
        "fingerprint": found.fingerprint,
        "receipt_id": found.receipt_id,
        "written_since": found.written_since,
        "late_rows": found.late_rows,
    }


def _body(text: str, name: str) -> dict[str, Any]:
    try:
        body: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _no_plan(name, f"it is no JSON ({error})") from error
    if not isinstance(body, dict) or "table" not in body or MARK not in body:
        raise _no_plan(name, f"it has no `{MARK}`")
    if body[MARK] != FORMAT:
        raise _no_plan(name, f"it is of format {body[MARK]}, and this version knows format {FORMAT}")
    return {**body}


def _no_plan(name: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"`{name}` is no plan that can be applied: {why}.",
        state=NOTHING_WRITTEN,
        remedy="Make one with `backfill-assets plan KEY --partition-range A...B -o plan.json`.",
    )
