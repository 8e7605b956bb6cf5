"""How a claim ends: the verdicts of a settlement, and the state each leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from rowsweep.jobs.attempts.failure import Failure
    from rowsweep.jobs.values.json_form import Json
    from rowsweep.queue.records import Claim, JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The body returned; `result` is the JSON form of what it returned."""

    result: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A counted failure; due again after the delay."""

    delay_seconds: float
    error: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Defer:
    """An uncounted failure (a refilling bucket); due again after the delay."""

    delay_seconds: float
    error: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Park:
    """Suspended until `wake_at`, uncounted.

    With `pausing` the ledger row becomes `paused`, unless its `wanted` went back to `run` in between: then the row
    is due now and its ledger row stays `running`.
    """

    wake_at: datetime | None = None
    delay_seconds: float | None = None
    pausing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shed:
    """Never ran: handed back uncounted, due after the delay."""

    delay_seconds: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveBack:
    """Interrupted by a drain: handed back uncounted, due now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bury:
    """Failed for good: a dead letter."""

    error: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Failed for good, declared without a dead letter."""

    error: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Refused by its busy key; the body never ran."""

    error: Failure


Verdict = Done | Retry | Defer | Park | Shed | GiveBack | Bury | Drop | Refuse


@dataclass(slots=True, kw_only=True)
class Settlement:
    """End one claim with one verdict; `progress` rides along, `duration_ms` goes into the counters.

    Never changed; one is made for every run. `sweep` says that the job has a ledger row which moves in the same
    statement.
    """

    claim: Claim
    verdict: Verdict
    duration_ms: int = 0
    progress: Json = None
    sweep: bool = False


@dataclass(frozen=True, slots=True)
class Effect:
    """What a verdict does to its row: state, attempt given back or kept, and the counter that moves."""

    state: JobState
    gives_back: bool
    counter: str | None


_EFFECTS: dict[type, Effect] = {
    Done: Effect("done", gives_back=False, counter="completed"),
    Retry: Effect("ready", gives_back=False, counter="retried"),
    Defer: Effect("ready", gives_back=True, counter="deferred"),
    Park: Effect("suspended", gives_back=True, counter=None),
    Shed: Effect("ready", gives_back=True, counter=None),
    GiveBack: Effect("ready", gives_back=True, counter=None),
    Bury: Effect("dead", gives_back=False, counter="dead"),
    Drop: Effect("failed", gives_back=False, counter="dropped"),
    Refuse: Effect("failed", gives_back=False, counter="refused"),
}


def effect_of(verdict: Verdict) -> Effect:
    """Answer what the verdict does; the one table both drivers settle by."""
    return _EFFECTS[type(verdict)]


def settled_state(verdict: Verdict) -> JobState:
    """Answer the state a job has after this verdict."""
    return effect_of(verdict).state


def wakes(verdict: Verdict) -> bool:
    """Say whether a row left waiting by this verdict is worth waking for once it is due soon.

    Not one that was shed: the next worker would only shed it in turn, and wake the others again.
    """
    return isinstance(verdict, (Retry, Defer, Park, GiveBack))
