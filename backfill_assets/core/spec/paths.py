"""The folders that the tables of a project name, compared with each other. Pure: no storage is looked at."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from backfill_assets.core.spec.fields import is_uri
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.spec.versions import name_of

S3_SCHEMES = ("s3", "s3a", "s3n")


@dataclass(frozen=True, slots=True)
class NamedFolder:
    """A folder that a table reads.

    Args:
        key: Of the table.
        field: That names it: `live.path`, `changes.capture` or `source.path`.
        path: As the spec says it; below `landing/` unless it is absolute.
    """

    key: str
    field: str
    path: str

    def __str__(self) -> str:
        return f"`{self.field}` of `{self.key}`"


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """Two folders of which one is the other or holds it, and that no two readers may share.

    Args:
        reader: The stream, or the change feed.
        other: What lies there too.
        how: `is`, `lies in` or `holds`, said of the reader's folder.
    """

    reader: NamedFolder
    other: NamedFolder
    how: str

    def __str__(self) -> str:
        return (
            f"the folder `{self.reader.path}` {self.how} `{self.other.path}`, which is {self.other}; its files would "
            "be read as events of both. Name a folder of its own for each"
        )


def shared_folders(specs: Mapping[str, TableSpec], place: Callable[[str], str]) -> Iterator[SharedFolder]:
    """Yield the folders of a project that two readers would share.

    | one               | other             | may be equal             | may lie in each other |
    |-------------------|-------------------|--------------------------|-----------------------|
    | `source.path`     | `source.path`     | yes                      | yes                   |
    | `live.path`       | `source.path`     | no                       | no                    |
    | `live.path`       | `live.path`       | if versions of one table | no                    |
    | `live.path`       | `changes.capture` | no                       | no                    |
    | `changes.capture` | `source.path`     | no                       | no                    |
    | `changes.capture` | `changes.capture` | yes                      | -                     |

    Args:
        specs: By table key.
        place: Returns one name for whatever a path names, as `place_of` does; equal folders have equal names.
    """
    read = [(folder, place(folder.path)) for spec in specs.values() for folder in _folders_of(spec)]
    for (one, here), (other, there) in combinations(read, 2):
        reader, beside = sorted((one, other), key=lambda folder: _ORDER.index(folder.field))
        if reader.field == "source.path" or reader.field == beside.field == "changes.capture":
            continue
        if here == there and reader.field == beside.field and name_of(one.key) == name_of(other.key):
            continue
        how = _how(*((here, there) if reader is one else (there, here)))
        if how:
            yield SharedFolder(reader, beside, how)


def place_of(path: str, root: str | None = None) -> str:
    """Return one spelling of a folder: no `.`, no `..`, no `/` too many, no `file:`, one scheme for S3.

    Args:
        root: Of the lakehouse. Without it relative paths are compared with each other alone.
    """
    if not path.startswith("/") and not is_uri(path):
        if root is None:
            return posixpath.normpath(f"landing/{path}")
        path = f"{root}/landing/{path}"
    scheme, _, rest = path.partition(":") if is_uri(path) else ("file", "", path)
    scheme = scheme.lower()
    if scheme == "file":
        return posixpath.normpath(re.sub(r"^/+", "/", rest))
    return f"{'s3' if scheme in S3_SCHEMES else scheme}:{posixpath.normpath(rest)}"


def lies_in(inner: str, outer: str) -> bool:
    """Say whether one place is another, or lies anywhere below it."""
    return inner == outer or inner.startswith(f"{outer.rstrip('/')}/")


_ORDER = ("live.path", "changes.capture", "source.path")


def _folders_of(spec: TableSpec) -> Iterator[NamedFolder]:
    named = {
        "live.path": spec.live.path if spec.live else None,
        "changes.capture": f"changes/{spec.changes.capture}" if spec.changes else None,
        "source.path": spec.source.landing_folder,
    }
    return (NamedFolder(spec.key, field, path) for field, path in named.items() if path is not None)


def _how(here: str, there: str) -> str:
    if here == there:
        return "is"
    return "lies in" if lies_in(here, there) else "holds" if lies_in(there, here) else ""
