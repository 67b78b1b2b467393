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
        marker: A file that says that the demo was here, with the ids of the tables that it made, one a line.
        folders: Made by the demo if it was here.
        tables: Folders of Delta tables. Somebody may make one by such a name long after a demo; it has another id.
    """

    marker: Path
    folders: tuple[Path, ...]
    tables: tuple[Path, ...] = ()

    def refuse_others(self) -> None:
        """Refuse what somebody else has made, and say from now on that the demo was here.

        Raises:
            ConfigurationError: There is something that this demo has not made.
        """
        was_here, known = self.marker.exists(), self._known()
        others = [path for path in self.folders if not was_here and _has_something(path)]
        others += [path for path in self.tables if _has_something(path) and _id_of(path) not in known]
        if others:
            raise ConfigurationError(
                f"`{others[0]}` is there already, and this demo did not make it.",
                state=NOTHING_WRITTEN,
                remedy="Set LAKEHOUSE_ROOT to another folder for the demo; or delete it, if it is of a demo that was "
                "killed.",
            )
        self.marker.parent.mkdir(parents=True, exist_ok=True)
        self.marker.touch()

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Write down, however a story ends, which tables it has made."""
        try:
            yield
        finally:
            there = {found for path in self.tables if path.is_dir() and (found := _id_of(path))}
            self.marker.write_text("".join(f"{one}\n" for one in sorted(self._known() | there)))

    def _known(self) -> set[str]:
        return set(self.marker.read_text().split()) if self.marker.exists() else set()


def _has_something(path: Path) -> bool:
    return path.is_dir() and any(path.iterdir())


def _id_of(path: Path) -> str | None:
    """Return the id that Delta gave a table when it was made; None if the folder is none."""
    try:
        import deltalake
        from deltalake.exceptions import TableNotFoundError
    except ImportError as error:
        raise ConfigurationError(
            f"`{error.name}` is not installed.",
            state=NOTHING_WRITTEN,
            remedy="Install what the demo needs: `pip install 'backfill-assets[demo]'`.",
        ) from error
    try:
        return str(deltalake.DeltaTable(path).metadata().id)
    except TableNotFoundError:
        return None
