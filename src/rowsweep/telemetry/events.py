"""Every event that rowsweep logs, with its level and its fields, and the one function that logs them."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rowsweep.errors import InvariantBroken, RowsweepError, did_you_mean
from rowsweep.telemetry.redact import redact_text
from rowsweep.telemetry.text import error_text

LOGGER_NAME = "rowsweep"
ERROR_FIELDS = ("error", "code", "cause", "fix")
_logger = logging.getLogger(LOGGER_NAME)
_logger.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Event:
    """Describe one event: its level, the fields it may carry, and the field that makes it an error when set."""

    name: str
    level: int
    fields: tuple[str, ...]
    error_when: str | None = None

    def level_for(self, fields: Mapping[str, object]) -> int:
        """Answer the level of one occurrence."""
        is_error = self.error_when is not None and fields.get(self.error_when) is not None
        return logging.ERROR if is_error else self.level


def _event(name: str, level: int, fields: str = "", error_when: str | None = None) -> Event:
    return Event(name, level, tuple(fields.split()), error_when)


_D, _I, _W, _E = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR
_TABLE = (
    _event("jobs.worker.started", _I, "worker_id queues concurrency names"),
    _event("jobs.worker.stopped", _I, "worker_id processed interrupted"),
    _event("jobs.worker.draining", _I, "worker_id reason in_flight"),
    _event("jobs.worker.drain-abandoned", _W, "worker_id reason in_flight fix"),
    _event("jobs.worker.shed", _I, "worker_id queue job job_id reason delay_seconds"),
    _event("jobs.worker.slot-lost", _E, "worker_id job job_id lease_key slot"),
    _event("jobs.worker.tick-failed", _E, "worker_id queue"),
    _event("jobs.run.finished", _I, "queue job job_id run_id attempt outcome duration_ms resume_at"),
    _event("jobs.attempt.failed", _W, "job job_id attempt max_attempts stop_reason resume_at", "stop_reason"),
    _event("jobs.attempt.rate_limited", _I, "job job_id attempt delay_seconds"),
    _event("jobs.heartbeat.failed", _W, "worker_id claims job_ids"),
    _event("jobs.lease.lost", _E, "worker_id queue job job_id claim held_seconds"),
    _event("jobs.renewal.raised", _E, "worker_id job_ids"),
    _event("jobs.timeout.abandoned", _E, "worker_id job job_id attempt timeout_seconds"),
    _event("jobs.settle.unowned", _W, "worker_id job job_id claim verdict"),
    _event("jobs.claim.exhausted", _E, "queue job job_id attempt state"),
    _event("jobs.on_settled.failed", _E, "job job_id outcome tries"),
    _event("jobs.result.unstorable", _W, "job job_id reason"),
    _event("jobs.wake.proven", _I, "channel"),
    _event("jobs.wake.lost", _W, "channel"),
    _event("jobs.scheduler.started", _I, "tasks"),
    _event("jobs.scheduler.draining", _I, "reason dispatching"),
    _event("jobs.scheduler.drain-abandoned", _W, "reason fix"),
    _event("jobs.scheduler.leadership-lost", _W, "at"),
    _event("jobs.scheduler.dispatched", _I, "task occurrence_at jobs catch_up dropped"),
    _event("jobs.scheduler.tick-failed", _E, "task"),
    _event("jobs.outbox.tick-failed", _E),
    _event("jobs.outbox.unpublishable", _E, "outbox_id job attempts"),
    _event("sweeps.started", _I, "sweep run_id kind"),
    _event("sweeps.shards.opened", _I, "sweep run_id shards reason"),
    _event("sweeps.shards.taken", _I, "sweep run_id shard of_shard key"),
    _event("sweeps.finished", _I, "sweep run_id kind rows written batches active_seconds"),
    _event("sweeps.batch", _D, "sweep run_id index rows duration_ms batch_rows"),
    _event("sweeps.batch.shrunk", _W, "sweep run_id index batch_rows sqlstate"),
    _event("sweeps.row.set-aside", _W, "sweep run_id key"),
    _event("sweeps.held", _W, "sweep run_id signal reason"),
    _event("sweeps.slowed", _I, "sweep run_id signal reason"),
    _event("sweeps.late", _I, "sweep run_id rows"),
    _event("sweeps.late.unseen", _W, "sweep run_id writers rows fix"),
    _event("sweeps.paused", _I, "sweep run_id reason"),
    _event("sweeps.resumed", _I, "sweep run_id reason"),
    _event("sweeps.cancelled", _I, "sweep run_id reason"),
    _event("sweeps.failed", _E, "sweep run_id rows"),
    _event("sweeps.code-changed", _W, "sweep run_id checksum"),
    _event("lifecycle.hook.failed", _E, "name phase reason"),
    _event("signals.callback.failed", _E, "callback"),
    _event("telemetry.failed", _W, "instrument"),
)
EVENTS: Mapping[str, Event] = MappingProxyType({event.name: event for event in _TABLE})


def emit(event: str, /, *, error: BaseException | str | None = None, **fields: object) -> None:
    """Log one event on the logger `rowsweep`: the name is the message, the fields are `record.fields`.

    An error adds `error`, and `code`, `cause` and `fix` where it has them; text stands for an error that was never
    raised. An event or field outside the table is `InvariantBroken`. A log handler that raises never reaches the
    caller. Give no input, row value or secret.
    """
    known = EVENTS.get(event)
    if known is None or not fields.keys() <= set(known.fields):
        raise _unknown(event, known, fields)
    level = known.level_for(fields)
    if not _logger.isEnabledFor(level):
        return
    shown = {**fields, **({} if error is None else error_fields(error))}
    try:
        _logger.log(level, event, extra={"fields": shown}, stacklevel=2)
    except Exception:  # noqa: BLE001 - foreign handlers and filters run here; reported as logging reports its own
        if logging.raiseExceptions and sys.stderr:
            traceback.print_exc(file=sys.stderr)


def is_logged(event: str) -> bool:
    """Say whether anyone takes an event of this name at its own level, so that its fields are worth gathering."""
    return _logger.isEnabledFor(EVENTS[event].level)


def error_fields(error: BaseException | str) -> dict[str, object]:
    """Answer an error as the fields `error`, `code`, `cause` and `fix`, without passwords, whatever was raised."""
    if isinstance(error, str):
        return {"error": redact_text(error)}
    shown: dict[str, object] = {"error": error_text(error)}
    if isinstance(error, RowsweepError):
        shown |= {"code": error.code, "cause": redact_text(error.cause), "fix": redact_text(error.fix)}
    return shown


def _unknown(event: str, known: Event | None, fields: Mapping[str, object]) -> InvariantBroken:
    if known is None:
        near = did_you_mean(event, EVENTS)
        cause, fix = f"There is no event {event!r}.", near or "add it to rowsweep.telemetry.events"
    else:
        extra = ", ".join(sorted(fields.keys() - set(known.fields)))
        cause, fix = f"The event {event!r} has no field {extra}.", f"use {', '.join(known.fields) or 'no field'}"
    return InvariantBroken(cause, fix=fix, meta={"event": event, "fields": sorted(fields)})
