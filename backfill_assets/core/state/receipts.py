"""Receipts: what a publish did, as JSON in the commit that did it.

The commit and its receipt are one: whoever sees the rows can see the receipt, whatever was killed when.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.tallies import CHECKSUM_ENCODING, Content, Tally, total_of
from backfill_assets.errors import ReceiptError

FORMAT = 1

MARK = "backfill_assets"
"""Key by which a commit's user metadata is known to be a receipt."""

Known = TypeVar("Known")

UNDOES = "undoes"
"""Field of a receipt's source: ids of the receipts that it takes back."""

Kind = Literal["publish", "put_back", "reset"]

NO_VALUE = "none"
"""What a measure says of rows of which none has a value."""


class Measured(NamedTuple):
    """What a measure said of one group of a partition's rows, as text.

    Args:
        name: Of the measure, and by which column: `sum(amount) by currency`.
        group: A value of that column; None where it is NULL, empty where the measure is of all rows.
        before: What it was compared with; None where there was nothing to compare with.
        now: What was published.
    """

    name: str
    group: str | None
    before: str | None
    now: str

    def __str__(self) -> str:
        label = "NULL" if self.group is None else self.group or "''"
        group = f"{label}: " if " by " in self.name else ""
        return f"{group}{self.now}" + (f" (before: {self.before})" if self.before is not None else "")


@dataclass(frozen=True, slots=True)
class Run:
    """The run that writes: who started it and why, and the code that makes its rows.

    Args:
        id: Of the Dagster run; empty outside of one.
        root_id: Of the first run in a chain of re-executions; the same as `id` for a first run.
        by: A user, a schedule or a sensor. Empty if nobody knows.
        reason: In the launcher's words.
        plan: Id of the plan that it carries out.
        flow: Name of the once-flow that it is; empty for an ordinary launch.
        code_version: Of the code that makes the rows.
    """

    id: str = ""
    root_id: str = ""
    by: str = ""
    reason: str = ""
    plan: str = ""
    flow: str = ""
    code_version: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "root_id", self.root_id or self.id)


@dataclass(frozen=True, slots=True)
class PartitionReceipt:
    """What was published of one partition.

    Args:
        fingerprint: Of the source's content that was read; the same fingerprint means the same content.
        superseded_rows: Rows of the source, or late ones, that a newer one with the same key replaced.
        late_rows: Late rows that were joined to the source's.
        measures: What was measured, if the spec expects anything; it says nothing of what the rows are.
        rows_before: Rows that the table had in the partition, whoever wrote them; None if nobody could count them.
    """

    rows: int
    checksum: str
    first_event_micros: int | None
    last_event_micros: int | None
    fingerprint: str
    superseded_rows: int = 0
    late_rows: int = 0
    measures: tuple[Measured, ...] = field(default=(), compare=False)
    rows_before: int | None = field(default=None, compare=False)

    @classmethod
    def from_values(cls, *values: Any) -> PartitionReceipt:
        """Return one of its values in order, as JSON has them."""
        read = cls(*values)
        return replace(read, measures=tuple(Measured(*each) for each in read.measures))

    @classmethod
    def of(
        cls,
        tally: Tally,
        *,
        fingerprint: str,
        superseded_rows: int = 0,
        late_rows: int = 0,
        rows_before: int | None = None,
    ) -> PartitionReceipt:
        first, last = tally.first_event_micros, tally.last_event_micros
        return cls(
            tally.rows,
            tally.checksum_hex,
            first,
            last,
            fingerprint,
            superseded_rows,
            late_rows,
            rows_before=rows_before,
        )

    @property
    def content(self) -> Content:
        """What says whether two tallies, or receipts, are of the same rows."""
        return self.rows, self.checksum

    def matches(self, tally: Tally) -> bool:
        """Say whether a tally counts the rows that this receipt names."""
        return self.content == tally.content


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one publish did.

    Args:
        receipt_id: Unique for each attempt to publish; by it a commit is found again after its answer was lost.
        table: Table key.
        run: The run that published it.
        staged_from_version: Newest version of the table when the source was read.
        source: Position of the source in words: kind, and for example number and bytes of files, or versions of tables.
        partitions: By partition key.
        late_version: Version of `<table>_late` whose rows were joined to the source's; None if there is no such table.
        kind: `put_back` restores what an earlier version held; `reset` wrote nothing, its flow may run again.
        made_at: Instant in ISO format, in UTC, shortly before the commit.
        began_at: Likewise, in milliseconds, when its chunk began to be read.
        overrides: What the launch was allowed in spite of its guards, as its config names it; empty if nothing.
        columns: What the checksums are of, as `summed_columns` says it.
    """

    receipt_id: str
    table: str
    run: Run
    staged_from_version: int
    source: dict[str, Any]
    partitions: dict[str, PartitionReceipt]
    kind: Kind = "publish"
    late_version: int | None = None
    checksum_encoding: int = field(default=CHECKSUM_ENCODING)
    made_at: str = ""
    columns: str = ""
    began_at: str = ""
    overrides: str = ""

    @property
    def how(self) -> tuple[Kind, str, str, int]:
        """By what its partitions were made and summed up: only where this is the same can checksums be compared."""
        return self.kind, self.run.code_version, self.columns, self.checksum_encoding

    @property
    def total(self) -> tuple[int, int]:
        """Rows and checksum of its partitions together."""
        return total_of((part.rows, int(part.checksum, 16)) for part in self.partitions.values())

    def to_json(self) -> str:
        """Return compact JSON: one list per partition, since there may be two thousand."""
        body = asdict(self)
        body["partitions"] = {key: list(asdict(receipt).values()) for key, receipt in self.partitions.items()}
        return json.dumps({MARK: FORMAT, **body}, separators=(",", ":"), ensure_ascii=False)


def receipt_from_json(text: str | None) -> Receipt | None:
    """Read a commit's user metadata; None if it is somebody else's, or of another format.

    Raises:
        ReceiptError: It is a receipt that is damaged.
    """
    body = marked_body(text, MARK)
    if body is None or body.pop(MARK) != FORMAT:
        return None
    try:
        body["partitions"] = {key: PartitionReceipt.from_values(*values) for key, values in body["partitions"].items()}
        body["run"] = Run(**body["run"])
        return Receipt(**body)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ReceiptError(
            f"A commit holds a receipt that cannot be read ({error}).",
            state="The table's rows are not affected.",
            remedy="Only this package writes such receipts: find out who changed the table's log.",
        ) from error


@dataclass(frozen=True, slots=True)
class PublishedPartition:
    """The newest publish of one partition.

    Args:
        restored: What had published the content that it put back; None where it put nothing back, or nobody had.
    """

    version: int
    receipt: Receipt
    partition: PartitionReceipt
    restored: PublishedPartition | None = None

    @property
    def has_published_rows(self) -> bool:
        """Whether its rows are exactly those of a publish; what was put back may also be a live stream's."""
        if self.receipt.kind != "put_back":
            return True
        if self.restored is None or not self.restored.has_published_rows:
            return False
        summed = [(one.receipt.columns, one.receipt.checksum_encoding) for one in (self, self.restored)]
        return summed[0] == summed[1] and self.partition.content == self.restored.partition.content


def summed_columns(spec: TableSpec) -> str:
    """Return a short hash of what a row's checksum is of: the columns, their types, and their order."""
    columns = [[name, column.type] for name, column in spec.columns.items()]
    return hashlib.sha256(json.dumps(columns).encode()).hexdigest()[:8]


def has_other_columns(receipt: Receipt, spec: TableSpec) -> bool:
    """Say whether a receipt's checksums are of other columns than a spec has."""
    return receipt.columns != summed_columns(spec)


def audited_contents(
    published: Mapping[str, PublishedPartition], partitions: Sequence[Partition], spec: TableSpec, code_version: str
) -> dict[str, Content]:
    """Return which contents of partitions an audit by this very code let through, by key: in those no key comes twice.

    | receipt    | code        | columns, encoding | audited |
    |------------|-------------|-------------------|---------|
    | `publish`  | the same    | the same          | yes     |
    | `publish`  | the same    | others            | no      |
    | `publish`  | another     | -                 | no      |
    | `publish`  | not known   | -                 | no      |
    | `put_back` | -           | -                 | no      |

    Args:
        code_version: Of the code that asks; empty: not known.
    """
    wanted = "publish", code_version, summed_columns(spec), CHECKSUM_ENCODING
    return {
        partition.key: known.partition.content
        for partition in partitions
        if code_version and (known := published.get(partition.key)) and known.receipt.how == wanted
    }


def without(receipt: Receipt, keys: Collection[str]) -> Receipt:
    """Return a receipt that does not name some partitions."""
    return replace(receipt, partitions={key: part for key, part in receipt.partitions.items() if key not in keys})


def marked_body(text: str | None, mark: str) -> dict[str, Any] | None:
    """Return the fields of a commit's user metadata that has our mark; None where it is somebody else's."""
    if not text or mark not in text:
        return None
    try:
        parsed: Any = json.loads(text)
    except ValueError:
        return None
    if not isinstance(parsed, dict) or mark not in parsed:
        return None
    body: dict[str, Any] = {**parsed}
    return body


def newest_by_partition(receipts: dict[int, Receipt]) -> dict[str, PublishedPartition]:
    """Return the newest publish of each partition.

    | version 1    | version 2    | version 3                  | newest     |
    |--------------|--------------|----------------------------|------------|
    | publish      | publish      |                            | version 2  |
    | publish      | publish      | put back as at version 1   | version 3  |
    | of another   | publish      | put back as at version 1   | none       |

    What was put back to before the first publish is published by nobody.

    Args:
        receipts: By table version.
    """
    known: dict[str, list[tuple[int, PublishedPartition | None]]] = {}
    for version in sorted(receipts):
        receipt = receipts[version]
        for key, partition in receipt.partitions.items():
            earlier = known.setdefault(key, [])
            is_undo = receipt.kind == "put_back"
            restored = latest_at(earlier, as_at(version, receipt)) if is_undo else None
            published = PublishedPartition(version, receipt, partition, restored)
            earlier.append((version, None if is_undo and restored is None else published))
    newest = {key: versions[-1][1] for key, versions in known.items()}
    return {key: published for key, published in newest.items() if published is not None}


def latest_at(timeline: Sequence[tuple[int, Known]], version: int) -> Known | None:
    """Return what held at a version, of what began to hold at some versions, in order; None before the first."""
    return next((known for began, known in reversed(timeline) if began <= version), None)


def undone_by(receipt: Receipt) -> Sequence[str]:
    """Return the ids of the receipts that one takes back; none if it is no undo."""
    named: Sequence[str] = receipt.source.get(UNDOES) or []
    return named


def as_at(version: int, receipt: Receipt) -> int:
    """Return the version whose content a receipt of this version put back."""
    before = receipt.source.get("version")
    return before if isinstance(before, int) else version - 1
