"""The receipt of a sweep: what in its table still matches, at one instant."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from rowsweep.errors import DriverUnavailable
from rowsweep.sweeps.run import host

KeyRange = tuple[tuple[str, ...] | None, tuple[str, ...] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a run's table holds at one instant, in one snapshot of the database.

    `matching` are the rows for which `where` holds (without one: all), `due` those of them that the sweep would have to
    do: None where that cannot be told, since rows that it did match still, or its expressions fail for one. `covered`
    are the key ranges that the run has gone over, `(after, up to]`, None an open end, a shard's together. `rejected`
    rows are set aside. `writers` had written to the table and were open a moment before: what they wrote may not be in
    the snapshot.
    """

    run_id: str
    name: str
    status: str
    table: str
    where: str | None
    rows: int
    matching: int
    due: int | None
    rejected: int
    covered: tuple[KeyRange, ...]
    writers: int
    snapshot: str
    at: datetime

    @property
    def is_complete(self) -> bool | None:
        """Whether the run is done and nothing is due or open; None where that cannot be told."""
        if self.status != "done" or self.rejected or self.writers or self.due:
            return False
        return None if self.due is None else True

    @property
    def words(self) -> str:
        """Say it in one line."""
        due = "cannot be told" if self.due is None else f"{self.due:,}"
        held = "" if not self.writers else f", {self.writers} open transaction{'s' * (self.writers > 1)} unseen"
        aside = "" if not self.rejected else f", {self.rejected:,} set aside"
        state = {True: "complete", False: "not complete", None: "cannot be told"}[self.is_complete]
        return (
            f"{self.name} on {self.table}: {state}. Due: {due}; matching: {self.matching:,}{aside}{held}. "
            f"Run {self.run_id} is {self.status}, {self.rows:,} rows; snapshot {self.snapshot} at {self.at:%F %T} UTC."
        )

    @property
    def fix(self) -> str:
        """Say what makes it complete; nothing where it is, or where that cannot be told."""
        if self.status == "running":
            return f"rowsweep sweeps watch {self.run_id}, until it has ended"
        if self.status != "done":
            return f"rowsweep sweeps resume {self.run_id}"
        if self.writers:
            return f"ask again when these transactions have ended: rowsweep sweeps verify {self.run_id}"
        if self.rejected:
            return f"rowsweep sweeps rejected {self.run_id}, and mended: rowsweep sweeps retry-rejected {self.run_id}"
        return f"rowsweep run {self.name} --force, which sweeps what matches now" if self.due else ""

    def __str__(self) -> str:
        """Answer its words."""
        return self.words

    def as_json(self) -> dict[str, Any]:
        """Answer it as plain JSON, `is_complete` and `fix` besides."""
        return {**asdict(self), "at": self.at.isoformat(), "is_complete": self.is_complete, "fix": self.fix}

    def _repr_html_(self) -> str | None:
        """Answer it as a page's part for a notebook; None, for its text, where nothing is connected any more."""
        try:
            return host().receipt_html(self)
        except DriverUnavailable:
            return None
