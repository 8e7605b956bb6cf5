"""Declared concurrency: how many runs of a job, or of one key of it, there may be across the fleet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, Literal

from rowsweep.errors import ConcurrencyUnenforceable, InvalidDeclaration, InvalidOption, KeyBusy, SlotLost
from rowsweep.jobs.request import MAX_KEY
from rowsweep.options import count, one_of
from rowsweep.spelling import spelled
from rowsweep.telemetry.text import is_storable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

WhenBusy = Literal["wait", "fail"]
_MOST: Final = 2**31 - 1


@spelled
@dataclass(frozen=True, slots=True)
class Keyed:
    """Cap the runs that share a key across the fleet.

    `key` is a function of the input that answers text of 1 to 200 characters, asked when the job is enqueued. Over a
    busy key a job waits, uncounted, or with `when_busy="fail"` fails at once with X_JOB_KEY_BUSY, its body never run.
    """

    key: Callable[[Any], str]
    limit: int = 1
    when_busy: WhenBusy = "wait"

    def __post_init__(self) -> None:
        if not callable(self.key):
            raise _refused(
                f"Keyed.key must be a function of the input; got {self.key!r:.80}.", "Keyed(lambda order: order.shop)"
            )
        _check_limit(self.limit, "Keyed.limit")
        try:
            one_of(self.when_busy, ("wait", "fail"), option="when_busy")
        except InvalidOption as error:
            raise _refused(error.cause, error.fix) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """One cap that a run takes a slot under: a job's own (`key` is None), or that of one of its keys."""

    name: str
    limit: int
    key: str | None = None
    when_busy: WhenBusy = "wait"

    @property
    def lease_key(self) -> str:
        """What the fleet knows the cap by."""
        return lease_key(self.name, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """What a declaration says of concurrency: a plain cap, a keyed one, both, or neither."""

    limit: int | None = None
    keyed: Keyed | None = None

    def __bool__(self) -> bool:
        return self.limit is not None or self.keyed is not None

    def key_for(self, value: Any, *, job: str) -> str | None:
        """Answer the key of a job over this input, None without a keyed cap; raises InvalidDeclaration."""
        if self.keyed is None:
            return None
        key: object = self.keyed.key(value)
        if isinstance(key, str) and 1 <= len(key) <= MAX_KEY and is_storable(key):
            return key
        raise _refused(
            f"The concurrency key of {job!r} must be text of 1 to {MAX_KEY} characters, without NUL; "
            f"its function answered {key!r:.80}.",
            "concurrency=Keyed(lambda order: str(order.shop_id))",
        )

    def caps(self, name: str, key: str | None) -> list[Cap]:
        """Answer the caps of a job with this key, in the order its slots are taken in: the plain one first."""
        caps = [] if self.limit is None else [Cap(name=name, limit=self.limit)]
        if self.keyed is not None and key is not None:
            caps.append(Cap(name=name, limit=self.keyed.limit, key=key, when_busy=self.keyed.when_busy))
        return caps

    def describe(self) -> dict[str, Any] | None:
        """Answer it as plain JSON, None where nothing is declared."""
        if not self:
            return None
        keyed = self.keyed
        shown = None if keyed is None else {"limit": keyed.limit, "when_busy": keyed.when_busy}
        return {"limit": self.limit, "keyed": shown}


def lease_key(name: str, key: str | None = None) -> str:
    """Answer the lease key of a job's plain cap, or of one of its keys."""
    return f"job:{name}" if key is None else f"job:{name}:{key}"


def declared_concurrency(given: object) -> Concurrency:
    """Read `concurrency=`: a count, a `Keyed`, or a tuple of one each; raises InvalidDeclaration."""
    parts = given if isinstance(given, tuple) else () if given is None else (given,)
    keyed = [part for part in parts if isinstance(part, Keyed)]
    plain = [part for part in parts if not isinstance(part, Keyed)]
    if len(keyed) > 1 or len(plain) > 1 or given == ():
        raise _refused(
            f"concurrency is a count, a Keyed, or a tuple of one each; got {given!r:.120}.",
            "concurrency=(8, rs.Keyed(lambda order: order.shop))",
        )
    for limit in plain:
        _check_limit(limit, "concurrency")
    return Concurrency(limit=plain[0] if plain else None, keyed=keyed[0] if keyed else None)


def key_busy(cap: Cap, job_id: UUID) -> KeyBusy:
    """Answer that another run holds the key of a job that does not wait for it."""
    return KeyBusy(
        f"The job {job_id} was refused: {cap.limit} of {cap.name!r} with the key {cap.key!r} "
        f"{'runs' if cap.limit == 1 else 'run'} already, as many as may.",
        fix='concurrency=Keyed(…, when_busy="wait"), or enqueue it again later',
        meta={"job_id": str(job_id), "lease_key": cap.lease_key},
    )


def slot_lost(name: str, job_id: UUID, key: str, slot: int, why: str) -> SlotLost:
    """Answer that a run no longer holds its slot, so that another may run beside it."""
    return SlotLost(
        f"The run of job {job_id} ({name}) lost slot {slot} of {key!r}: {why}.",
        fix=f"rowsweep jobs ls --name {quote(name)} --state running",
        meta={"job": name, "job_id": str(job_id), "lease_key": key, "slot": slot},
    )


def unenforceable(driver: str, names: Sequence[str]) -> ConcurrencyUnenforceable:
    """Answer that a driver keeps no slots for the jobs that declare concurrency."""
    return ConcurrencyUnenforceable(
        f"The driver {driver!r} keeps no slots, so the concurrency of {', '.join(names)} cannot be held.",
        fix="a driver with slots, such as PostgresDriver, or no concurrency= on these jobs",
        meta={"driver": driver, "names": list(names)},
    )


def _check_limit(limit: object, option: str) -> None:
    try:
        count(limit, option=option, minimum=1, maximum=_MOST)
    except InvalidOption as error:
        raise _refused(error.cause, error.fix) from error


def _refused(cause: str, fix: str) -> InvalidDeclaration:
    return InvalidDeclaration(cause, fix=fix, meta={"field": "concurrency"})
