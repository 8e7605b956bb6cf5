"""Kill and stop whichever process holds the job, at random moments, while others stand by to take over."""

from __future__ import annotations

import logging
import os
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.acceptance.harness import Process, Site, until

VISIBILITY = "1s"
STANDING_BY = 3
# A process that is stopped between a batch's last statement and its commit holds the job row until the server ends
# its idle transaction, after 30 s.
TAKE_OVER_SECONDS = 60.0
# On a machine that is busy with other tests an interpreter may take most of a minute until its first batch.
PROGRESS_SECONDS = 150.0
_said = logging.getLogger("storm")


@dataclass(frozen=True)
class Loss:
    """A process that was stopped, and the claim that it then lost."""

    process: Process
    claim: int


@dataclass
class Storm:
    """Disturb a run so many times; `progress` answers how many rows it has swept so far."""

    site: Site
    kills: int
    stops: int
    progress: Callable[[], int]
    losses: list[Loss] = field(default_factory=list)
    _names: Any = field(default_factory=count)

    def __post_init__(self) -> None:
        seed = os.environ.get("ROWSWEEP_STORM")
        self.seed = secrets.randbits(32) if seed is None else int(seed)
        self._random = random.Random(self.seed)

    def rage(self) -> None:
        """Do all of it, each time at a random moment within the rows left for it, and leave the rest undisturbed."""
        _said.warning("ROWSWEEP_STORM=%s", self.seed)
        for _ in range(STANDING_BY):
            self._start()
        kinds = ["kill"] * self.kills + ["stop"] * self.stops
        self._random.shuffle(kinds)
        share = 0.8 * self.site.rows / len(kinds)
        for kind in kinds:
            self._await_moment(share)
            holder = self.site.until_held()
            _said.warning("%s %s at %s rows", kind, holder.name, self.progress())
            if kind == "kill":
                holder.kill()
                self._start()
            else:
                self._stop_past_the_lease(holder)

    def _start(self) -> None:
        self.site.worker(f"w{next(self._names)}", visibility=VISIBILITY)

    def _await_moment(self, share: float) -> None:
        """Wait for some more rows, or only for a holder, and then for a moment of about a batch's length."""
        rows = self.progress()
        if self._random.random() < 0.75:
            wanted = min(rows + self._random.uniform(0.1, 1.0) * share, self.site.rows)
            what = f"{wanted:.0f} rows, {rows} were there"
            self.site.until(lambda: self.progress() >= wanted, seconds=PROGRESS_SECONDS, what=what)
        self.site.until_held()
        time.sleep(self._random.uniform(0.0, 0.05))

    def _stop_past_the_lease(self, holder: Process) -> None:
        """Stop the holder until another process has its job, and some of these until that one has got on with it."""
        holder.stop()
        job = self.site.job()
        if job["claimed_by"] is None or not str(job["claimed_by"]).startswith(f"{holder.name}:"):
            holder.wake()
            return self._stop_past_the_lease(self.site.until_held())
        what = f"stop of {holder.name}: another one with its claim {job['claims']}"
        self.site.until(lambda: self.site.job()["claims"] > job["claims"], seconds=TAKE_OVER_SECONDS, what=what)
        rows, give_up_at = self.progress(), time.monotonic() + self._random.uniform(0.0, 1.0)
        while self.progress() == rows and time.monotonic() < give_up_at:
            time.sleep(0.01)
        holder.wake()
        self.losses.append(Loss(holder, job["claims"]))
        until(
            lambda: reported(self.losses[-1]), lambda: f"{self._unreported(holder, job['claims'])}: {self.site.shown()}"
        )
        return None

    def _unreported(self, holder: Process, claim: int) -> str:
        last = [f"{event['event']} {event.get('code') or ''}".strip() for event in holder.events()[-5:]]
        return (
            f"a report of {holder.name} (exit code {holder.code}) that its claim {claim} is lost, it said {last} last"
        )


def reported(loss: Loss) -> bool:
    """Say whether a woken process reported that its claim was gone."""
    return bool(loss.process.events("jobs.lease.lost", claim=loss.claim))
