"""What an enqueue asks of a driver, and what it is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, overload

from rowsweep.errors import InvalidOption, did_you_mean
from rowsweep.jobs.ambient import fresh_id
from rowsweep.options import count, duration, instant
from rowsweep.spelling import spelled
from rowsweep.telemetry.text import is_storable

if TYPE_CHECKING:
    from uuid import UUID

    from rowsweep.jobs.ambient import FreshId
    from rowsweep.jobs.values.json_form import Json

MAX_KEY: Final = 200


@dataclass(slots=True)
class NewJob:
    """Ask for one job; `run_at=None` and `delay_seconds=None` mean the database's now. Never changed once it is made.

    `run_at` is an aware instant; `delay_seconds` counts from the database's now; at most one is given. `id_text` is the
    id's own text where the id was just made; a job whose key is that very text was given none, so that no other has it.
    """

    id: UUID
    run_id: UUID
    name: str
    queue: str
    input: Json
    idempotency_key: str
    max_attempts: int
    priority: int = 0
    run_at: datetime | None = None
    delay_seconds: float | None = None
    tenant_id: str | None = None
    concurrency_key: str | None = None
    traceparent: str | None = None
    enqueued_by: str | None = None
    id_text: str | None = None

    @property
    def is_unkeyed(self) -> bool:
        """Whether no live job can have its key."""
        return self.idempotency_key is self.id_text


class Bulk(Sequence[NewJob]):
    """So many requests, each made when it is read: a driver sends the first while the next are made.

    One that is read again is made again, with the ids it had. What is kept meanwhile are ids that the garbage collector
    has no work with: a bulk of requests makes it walk all objects of the process.
    """

    def __init__(self, amount: int, request: Callable[[int, FreshId, FreshId], NewJob]) -> None:
        self._amount = amount
        self._request = request
        self._ids: list[FreshId] = []

    def __len__(self) -> int:
        return self._amount

    @overload
    def __getitem__(self, at: int) -> NewJob: ...

    @overload
    def __getitem__(self, at: slice) -> list[NewJob]: ...

    def __getitem__(self, at: int | slice) -> NewJob | list[NewJob]:
        wanted = range(self._amount)[at]
        return self._read(range(wanted, wanted + 1))[0] if isinstance(wanted, int) else self._read(wanted)

    def __iter__(self) -> Iterator[NewJob]:
        return iter(self[:])

    def _read(self, wanted: range) -> list[NewJob]:
        missing = 2 * (max(wanted, default=-1) + 1) - len(self._ids)
        self._ids += [fresh_id() for _ in range(missing)]
        request, ids = self._request, self._ids
        return [request(at, ids[2 * at], ids[2 * at + 1]) for at in wanted]


@dataclass(init=False, frozen=True, slots=True, kw_only=True)
class EnqueueResult:
    """Say which job now stands for the request, in which state; `deduplicated` when a live one already did."""

    id: UUID
    run_id: UUID
    state: str
    deduplicated: bool

    def __init__(self, *, id: UUID, run_id: UUID, state: str, deduplicated: bool) -> None:
        # By the slots themselves: what a frozen dataclass does takes twice as long, which a bulk pays for every job.
        _set_id(self, id)
        _set_run_id(self, run_id)
        _set_state(self, state)
        _set_deduplicated(self, deduplicated)


_set_id, _set_run_id, _set_state, _set_deduplicated = (
    vars(EnqueueResult)[field.name].__set__ for field in fields(EnqueueResult)
)


@spelled
@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueOptions:
    """Steer one enqueue.

    `key` dedupes over live jobs of that name and tenant (text of 1 to 200 characters, or a function of the input that
    answers it; none: no dedupe). `run_at` (aware) and `delay` exclude each other; a past instant is due now.
    `priority` is -1000…1000, higher first. `tx` is a connection with a transaction open (psycopg, or SQLAlchemy or
    Django over it): the job then exists from its commit on, and never if it rolls back. In another database than the
    queue's it is staged in that one's outbox, with `outbox=True` also in the queue's own, and a relay publishes it.
    """

    key: str | Callable[[Any], str] | None = None
    run_at: datetime | None = None
    delay: str | timedelta | None = None
    tenant: str | None = None
    queue: str | None = None
    priority: int | None = None
    tx: Any = None
    outbox: bool = False

    def __post_init__(self) -> None:
        if self.key is not None and not callable(self.key):
            check_key(self.key, option="key")
        if self.tenant is not None:
            check_text(self.tenant, option="tenant")
        if self.priority is not None:
            count(self.priority, option="priority", minimum=-1000, maximum=1000)
        if self.queue is not None:
            check_queue(self.queue)
        if self.run_at is not None:
            instant(self.run_at, option="run_at", works="datetime.now(timezone.utc) + timedelta(hours=1)")
        if self.delay is not None:
            duration(self.delay, option="delay")
        if not isinstance(self.outbox, bool):
            raise InvalidOption(
                f"outbox must be True or False; got {self.outbox!r:.80}.", fix="outbox=True", meta={"option": "outbox"}
            )
        if self.run_at is not None and self.delay is not None:
            raise InvalidOption(
                "run_at and delay exclude each other; both were given.", fix='give one, such as delay="5m"'
            )

    @classmethod
    def of(cls, options: EnqueueOptions | None, given: Mapping[str, Any]) -> EnqueueOptions:
        """Answer the options of one call: an object, its keywords, or an object with some keywords put over it."""
        if options is None and not given:
            return _NONE_GIVEN
        unknown = [name for name in given if name not in _OPTIONS]
        if unknown:
            raise InvalidOption(
                f"enqueue has no option {unknown[0]!r}; it has {', '.join(_OPTIONS)}.",
                fix=did_you_mean(unknown[0], _OPTIONS) or f"remove {unknown[0]}=",
                meta={"option": unknown[0]},
            )
        if options is None:
            return cls(**given)
        if not isinstance(options, EnqueueOptions):
            raise InvalidOption(
                f"the options of enqueue must be EnqueueOptions; got {options!r:.80}.",
                fix='handle.enqueue(input, key="order-42")',
                meta={"option": "options"},
            )
        return replace(options, **given)

    @property
    def delay_seconds(self) -> float | None:
        """Answer the delay in seconds, None where none was given."""
        return None if self.delay is None else duration(self.delay, option="delay").total_seconds()


_OPTIONS: Final = tuple(field.name for field in fields(EnqueueOptions))
_NONE_GIVEN: Final = EnqueueOptions()


def check_key(key: object, *, option: str) -> str:
    """Refuse an idempotency key that is not text of 1 to 200 characters."""
    return check_text(key, option=option)


def check_text(text: object, *, option: str) -> str:
    """Refuse what is not text of 1 to 200 characters that Postgres can keep."""
    if not isinstance(text, str) or not 1 <= len(text) <= MAX_KEY or not is_storable(text):
        raise InvalidOption(
            f"{option} must be text of 1 to {MAX_KEY} characters, without NUL; got {text!r:.80}.",
            fix=f'{option}="{"shop-7" if option == "tenant" else "order-42"}"',
            meta={"option": option},
        )
    return text


def check_queue(queue: object) -> str:
    """Refuse a queue name that is no short text, or begins with `*` (the wake's own words do)."""
    if not isinstance(queue, str) or not 1 <= len(queue) <= MAX_KEY or queue.startswith("*") or not queue.isprintable():
        raise InvalidOption(
            f"queue must be printable text of 1 to {MAX_KEY} characters that does not begin with '*'; "
            f"got {queue!r:.80}.",
            fix='queue="default"',
            meta={"option": "queue"},
        )
    return queue
