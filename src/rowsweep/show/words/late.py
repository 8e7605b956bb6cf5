"""Say in words what a run that is done leaves open: transactions that outlived it, and rows that cannot be told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowsweep.show.words import values
from rowsweep.show.words.clean import clean

if TYPE_CHECKING:
    from rowsweep.sweeps.snapshot import Snapshot


def late_words(snapshot: Snapshot) -> str:
    """Answer it in a few words; nothing where there is nothing to say."""
    options = snapshot.options if isinstance(snapshot.options, dict) else {}
    late = options.get("late")
    if snapshot.status != "done" or not isinstance(late, dict):
        return ""
    writers, unsure = late.get("writers"), late.get("unsure", 0)
    said = [f"{values.number(writers)} open {'writer' if writers == 1 else 'writers'} unseen"] if writers else []
    if unsure != 0:
        said.append("rows in doubt" if unsure is None else f"{values.number(unsure)} in doubt")
    return ", ".join(said)


def late_trouble(snapshot: Snapshot) -> str:
    """Answer it with what to do about it."""
    words = late_words(snapshot)
    return f"{words}: rowsweep sweeps verify {clean(snapshot.run_id)}" if words else ""
