"""An object store that `pyarrow.fs` opens: a part is spooled to an unnamed local file, then put in one go."""

from __future__ import annotations

import mmap
import tempfile
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

from rowsweep.errors import PartChanged

if TYPE_CHECKING:
    from pyarrow import fs


class StorePlace:
    """Keep objects under one prefix of a store; who asks is for the store's own environment variables to say.

    An object appears whole when its upload ends, or not at all.
    """

    renames = False

    def __init__(self, uri: str) -> None:
        from pyarrow import fs

        parts = urlsplit(uri)
        self._shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
        self._store: fs.FileSystem
        self._store, path = fs.FileSystem.from_uri(uri)
        self._path = path.rstrip("/")

    @property
    def shown(self) -> str:
        """The URI without its options."""
        return self._shown

    @property
    def files(self) -> tuple[fs.FileSystem, str]:
        """The file system and the prefix in it."""
        return self._store, self._path

    def sizes(self) -> dict[str, int]:
        """Answer the bytes of every object right under the prefix by name."""
        from pyarrow import fs

        found = self._store.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        return {info.base_name: int(info.size) for info in found if info.type == fs.FileType.File}

    def read(self, name: str) -> bytes | None:
        """Read a small object; None where there is none."""
        from pyarrow import fs

        if self._store.get_file_info(self._at(name)).type != fs.FileType.File:
            return None
        with self._store.open_input_stream(self._at(name)) as stream:
            return bytes(stream.read())

    def write(self, name: str, data: bytes) -> None:
        """Put a small object."""
        self.put(name, data)

    def put(self, name: str, data: Any) -> None:
        """Upload an object whole.

        The stream is closed only behind its one write: closing it after a failed one could end the upload as it is.
        """
        stream = self._store.open_output_stream(self._at(name))
        stream.write(data)
        stream.close()

    def remove(self, name: str) -> None:
        """Remove an object; one that is gone is no error."""
        from pyarrow import fs

        if self._store.get_file_info(self._at(name)).type == fs.FileType.File:
            self._store.delete_file(self._at(name))

    def draft(self, name: str, tag: str) -> StoreDraft:  # noqa: ARG002 - it has no name before it is put
        """Begin an object in a local file without a name: nothing is left of it after a crash."""
        return StoreDraft(self, name)

    def checksum(self, name: str) -> str | None:
        """Answer the object's ETag, where the store says one."""
        with self._store.open_input_stream(self._at(name)) as stream:
            said = {_text(key).lower(): _text(value) for key, value in (stream.metadata() or {}).items()}
        return said.get("etag")

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"


class StoreDraft:
    """A part on its way to a store."""

    def __init__(self, place: StorePlace, name: str) -> None:
        self._place = place
        self._name = name
        self.file: BinaryIO = tempfile.TemporaryFile(prefix="rowsweep-")  # noqa: SIM115 - closed by discard()

    def seal(self) -> None:
        """Hand every byte to the file: the copy that has to last is the store's."""
        self.file.flush()

    def publish(self) -> None:
        """Put it, and compare what the store has then."""
        size = self.file.seek(0, 2)
        # Not closed here: the stream may still hold it where the upload failed, and that error is the one to raise.
        self._place.put(self._name, mmap.mmap(self.file.fileno(), size, access=mmap.ACCESS_READ))
        found = self._place.sizes().get(self._name)
        if found != size:
            raise PartChanged(
                f"{self._place.shown}/{self._name} has {found} bytes right after {size} were put there.",
                fix="let nobody else write into this place, then launch the export anew with overwrite=True",
                meta={"part": self._name, "bytes": found, "expected": size},
            )

    def discard(self) -> None:
        """Close it, which removes it."""
        self.file.close()


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
