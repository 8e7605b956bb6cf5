"""Who uses the server: shares that end with their process, under one lock a folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@contextlib.contextmanager
def locked(home: Path) -> Iterator[None]:
    """Hold the folder's lock; the kernel drops it when its holder dies."""
    descriptor = os.open(home / "pg.lock", os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@dataclass(slots=True)
class Share:
    """One share in the server: a file that stays locked for as long as its process lives.

    A lock tells the living from the dead by itself: a process id may be another's by now, and means nothing in
    the next container.
    """

    path: Path
    process: int
    descriptor: int | None

    @classmethod
    def take(cls, home: Path) -> Share:
        """Take a share. Needs the folder's lock."""
        path = home / "pg.users" / f"{os.getpid()}-{secrets.token_hex(4)}"
        path.parent.mkdir(exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return cls(path, os.getpid(), descriptor)

    @property
    def is_held(self) -> bool:
        """Whether the share is held, and by this process: a fork's child has none of its own to give up."""
        return self.descriptor is not None and self.process == os.getpid()

    def give_up(self) -> None:
        """Give the share up. Needs the folder's lock."""
        self.path.unlink(missing_ok=True)
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def is_used(home: Path) -> bool:
    """Say whether a living process has a share, and forget those of dead ones. Needs the folder's lock."""
    found = False
    for path in (home / "pg.users").glob("*"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        except BlockingIOError:
            found = True
        finally:
            os.close(descriptor)
    return found
