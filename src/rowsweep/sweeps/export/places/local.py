"""A local folder: written to a temporary name, fsynced, renamed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from rowsweep.errors import InvalidOption


class LocalPlace:
    """Keep objects as files of one folder, which is made when the first is written."""

    renames = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def shown(self) -> str:
        """The folder's path."""
        return str(self._folder)

    def sizes(self) -> dict[str, int]:
        """Answer the bytes of every file by name."""
        try:
            with os.scandir(self._folder) as entries:
                return {entry.name: size for entry in entries if (size := _size(entry)) is not None}
        except FileNotFoundError:
            return {}
        except NotADirectoryError:
            raise InvalidOption(
                f"{self._folder} is, or lies in, a file; an export is a folder of parts.",
                fix=f"name a folder, such as {str(self._folder.with_suffix('.d'))!r}",
                meta={"path": str(self._folder)},
            ) from None

    def read(self, name: str) -> bytes | None:
        """Read a file; None where there is none."""
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole, or not at all."""
        draft = self.draft(name, "new")
        try:
            draft.file.write(data)
            draft.seal()
            draft.publish()
        finally:
            draft.discard()

    def remove(self, name: str) -> None:
        """Remove a file; one that is gone is no error."""
        (self._folder / name).unlink(missing_ok=True)

    def draft(self, name: str, tag: str) -> LocalDraft:
        """Begin a file under a hidden name with another ending, which no reader of the folder takes for a part."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return LocalDraft(self._folder / name, self._folder / f".{name}.{tag}.tmp")

    def checksum(self, name: str) -> str | None:  # noqa: ARG002 - a file system keeps none
        """Answer none."""
        return None


def _size(entry: os.DirEntry[str]) -> int | None:
    """Answer a file's bytes; None for what is no file, or was published or removed since the folder was read."""
    try:
        return entry.stat().st_size if entry.is_file() else None
    except FileNotFoundError:
        return None


class LocalDraft:
    """A file under its temporary name."""

    def __init__(self, final: Path, temporary: Path) -> None:
        self._final = final
        self._temporary = temporary
        self.file: BinaryIO = temporary.open("wb")

    def seal(self) -> None:
        """Flush the file to the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()

    def publish(self) -> None:
        """Rename it, and store that in the folder."""
        self._temporary.replace(self._final)
        folder = os.open(self._final.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def discard(self) -> None:
        """Close and remove what is left."""
        with suppress(OSError):  # closing flushes what a full disk would not take
            self.file.close()
        self._temporary.unlink(missing_ok=True)
