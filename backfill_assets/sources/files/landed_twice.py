"""Files that land once, and that a stream would read twice: by a link, or beside a copy; on local disks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from backfill_assets.errors import SourceRepeatedError
from backfill_assets.sources.files.links import identity
from backfill_assets.sources.files.listing import unpacked_name
from backfill_assets.spark.local_disk import local_path

_NOTHING = 2
"""Bytes of a file with nothing but a line break, which somebody put into the place of one that is gone."""


def refuse_landed_twice(key: str, root: str) -> None:
    """Refuse a landing folder in which something lies twice: Spark follows links, and reads what they lead to again.

    Args:
        key: Of the table, for the message.

    Raises:
        SourceRepeatedError: There is such a link, or a file beside its packed twin or its copy.
    """
    for path, other in landed_twice(root):
        raise SourceRepeatedError(
            f"`{key}`: `{path}` and `{other}` are one, by a link, or one is a copy of the other, packed or kept; each "
            "event would be read again.",
            state="Nothing was started.",
            remedy="Remove the link or the copy, or put it outside of the landing folder.",
            path=path,
        )


def landed_twice(root: str) -> Iterator[tuple[str, str]]:
    """Yield what lies below a folder on this disk twice, each with the path that it has besides.

    Names that begin with `.` or `_` are not looked at, nor what lies below them: Spark does not read those either.
    """
    top = local_path(root)
    if top is None or not top.is_dir():
        return
    inside = _Inside(top.resolve(), {identity(str(top)): str(top)})
    pending = [str(top)]
    while pending:
        first_of = dict[str, os.DirEntry[str]]()
        for entry in _seen_in(pending.pop()):
            with suppress(OSError):  # what is gone by now, or leads nowhere
                if entry.is_dir():
                    other = inside.another_way_to(entry)
                    pending += [] if other else [entry.path]
                elif (found := entry.stat()).st_size <= _NOTHING:
                    continue
                elif (first := first_of.setdefault(unpacked_name(entry.name), entry)) is not entry:
                    other = first.path
                else:
                    is_one_of_many = entry.is_symlink() or found.st_nlink > 1
                    other = inside.another_way_to(entry) if is_one_of_many else None
                if other:
                    yield entry.path, other


@dataclass(frozen=True, slots=True)
class _Inside:
    """What was found so far.

    Args:
        top: The landing folder, without links.
        paths: By what is the same for all names of a folder or a file.
    """

    top: Path
    paths: dict[object, str]

    def another_way_to(self, entry: os.DirEntry[str]) -> str | None:
        """Return by which other path an entry is read too; None if by no other that is known yet."""
        if entry.is_symlink():
            target = Path(entry.path).resolve()
            below = target.relative_to(self.top).parts if target.is_relative_to(self.top) else None
            if target in self.top.parents or (below is not None and not any(map(_is_hidden, below))):
                return str(target)
        other = self.paths.setdefault(identity(entry.path), entry.path)
        return None if other == entry.path else other


def _seen_in(folder: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder that Spark would read, in the order of their names; none if it may not be seen."""
    try:
        with os.scandir(folder) as entries:
            return sorted((e for e in entries if not _is_hidden(e.name)), key=lambda entry: entry.name)
    except OSError:
        return []


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))
