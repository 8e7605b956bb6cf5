"""A local folder: written to a temporary name, fsynced, renamed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from rowsweep.errors import InvalidOption

# What stays as it is until somebody changes it; a full disk or a mount that is away may pass.
_STANDING: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL}
)


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
            with _standing_refused(self._folder), os.scandir(self._folder) as entries:
                return {entry.name: size for entry in entries if (size := _size(entry)) is not None}
        except FileNotFoundError:
            return {}

    def read(self, name: str) -> bytes | None:
        """Read a file; None where there is none."""
        try:
            with _standing_refused(self._folder / name):
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
        with _standing_refused(self._folder / name):
            (self._folder / name).unlink(missing_ok=True)

    def draft(self, name: str, tag: str) -> LocalDraft:
        """Begin a file under a hidden name with another ending, which no reader of the folder takes for a part."""
        final = self._folder / name
        with _standing_refused(final):
            self._folder.mkdir(parents=True, exist_ok=True)
            if final.is_dir():  # said before the part is made, not once it is to be renamed
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            return LocalDraft(final, self._folder / f".{name}.{tag}.tmp")

    def checksum(self, name: str) -> str | None:  # noqa: ARG002 - a file system keeps none
        """Answer none."""
        return None


@contextmanager
def _standing_refused(path: Path) -> Iterator[None]:
    """Refuse for good, by the path, what no other try would change."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.EEXIST):
            file = next((one for one in (path, *path.parents) if one.is_file()), path)
            raise InvalidOption(
                f"{file} is a file; an export is a folder of parts.",
                fix=f"move it away, or name another folder, such as {f'{file}.d'!r}: to=",
                meta={"path": str(file)},
            ) from None
        if error.errno in _STANDING:
            raise InvalidOption(
                f"{path} cannot be read or written: {error.strerror}.",
                fix="let the worker's user write there, remove what is in the way, or name another folder: to=",
                meta={"path": str(path)},
            ) from error
        raise


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
        with _standing_refused(self._final):
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
        with suppress(NotADirectoryError):  # its folder is a file by now, which the place says
            self._temporary.unlink(missing_ok=True)
