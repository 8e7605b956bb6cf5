"""The destination of one run: taken at setup, watched at each part, and never shared with another export."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from rowsweep.errors import DestinationTaken

if TYPE_CHECKING:
    from rowsweep.sweeps.export.places.place import Draft, Place

MANIFEST: Final = "_manifest.json"
SUCCESS: Final = "_SUCCESS"
MARKER: Final = "_rowsweep.json"
_PART: Final = re.compile(r"(?:s\d{2}-)?part-\d{5,}(\.(?:parquet|csv|ndjson|arrow))")


def part_name(index: int, suffix: str, *, shard: int = 1) -> str:
    """Answer the name of a part: five digits, more if needed; the first shard's are named as those of a single job."""
    return f"{_stem(shard)}{index:05d}{suffix}"


def _stem(shard: int) -> str:
    return "part-" if shard == 1 else f"s{shard:02d}-part-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Know a place for the one run that writes there, and for one of its shards.

    A run that has begun is named by the marker, one that has ended by the manifest; whose neither is has lost the
    place to another.
    """

    place: Place
    run_id: UUID
    name: str
    suffix: str
    shard: int = 1

    def take(self, *, overwrite: bool) -> None:
        """Make the place this run's, removing with `overwrite` what a former export wrote there and nothing else.

        Done again after a crash it goes on. Raises DestinationTaken for another export's objects.
        """
        sizes = self.place.sizes()
        former = self.check_free(overwrite=overwrite, sizes=sizes)
        if former is None:
            return
        # First the word that it is whole, last what names the objects: a crash between leaves enough to go on by.
        for name in (SUCCESS, *former, MANIFEST):
            if name in sizes:
                self.place.remove(name)
        self.place.write(MARKER, json.dumps(self._claim()).encode())

    def check_free(self, *, overwrite: bool, sizes: dict[str, int] | None = None) -> list[str] | None:
        """Answer the parts that a former export left and may be replaced; None where the place is this run's already.

        Raises DestinationTaken for another export's objects.
        """
        sizes = self.place.sizes() if sizes is None else sizes
        marker, manifest = (self._document(name, sizes) for name in (MARKER, MANIFEST))
        if marker.get("run_id") == str(self.run_id):
            return None
        former = self._former(marker, manifest, sizes)
        strays = sorted(name for name in sizes if _PART.fullmatch(name) and name not in former)
        found = MANIFEST if MANIFEST in sizes else MARKER if MARKER in sizes else (strays or [""])[0]
        if found and not overwrite:
            raise self._taken(manifest or marker, found)
        if strays:
            raise self._strange(strays)
        return former

    def check(self) -> None:
        """Refuse to go on in a place that another export has taken meanwhile."""
        for name in (MARKER, MANIFEST):
            found = self._document(name)
            if found.get("run_id") == str(self.run_id):
                return
            if found:
                raise self._taken(found, name)
        raise DestinationTaken(
            f"{self.place.shown} no longer holds the marker {MARKER!r} of run {self.run_id}: somebody removed it.",
            fix="launch the export anew with overwrite=True, or with another to=",
            meta={"place": self.place.shown},
        )

    def check_alone(self, parts: set[str]) -> None:
        """Refuse to end an export beside parts that are not of it."""
        strays = sorted(name for name in self.place.sizes() if _PART.fullmatch(name) and name not in parts)
        if strays:
            raise self._strange(strays)

    def draft(self, index: int, claim: int) -> Draft:
        """Begin a part."""
        return self.place.draft(self.part_name(index), f"{self._tag}-{claim}")

    def part_name(self, index: int) -> str:
        """Answer the name of a part of this shard."""
        return part_name(index, self.suffix, shard=self.shard)

    def remove_leftovers(self, *, of_all: bool = False) -> None:
        """Remove temporary objects that a crashed attempt left: of this shard, or of the whole run at its end."""
        begins = "." if of_all else f".{_stem(self.shard)}"
        for name in self.place.sizes():
            if name.startswith(begins) and name.endswith(".tmp") and f".{self._tag}-" in name:
                self.place.remove(name)

    def release(self) -> None:
        """Say that the run has ended, and its manifest speaks for it."""
        self.place.remove(MARKER)

    @property
    def _tag(self) -> str:
        return self.run_id.hex

    def _claim(self) -> dict[str, Any]:
        return {"run_id": str(self.run_id), "name": self.name, "suffix": self.suffix}

    def _document(self, name: str, sizes: dict[str, int] | None = None) -> dict[str, Any]:
        data = None if sizes is not None and name not in sizes else self.place.read(name)
        if data is None:
            return {}
        try:
            found = json.loads(data)
        except ValueError:
            found = None
        return found if isinstance(found, dict) and found else {"run_id": None}

    @staticmethod
    def _former(marker: dict[str, Any], manifest: dict[str, Any], sizes: dict[str, int]) -> list[str]:
        """Answer the parts that a former export is known to have written."""
        parts = manifest.get("parts")
        listed = [part.get("name") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        named = [name for name in map(str, listed) if _PART.fullmatch(name)]
        begun = [
            name for name in sizes if (part := _PART.fullmatch(name)) is not None and part[1] == marker.get("suffix")
        ]
        return list(dict.fromkeys([*named, *begun]))

    def _taken(self, other: dict[str, Any], found: str) -> DestinationTaken:
        whose = f"of {other['name']!r} (run {other.get('run_id')})" if other.get("name") else "of another export"
        return DestinationTaken(
            f"{self.place.shown} holds {found!r} {whose}; {self.name!r} does not mix its parts with those.",
            fix="overwrite=True replaces what that export wrote; another to= leaves it",
            meta={"place": self.place.shown, "found": found, "run_id": other.get("run_id")},
        )

    def _strange(self, strays: list[str]) -> DestinationTaken:
        shown = ", ".join(strays[:3])
        return DestinationTaken(
            f"{self.place.shown} holds {len(strays)} parts that no manifest names, such as {shown}.",
            fix="remove them if they are no longer wanted, or export to another place: to=",
            meta={"place": self.place.shown, "parts": strays[:20]},
        )
