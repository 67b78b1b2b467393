"""Certificates: what partitions of a table held, chained so that a changed entry shows. Pure.

Each entry's link is a digest of the one before and of the entry itself, and the last one names the whole document. It
is no signature: whoever may write the file can chain it anew, so its id belongs where others see it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.core.state.tallies import CHECKSUM_ENCODING, Content, Contents
from backfill_assets.errors import ConfigurationError

FORMAT = 1
MARK = "backfill_assets_certificate"


@dataclass(frozen=True, slots=True)
class Entry:
    """What one partition held.

    Args:
        checksum: Of its rows, 16 hexadecimal digits.
        fingerprint: Of the source's content that it was made of.
        version: Of the table, that published it.
    """

    partition: str
    rows: int
    checksum: str
    fingerprint: str
    receipt_id: str
    run_id: str
    code_version: str
    version: int
    published_at: str

    @property
    def content(self) -> Content:
        return self.rows, self.checksum


@dataclass(frozen=True, slots=True)
class Certificate:
    """What some partitions of a table held at one version of it.

    Args:
        columns: Name and type of each column that the checksums are of, in order.
        made_at: Instant in ISO format, in UTC.
    """

    table: str
    table_version: int
    partition_column: str
    columns: tuple[tuple[str, str], ...]
    made_at: str
    by: str
    entries: tuple[Entry, ...]

    @property
    def id(self) -> str:
        """The last link: it changes with anything in the certificate."""
        return list(self.links())[-1]

    def to_json(self) -> str:
        """Return one JSON object."""
        first, *links = self.links()
        entries = [{**asdict(entry), "link": link} for entry, link in zip(self.entries, links, strict=True)]
        return json.dumps({**self._head(), "link": first, "entries": entries, "id": self.id}, indent=1)

    def _head(self) -> dict[str, Any]:
        return {
            MARK: FORMAT,
            "table": self.table,
            "table_version": self.table_version,
            "partition_column": self.partition_column,
            "columns": [list(column) for column in self.columns],
            "checksum_encoding": CHECKSUM_ENCODING,
            "made_at": self.made_at,
            "by": self.by,
        }

    def links(self) -> Iterator[str]:
        """Yield the link of the head, then that of each entry."""
        link = _digest("", self._head())
        yield link
        for entry in self.entries:
            link = _digest(link, asdict(entry))
            yield link


def entry_of(key: str, known: PublishedPartition) -> Entry:
    """Return the entry of a partition whose rows are those that its newest receipt names."""
    part, receipt = known.partition, known.receipt
    return Entry(
        key,
        part.rows,
        part.checksum,
        part.fingerprint,
        receipt.receipt_id,
        run_id=receipt.run_id,
        code_version=receipt.code_version,
        version=known.version,
        published_at=receipt.made_at,
    )


def certificate_from_json(text: str, name: str) -> Certificate:
    """Read a certificate, and hold every link of it.

    Args:
        name: Where it was read from, for messages.

    Raises:
        ConfigurationError: It is none, or it was changed after it was made; the first entry that does not hold is
            named.
    """
    try:
        body: Any = json.loads(text)
        if body[MARK] != FORMAT or body["checksum_encoding"] != CHECKSUM_ENCODING:
            raise _no_certificate(name, f"it is of format {body[MARK]}, encoding {body['checksum_encoding']}")
        entries: list[dict[str, Any]] = body["entries"]
        links = [body["link"], *(entry["link"] for entry in entries)]
        read = Certificate(
            body["table"],
            body["table_version"],
            body["partition_column"],
            tuple((column, kind) for column, kind in body["columns"]),
            body["made_at"],
            by=body["by"],
            entries=tuple(Entry(**{field: entry[field] for field in entry if field != "link"}) for entry in entries),
        )
        given = body["id"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _no_certificate(name, f"{type(error).__name__}: {error}") from error
    if not read.entries:
        raise _no_certificate(name, "it certifies nothing")
    places = ["its head", *(f"the entry of {entry.partition}" for entry in read.entries)]
    for place, link, right in zip(places, links, read.links(), strict=True):
        if link != right:
            raise _no_certificate(name, f"{place} was changed, or one before it was taken away")
    if given != read.id:
        raise _no_certificate(name, "entries at its end were taken away, or its id was changed")
    return read


def not_as_certified(entries: Sequence[Entry], found: Iterable[tuple[str, Content]]) -> dict[str, Content]:
    """Return what partitions hold that do not hold what was certified, by key."""
    certified: Contents = {entry.partition: entry.content for entry in entries}
    return {key: content for key, content in found if content != certified[key]}


def _digest(before: str, body: Mapping[str, Any]) -> str:
    return hashlib.sha256(f"{before} {json.dumps(body, sort_keys=True)}".encode()).hexdigest()


def _no_certificate(name: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"`{name}` is no certificate that holds: {why}.",
        state="Nothing was read.",
        remedy="Take the file as `backfill-assets certify` wrote it, or make a new one.",
    )
