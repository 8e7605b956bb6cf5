"""Whether the place of an export is free, asked at its launch as far as that can be seen from there."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from rowsweep.errors import DestinationTaken
from rowsweep.sweeps.export.destination import Destination
from rowsweep.sweeps.export.places.place import is_store, open_place, resolve

if TYPE_CHECKING:
    from rowsweep.sweeps.export.declare import Export

_STORE_SECONDS: Final = 5.0


def refuse_taken(export: Export[Any], value: Any, run_id: UUID, *, is_worked_here: bool) -> None:
    """Refuse a launch whose place holds another export: DestinationTaken.

    A store is the same from everywhere, and asked for 5 s at most; a local folder is the run's only where this process
    works what it launches, and only there a function is asked which place it is. What cannot be seen from here,
    whatever the reason, is for the run to say.
    """
    if callable(export.spec.to) and not is_worked_here:
        return
    refusals: list[DestinationTaken] = []

    def look() -> None:
        try:
            where = resolve(export.spec.to, value)
            if is_worked_here or is_store(where):
                suffix = export.spec.format.suffix
                found = Destination(place=open_place(where), run_id=run_id, name=export.name, suffix=suffix)
                found.check_free(overwrite=export.spec.overwrite)
        except DestinationTaken as error:
            refusals.append(error)
        except Exception:  # noqa: BLE001 - the run says it better, from where it is worked
            return

    looking = threading.Thread(target=look, name="rowsweep-place", daemon=True)
    looking.start()
    looking.join(_STORE_SECONDS)
    if refusals:
        raise refusals[0]
