"""The numbered migrations; a file that shipped is never edited."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

_FILE: Final = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One migration: its number, its name, and its whole text."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """Answer the SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@cache
def migrations() -> tuple[Migration, ...]:
    """Answer all migrations in order."""
    found = ((_FILE.fullmatch(entry.name), entry) for entry in files(__package__).iterdir())
    made = [
        Migration(int(match[1]), match[2], entry.read_text(encoding="utf-8"))
        for match, entry in found
        if match is not None
    ]
    return tuple(sorted(made, key=lambda migration: migration.version))


def latest_version() -> int:
    """Answer the version that this code needs."""
    return migrations()[-1].version
