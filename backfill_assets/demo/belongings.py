"""What a demo has made below a lakehouse's root: that it may write over, or delete; nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError


@dataclass(frozen=True, slots=True)
class Belongings:
    """Where a demo writes, and how it knows again what an earlier run of it has made.

    Args:
        root: Of the lakehouse.
        marker: A file below it that says that the demo was here, with the ids of the tables that it made, one a line.
        folders: Made by the demo if it was here.
        tables: Folders of Delta tables. Somebody may make one by such a name long after a demo; it has another id.
    """

    root: Path
    marker: str
    folders: tuple[Path, ...]
    tables: tuple[Path, ...] = ()

    def refuse_others(self) -> None:
        """Refuse what somebody else has made.

        Raises:
            ConfigurationError: There is something that this demo has not made.
        """
        marker, known = self.root / self.marker, self._known()
        others = [path for path in self.folders if not marker.exists() and _has_something(path)]
        others += [path for path in self.tables if _has_something(path) and _id_of(path) not in known]
        if others:
            named = ", ".join(f"`{path}`" for path in others)
            raise ConfigurationError(
                f"{named}: that is there already, and this demo did not make it.",
                state=NOTHING_WRITTEN,
                remedy="Set LAKEHOUSE_ROOT to another folder for the demo; or, if nothing of yours is below "
                f"`{self.root}`, delete that.",
            )

    def claim(self) -> None:
        """Say from now on that the demo was here."""
        marker = self.root / self.marker
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()

    def note(self) -> None:
        """Write down which tables there are by now: after `refuse_others` they are the demo's."""
        there = {found for path in self.tables if _has_something(path) and (found := _id_of(path))}
        if there - (known := self._known()):
            (self.root / self.marker).write_text("".join(f"{one}\n" for one in sorted(known | there)))

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Write it down however a story ends."""
        try:
            yield
        finally:
            self.note()

    def _known(self) -> set[str]:
        marker = self.root / self.marker
        return set(marker.read_text().split()) if marker.exists() else set()


def _has_something(path: Path) -> bool:
    return path.is_dir() and any(path.iterdir())


def _id_of(path: Path) -> str | None:
    """Return the id that Delta gave a table when it was made; None if it cannot be told."""
    try:
        import deltalake
        from deltalake.exceptions import DeltaError
    except ImportError as error:
        raise ConfigurationError(
            f"`{error.name}` is not installed.",
            state=NOTHING_WRITTEN,
            remedy="Install what the demo needs: `pip install 'backfill-assets[demo]'`.",
        ) from error
    try:
        return str(deltalake.DeltaTable(path).metadata().id)
    except (DeltaError, OSError):
        return None
