"""Every error of rowsweep, with its code, its cause and its fix.

The tree (leaves state the fact; the code is what survives a row or another process):

    RowsweepError
    ├── InvalidOption                   X_OPTION_INVALID
    ├── DriverUnavailable               X_DRIVER_UNAVAILABLE
    ├── SchemaMissing                   X_SCHEMA_MISSING
    ├── SchemaOutdated                  X_SCHEMA_OUTDATED
    ├── NotImplementedByDriver          X_NOT_IMPLEMENTED
    ├── InvariantBroken                 X_INVARIANT
    ├── Aborted                         X_ABORTED
    ├── Draining                        X_DRAINING
    ├── TimedOut                        X_TIMEOUT
    ├── TransactionRequired             X_OUTBOX_NO_TX
    ├── Throttled
    │   ├── RateLimited                 X_RATE_LIMITED
    │   ├── Overloaded                  X_OVERLOADED
    │   └── DeliveryThrottled           X_WEBHOOK_DELIVERY_THROTTLED (also a WebhookError)
    ├── JobError
    │   ├── UnknownJob                  X_JOB_UNKNOWN
    │   ├── DuplicateJob                X_JOB_DUPLICATE
    │   ├── InvalidDeclaration          X_JOB_DECLARATION_INVALID
    │   ├── TenantRequired              X_JOB_TENANT_REQUIRED
    │   ├── InvalidInput                X_JOB_INPUT_INVALID
    │   ├── JobTimedOut                 X_JOB_TIMEOUT
    │   ├── AttemptsExhausted           X_JOB_MAX_ATTEMPTS
    │   ├── LeaseLost                   X_JOB_LEASE_LOST
    │   ├── SlotLost                    X_JOB_SLOT_LOST
    │   ├── NotCancellable              X_JOB_NOT_CANCELLABLE
    │   │   └── CancelUnsupported       X_JOB_NOT_CANCELLABLE
    │   ├── JobNotFound                 X_JOB_NOT_FOUND
    │   ├── NotRequeueable              X_JOB_NOT_REQUEUEABLE
    │   ├── NotRemovable                X_JOB_NOT_REMOVABLE
    │   ├── NotPromotable               X_JOB_NOT_PROMOTABLE
    │   ├── InvalidPage                 X_JOB_PAGE_INVALID
    │   ├── OnSettledFailed             X_JOB_ON_SETTLED_FAILED
    │   ├── ConcurrencyUnenforceable    X_JOB_CONCURRENCY_UNENFORCEABLE
    │   ├── KeyBusy                     X_JOB_KEY_BUSY
    │   ├── UnknownRowStatus            X_JOB_ROW_STATUS_UNKNOWN
    │   └── NoQueuesNamed               X_JOB_CLAIM_QUEUES_EMPTY
    ├── StepError
    │   ├── DuplicateStep               X_STEP_DUPLICATE
    │   ├── StepKindChanged             X_STEP_KIND_CHANGED
    │   └── InvalidStepOutput           X_STEP_OUTPUT_INVALID
    ├── WebhookError
    │   ├── DeliveryFailed              X_WEBHOOK_DELIVERY_FAILED
    │   ├── EndpointDisabled            X_WEBHOOK_ENDPOINT_DISABLED
    │   └── InvalidSignature            X_WEBHOOK_SIGNATURE_INVALID
    └── SweepError
        ├── AlreadyApplied              X_BACKFILL_APPLIED
        ├── ChangedSinceApplied         X_BACKFILL_CHANGED
        ├── WrongEnvironment            X_BACKFILL_ENVIRONMENT
        ├── RequirementMissing          X_BACKFILL_REQUIRES
        ├── InvalidKey                  X_SWEEP_KEY_INVALID
        ├── UnknownSource               X_SWEEP_SOURCE_UNKNOWN
        ├── InvalidSweepSql             X_SWEEP_SQL_INVALID
        ├── InvalidFrame                X_SWEEP_FRAME_INVALID
        ├── TransactionEnded            X_SWEEP_TRANSACTION_ENDED
        ├── InvalidCheckpoint           X_SWEEP_CHECKPOINT_INVALID
        ├── TooManyRejected             X_SWEEP_REJECTED_LIMIT
        ├── UnsafePreview               X_SWEEP_PREVIEW_UNSAFE
        ├── SweepNotLive                X_SWEEP_NOT_LIVE
        ├── SweepNotFound               X_SWEEP_NOT_FOUND
        ├── SweepFailed                 X_SWEEP_FAILED
        ├── SweepCancelled              X_SWEEP_CANCELLED
        ├── CursorStuck                 X_SWEEP_STUCK
        ├── DestinationTaken            X_EXPORT_DESTINATION_TAKEN
        ├── PartChanged                 X_EXPORT_PART_CHANGED
        └── ImplausiblePurge            X_PURGE_IMPLAUSIBLE

    BaseException                       (so that `except Exception` in a body cannot eat them)
    ├── Suspend
    └── Interrupted
"""

from __future__ import annotations

import difflib
import pickle
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Literal

RetryClass = Literal["terminal", "retry-after", "retryable"]


class RowsweepError(Exception):
    """State what was refused (`cause`), what to do next (`fix`: a command or code), and the data (`meta`).

    `code` is stable: match on it wherever the error has crossed a row or a process. `retry` is how a job that
    raises it is treated; `None` is unclassified and follows the backoff curve.
    """

    code: ClassVar[str]
    retry: ClassVar[RetryClass | None] = None

    def __init__(self, cause: str, *, fix: str, meta: Mapping[str, object] | None = None) -> None:
        self.cause = cause
        self.fix = fix
        self.meta: dict[str, object] = dict(meta or {})
        sentence = cause if cause.endswith((".", "!", "?")) else f"{cause}."
        super().__init__(f"{self.code}: {sentence} Fix: {fix}")

    def __reduce__(self) -> tuple[Any, ...]:
        state = {name: _picklable(value) for name, value in self.__dict__.items()}
        state["meta"] = {name: _picklable(value) for name, value in self.meta.items()}
        return _rebuild, (type(self), self.args), state


def _rebuild(kind: type[RowsweepError], args: tuple[object, ...]) -> RowsweepError:
    return kind.__new__(kind, *args)


def _picklable(value: object) -> object:
    """Answer the value, or its type's name where it cannot cross a process."""
    try:
        pickle.dumps(value)
    except Exception:  # noqa: BLE001 - pickling runs foreign code, and the error must arrive
        return f"<{type(value).__name__}>"
    return value


class InvalidOption(RowsweepError):
    """An option has a value that cannot work."""

    code = "X_OPTION_INVALID"
    retry = "terminal"


class DriverUnavailable(RowsweepError):
    """The database cannot be reached, is too old, or nothing is connected yet."""

    code = "X_DRIVER_UNAVAILABLE"
    retry = "retryable"


class SchemaMissing(RowsweepError):
    """The database has no rowsweep tables."""

    code = "X_SCHEMA_MISSING"
    retry = "retryable"


class SchemaOutdated(RowsweepError):
    """The database's rowsweep tables are older than this version needs."""

    code = "X_SCHEMA_OUTDATED"
    retry = "retryable"


class NotImplementedByDriver(RowsweepError):
    """This driver does not have the feature."""

    code = "X_NOT_IMPLEMENTED"
    retry = "terminal"


class InvariantBroken(RowsweepError):
    """Two things that must agree do not."""

    code = "X_INVARIANT"
    retry = "terminal"


class Aborted(RowsweepError):
    """The run was aborted by whoever asked for it."""

    code = "X_ABORTED"


class Draining(RowsweepError):
    """The process is draining and the run was cut off."""

    code = "X_DRAINING"
    retry = "retryable"


class TimedOut(RowsweepError):
    """Something took longer than its limit."""

    code = "X_TIMEOUT"
    retry = "retryable"


class TransactionRequired(RowsweepError):
    """The outbox needs a transaction to stage into."""

    code = "X_OUTBOX_NO_TX"
    retry = "terminal"


class Throttled(RowsweepError):
    """Somebody asked for a pause; `retry_after_seconds` is how long, `None` when they did not say."""

    retry = "retry-after"

    def __init__(
        self,
        cause: str,
        *,
        fix: str,
        meta: Mapping[str, object] | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(cause, fix=fix, meta=meta)
        self.retry_after_seconds = retry_after_seconds


class RateLimited(Throttled):
    """A rate limit is used up; the job is deferred without counting an attempt."""

    code = "X_RATE_LIMITED"


class Overloaded(Throttled):
    """The other side is overloaded."""

    code = "X_OVERLOADED"


class JobError(RowsweepError):
    """Group what jobs and the queue refuse."""


class UnknownJob(JobError):
    """No job of that name is declared here."""

    code = "X_JOB_UNKNOWN"
    retry = "terminal"


class DuplicateJob(JobError):
    """The name is declared elsewhere, or a live job holds the key."""

    code = "X_JOB_DUPLICATE"
    retry = "terminal"


class InvalidDeclaration(JobError):
    """A declaration lacks a field or contradicts itself."""

    code = "X_JOB_DECLARATION_INVALID"
    retry = "terminal"


class TenantRequired(JobError):
    """A job was declared without saying whose data it touches."""

    code = "X_JOB_TENANT_REQUIRED"
    retry = "terminal"


class InvalidInput(JobError):
    """The input does not fit the job's input type."""

    code = "X_JOB_INPUT_INVALID"
    retry = "terminal"


class JobTimedOut(JobError):
    """The run passed its job's `timeout`."""

    code = "X_JOB_TIMEOUT"
    retry = "retryable"


class AttemptsExhausted(JobError):
    """The job failed on its last attempt; the last error is `__cause__`."""

    code = "X_JOB_MAX_ATTEMPTS"


class LeaseLost(JobError):
    """The claim is no longer this worker's; nothing it writes counts."""

    code = "X_JOB_LEASE_LOST"


class SlotLost(JobError):
    """The concurrency slot of the run lapsed or was taken."""

    code = "X_JOB_SLOT_LOST"
    retry = "retryable"


class NotCancellable(JobError):
    """The job is not in a state that can be cancelled."""

    code = "X_JOB_NOT_CANCELLABLE"


class CancelUnsupported(NotCancellable):
    """The driver cannot cancel jobs."""


class JobNotFound(JobError):
    """No job has that id."""

    code = "X_JOB_NOT_FOUND"


class NotRequeueable(JobError):
    """Only dead jobs can be requeued."""

    code = "X_JOB_NOT_REQUEUEABLE"


class NotRemovable(JobError):
    """A live job cannot be removed."""

    code = "X_JOB_NOT_REMOVABLE"


class NotPromotable(JobError):
    """Only a delayed job can be promoted."""

    code = "X_JOB_NOT_PROMOTABLE"


class InvalidPage(JobError):
    """A page's cursor or limit cannot be read."""

    code = "X_JOB_PAGE_INVALID"


class OnSettledFailed(JobError):
    """The `on_settled` hook failed on every try."""

    code = "X_JOB_ON_SETTLED_FAILED"


class ConcurrencyUnenforceable(JobError):
    """The driver has no slots, so a declared concurrency cannot be held."""

    code = "X_JOB_CONCURRENCY_UNENFORCEABLE"


class KeyBusy(JobError):
    """Another live job holds the key."""

    code = "X_JOB_KEY_BUSY"
    retry = "terminal"


class UnknownRowStatus(JobError):
    """A row is in a state that this version does not know."""

    code = "X_JOB_ROW_STATUS_UNKNOWN"


class NoQueuesNamed(JobError):
    """A claim or a worker named no queue."""

    code = "X_JOB_CLAIM_QUEUES_EMPTY"


class StepError(RowsweepError):
    """Group what durable steps refuse."""


class DuplicateStep(StepError):
    """Two steps of one run have the same name."""

    code = "X_STEP_DUPLICATE"
    retry = "terminal"


class StepKindChanged(StepError):
    """A stored step is of another kind than the code now asks for."""

    code = "X_STEP_KIND_CHANGED"
    retry = "terminal"


class InvalidStepOutput(StepError):
    """A step's output cannot be stored."""

    code = "X_STEP_OUTPUT_INVALID"
    retry = "terminal"


class WebhookError(RowsweepError):
    """Group what deliveries and verification refuse."""


class DeliveryThrottled(Throttled, WebhookError):
    """The endpoint asked for a pause."""

    code = "X_WEBHOOK_DELIVERY_THROTTLED"


class DeliveryFailed(WebhookError):
    """The endpoint did not take the delivery."""

    code = "X_WEBHOOK_DELIVERY_FAILED"
    retry = "retryable"


class EndpointDisabled(WebhookError):
    """The endpoint is switched off."""

    code = "X_WEBHOOK_ENDPOINT_DISABLED"
    retry = "terminal"


class InvalidSignature(WebhookError):
    """The signature does not fit secret, time and body."""

    code = "X_WEBHOOK_SIGNATURE_INVALID"
    retry = "terminal"


class SweepError(RowsweepError):
    """Group what backfills, exports and purges refuse."""


class AlreadyApplied(SweepError):
    """The ledger has this very backfill as done."""

    code = "X_BACKFILL_APPLIED"
    retry = "terminal"


class ChangedSinceApplied(SweepError):
    """The ledger has this name as done, with other code."""

    code = "X_BACKFILL_CHANGED"
    retry = "terminal"


class WrongEnvironment(SweepError):
    """The sweep is not meant for this environment."""

    code = "X_BACKFILL_ENVIRONMENT"
    retry = "terminal"


class RequirementMissing(SweepError):
    """A sweep that must come first is not done."""

    code = "X_BACKFILL_REQUIRES"
    retry = "terminal"


class InvalidKey(SweepError):
    """The table has no key that a sweep can page by."""

    code = "X_SWEEP_KEY_INVALID"
    retry = "terminal"


class UnknownSource(SweepError):
    """The table or column does not exist, or cannot be swept."""

    code = "X_SWEEP_SOURCE_UNKNOWN"
    retry = "terminal"


class InvalidSweepSql(SweepError):
    """Postgres refuses the declaration's own SQL."""

    code = "X_SWEEP_SQL_INVALID"
    retry = "terminal"


class InvalidFrame(SweepError):
    """The handler's frame does not fit the page or the table."""

    code = "X_SWEEP_FRAME_INVALID"
    retry = "terminal"


class TransactionEnded(SweepError):
    """The handler ended or broke the batch's transaction."""

    code = "X_SWEEP_TRANSACTION_ENDED"
    retry = "terminal"


class InvalidCheckpoint(SweepError):
    """A stored checkpoint cannot be read."""

    code = "X_SWEEP_CHECKPOINT_INVALID"
    retry = "terminal"


class TooManyRejected(SweepError):
    """More rows were set aside than `max_rejected`."""

    code = "X_SWEEP_REJECTED_LIMIT"
    retry = "terminal"


class UnsafePreview(SweepError):
    """A preview would have effects that a rollback cannot undo."""

    code = "X_SWEEP_PREVIEW_UNSAFE"


class SweepNotLive(SweepError):
    """The sweep's run has finished, so it cannot be steered."""

    code = "X_SWEEP_NOT_LIVE"


class SweepNotFound(SweepError):
    """No run of that id or name is in the ledger."""

    code = "X_SWEEP_NOT_FOUND"


class SweepFailed(SweepError):
    """The run that was waited for failed."""

    code = "X_SWEEP_FAILED"


class SweepCancelled(SweepError):
    """The run that was waited for was cancelled."""

    code = "X_SWEEP_CANCELLED"


class CursorStuck(SweepError):
    """A page did not move the cursor strictly forward."""

    code = "X_SWEEP_STUCK"
    retry = "terminal"


class DestinationTaken(SweepError):
    """The export's destination already holds another export."""

    code = "X_EXPORT_DESTINATION_TAKEN"
    retry = "terminal"


class PartChanged(SweepError):
    """A part that was already written is no longer what the checkpoint says."""

    code = "X_EXPORT_PART_CHANGED"
    retry = "terminal"


class ImplausiblePurge(SweepError):
    """A purge would delete an implausible share of a table."""

    code = "X_PURGE_IMPLAUSIBLE"
    retry = "terminal"


class Suspend(BaseException):
    """Leave the body until `wake_at`, for `delay_seconds`, or (with neither) until an event wakes the job."""

    def __init__(self, wake_at: datetime | None = None, delay_seconds: float | None = None, reason: str = "") -> None:
        super().__init__(wake_at, delay_seconds, reason)
        self.wake_at = wake_at
        self.delay_seconds = delay_seconds
        self.reason = reason


class Interrupted(BaseException):
    """Leave the body because its run was aborted; `reason` is the error that says why."""

    def __init__(self, reason: BaseException | None = None) -> None:
        super().__init__(reason)
        self.reason = reason


JOB_OWNED_ERROR_CODES: frozenset[str] = frozenset(
    {
        "X_JOB_UNKNOWN",
        "X_JOB_DUPLICATE",
        "X_JOB_DECLARATION_INVALID",
        "X_JOB_TENANT_REQUIRED",
        "X_JOB_INPUT_INVALID",
        "X_JOB_TIMEOUT",
        "X_JOB_MAX_ATTEMPTS",
        "X_JOB_LEASE_LOST",
        "X_JOB_SLOT_LOST",
        "X_JOB_NOT_CANCELLABLE",
        "X_JOB_NOT_FOUND",
        "X_JOB_NOT_REQUEUEABLE",
        "X_JOB_NOT_REMOVABLE",
        "X_JOB_NOT_PROMOTABLE",
        "X_JOB_PAGE_INVALID",
        "X_JOB_ON_SETTLED_FAILED",
        "X_JOB_CONCURRENCY_UNENFORCEABLE",
        "X_JOB_KEY_BUSY",
        "X_JOB_ROW_STATUS_UNKNOWN",
        "X_JOB_CLAIM_QUEUES_EMPTY",
        "X_STEP_DUPLICATE",
        "X_STEP_KIND_CHANGED",
        "X_STEP_OUTPUT_INVALID",
        "X_WEBHOOK_DELIVERY_THROTTLED",
        "X_WEBHOOK_DELIVERY_FAILED",
        "X_WEBHOOK_ENDPOINT_DISABLED",
        "X_WEBHOOK_SIGNATURE_INVALID",
    }
)


def nearest(name: str, candidates: Iterable[str]) -> list[str]:
    """Answer up to three of the candidates that look like `name`, the nearest first, whatever their case."""
    folded: dict[str, str] = {}
    for candidate in candidates:
        folded.setdefault(candidate.casefold(), candidate)
    return [folded[match] for match in difflib.get_close_matches(name.casefold(), folded, n=3)]


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Answer `Did you mean 'a' or 'b'?`, or nothing when no candidate is near."""
    matches = nearest(name, candidates)
    return f"Did you mean {' or '.join(repr(match) for match in matches)}?" if matches else ""
