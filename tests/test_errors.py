"""The error tree: every code of the table, its class, and what survives pickling."""

from __future__ import annotations

import pickle
import re
from datetime import UTC, datetime

import pytest

from rowsweep import errors
from rowsweep.errors import (
    JOB_OWNED_ERROR_CODES,
    CancelUnsupported,
    Interrupted,
    JobError,
    LeaseLost,
    NotCancellable,
    Overloaded,
    RowsweepError,
    StepError,
    Suspend,
    Throttled,
    UnknownJob,
    WebhookError,
    did_you_mean,
    nearest,
)

TABLE = """
X_OPTION_INVALID InvalidOption t
X_DRIVER_UNAVAILABLE DriverUnavailable r
X_SCHEMA_MISSING SchemaMissing r
X_SCHEMA_OUTDATED SchemaOutdated r
X_NOT_IMPLEMENTED NotImplementedByDriver t
X_INVARIANT InvariantBroken t
X_ABORTED Aborted -
X_DRAINING Draining r
X_TIMEOUT TimedOut r
X_RATE_LIMITED RateLimited a
X_OVERLOADED Overloaded a
X_JOB_UNKNOWN UnknownJob t
X_JOB_DUPLICATE DuplicateJob t
X_JOB_DECLARATION_INVALID InvalidDeclaration t
X_JOB_TENANT_REQUIRED TenantRequired t
X_JOB_INPUT_INVALID InvalidInput t
X_JOB_TIMEOUT JobTimedOut r
X_JOB_MAX_ATTEMPTS AttemptsExhausted -
X_JOB_LEASE_LOST LeaseLost -
X_JOB_SLOT_LOST SlotLost r
X_JOB_NOT_CANCELLABLE NotCancellable -
X_JOB_NOT_CANCELLABLE CancelUnsupported -
X_JOB_NOT_FOUND JobNotFound -
X_JOB_NOT_REQUEUEABLE NotRequeueable -
X_JOB_NOT_REMOVABLE NotRemovable -
X_JOB_NOT_PROMOTABLE NotPromotable -
X_JOB_PAGE_INVALID InvalidPage -
X_JOB_ON_SETTLED_FAILED OnSettledFailed -
X_JOB_CONCURRENCY_UNENFORCEABLE ConcurrencyUnenforceable -
X_JOB_KEY_BUSY KeyBusy t
X_JOB_ROW_STATUS_UNKNOWN UnknownRowStatus -
X_JOB_CLAIM_QUEUES_EMPTY NoQueuesNamed -
X_STEP_DUPLICATE DuplicateStep t
X_STEP_KIND_CHANGED StepKindChanged t
X_STEP_OUTPUT_INVALID InvalidStepOutput t
X_OUTBOX_NO_TX TransactionRequired t
X_WEBHOOK_DELIVERY_THROTTLED DeliveryThrottled a
X_WEBHOOK_DELIVERY_FAILED DeliveryFailed r
X_WEBHOOK_ENDPOINT_DISABLED EndpointDisabled t
X_WEBHOOK_SIGNATURE_INVALID InvalidSignature t
X_BACKFILL_APPLIED AlreadyApplied t
X_BACKFILL_CHANGED ChangedSinceApplied t
X_BACKFILL_ENVIRONMENT WrongEnvironment t
X_BACKFILL_REQUIRES RequirementMissing t
X_SWEEP_KEY_INVALID InvalidKey t
X_SWEEP_SOURCE_UNKNOWN UnknownSource t
X_SWEEP_SQL_INVALID InvalidSweepSql t
X_SWEEP_FRAME_INVALID InvalidFrame t
X_SWEEP_TRANSACTION_ENDED TransactionEnded t
X_SWEEP_CHECKPOINT_INVALID InvalidCheckpoint t
X_SWEEP_REJECTED_LIMIT TooManyRejected t
X_SWEEP_PREVIEW_UNSAFE UnsafePreview -
X_SWEEP_NOT_LIVE SweepNotLive -
X_SWEEP_NOT_FOUND SweepNotFound -
X_SWEEP_FAILED SweepFailed -
X_SWEEP_CANCELLED SweepCancelled -
X_EXPORT_DESTINATION_TAKEN DestinationTaken t
X_EXPORT_PART_CHANGED PartChanged t
X_SWEEP_STUCK CursorStuck t
X_PURGE_IMPLAUSIBLE ImplausiblePurge t
"""
ROWS = [tuple(line.split()) for line in TABLE.strip().splitlines()]
RETRY = {"t": "terminal", "a": "retry-after", "r": "retryable", "-": None}


def every_class(root: type[RowsweepError] = RowsweepError) -> set[type[RowsweepError]]:
    below = {kind for child in root.__subclasses__() for kind in every_class(child)}
    return {kind for kind in {root, *below} if kind.__module__ == errors.__name__}


def coded(root: type[RowsweepError] = RowsweepError) -> set[type[RowsweepError]]:
    return {kind for kind in every_class(root) if hasattr(kind, "code")}


@pytest.mark.parametrize(("code", "name", "retry"), ROWS)
def test_every_code_of_the_table_has_its_class_and_its_retry(code: str, name: str, retry: str) -> None:
    """N-114, D-12, S-430."""
    kind = getattr(errors, name)
    assert (kind.code, kind.retry) == (code, RETRY[retry])


def test_no_class_is_outside_the_table_and_each_is_drawn_once_with_its_code() -> None:
    """N-114: the tree in the docstring is the tree in the code."""
    assert {kind.__name__ for kind in coded()} == {name for _, name, _ in ROWS}
    drawn = dict(re.findall(r"── (\w+) +(X_\w+)", errors.__doc__ or ""))
    assert drawn == {kind.__name__: kind.code for kind in coded()}
    assert all(f"── {kind.__name__}" in (errors.__doc__ or "") for kind in every_class() - {RowsweepError})


def test_the_owned_codes_are_those_of_jobs_steps_and_webhooks() -> None:
    """S-431, S-428."""
    owned = coded(JobError) | coded(StepError) | coded(WebhookError)
    assert {kind.code for kind in owned} == JOB_OWNED_ERROR_CODES
    assert {
        "X_JOB_ROW_STATUS_UNKNOWN",
        "X_STEP_DUPLICATE",
        "X_WEBHOOK_DELIVERY_THROTTLED",
    } <= JOB_OWNED_ERROR_CODES


def test_the_general_codes_are_not_owned_by_jobs() -> None:
    """S-429."""
    general = {
        "X_NOT_IMPLEMENTED",
        "X_ABORTED",
        "X_DRAINING",
        "X_INVARIANT",
        "X_RATE_LIMITED",
        "X_OVERLOADED",
    }
    assert not (general | {"X_TIMEOUT"}) & JOB_OWNED_ERROR_CODES


def test_the_message_has_code_cause_and_fix() -> None:
    """S-012."""
    error = UnknownJob("There is no job 'x'.", fix="rowsweep jobs names", meta={"name": "x"})
    assert str(error) == "X_JOB_UNKNOWN: There is no job 'x'. Fix: rowsweep jobs names"
    assert (error.cause, error.fix, error.meta) == (
        "There is no job 'x'.",
        "rowsweep jobs names",
        {"name": "x"},
    )
    assert str(UnknownJob("nothing here", fix="f")) == "X_JOB_UNKNOWN: nothing here. Fix: f"


@pytest.mark.parametrize("kind", sorted(coded(), key=repr))
def test_every_error_survives_pickling_with_all_it_carries(kind: type[RowsweepError]) -> None:
    """N-113."""
    error = kind("It broke.", fix="rs.mend()", meta={"at": datetime(2025, 1, 2, tzinfo=UTC), "ids": [1, 2]})
    error.add_note("seen twice")
    if isinstance(error, Throttled):
        error.retry_after_seconds = 2.5
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.code, copy.args, copy.__dict__) == (error.code, error.args, error.__dict__)


def test_data_that_cannot_be_pickled_crosses_as_the_name_of_its_type() -> None:
    """N-113: the error arrives whatever was put into its meta."""
    error = UnknownJob("It broke.", fix="f", meta={"call": lambda: 1, "kept": 1})
    copy = pickle.loads(pickle.dumps(error))
    assert copy.meta["kept"] == 1
    assert copy.meta["call"] == "<function>"
    assert callable(error.meta["call"])


def test_a_throttled_error_says_how_long_to_wait() -> None:
    """S-125."""
    assert Overloaded("Busy.", fix="wait", retry_after_seconds=3).retry_after_seconds == 3
    assert Overloaded("Busy.", fix="wait").retry_after_seconds is None


def test_a_driver_without_cancel_is_caught_as_not_cancellable() -> None:
    """S-430."""
    assert issubclass(CancelUnsupported, NotCancellable)


def test_the_signals_of_the_engine_pass_through_except_exception() -> None:
    """N-020."""
    for signal in (Suspend(delay_seconds=3, reason="sleep"), Interrupted(LeaseLost("Lost.", fix="f"))):
        assert not isinstance(signal, Exception)
        assert type(pickle.loads(pickle.dumps(signal))) is type(signal)
    assert pickle.loads(pickle.dumps(Suspend(delay_seconds=3, reason="sleep"))).delay_seconds == 3


def test_the_nearest_names_are_found_whatever_their_case() -> None:
    """S-019."""
    assert nearest("ordres", ["Orders", "events"]) == ["Orders"]
    assert did_you_mean("order-total", ["order-totals", "events"]) == "Did you mean 'order-totals'?"
    assert did_you_mean("x", ["order-totals"]) == ""
