"""What goes wrong out there: it fails its own batch, with what it said there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import SweepFailed
from rowsweep.sweeps.executors import far
from tests.sweeps.executors import heavy
from tests.sweeps.executors.held import Held, failed, over
from tests.sweeps.field import NOW, Field, wait_for


def test_what_a_handler_raises_fails_its_own_batch(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-083: everything before it is committed; the error has its name, text, class, place and key range."""
    field.orders(20)
    row = failed(field, over(threads, heavy.odd))
    assert (row.status, row.rows, row.batches) == ("failed", 4, 1)
    assert row.last_error.startswith("OddError: row 6 is odd: six")
    assert "in batch 1, keys after (4) up to (8)" in row.last_error
    assert "in the executor, at " in row.last_error
    assert "heavy.py" in row.last_error


def test_what_a_handler_raised_over_rows_that_changed_since_does_not_count(
    field: Field, threads: ThreadPoolExecutor
) -> None:
    """N-060, N-083: in the transaction it would have seen the row as it is."""
    field.orders(12)
    held = Held(0)
    run = over(threads, heavy.odd, retry=NOW).launch()
    with field.working():
        wait_for(held.reached)
        held.until_called(2)
        field.sql("update orders set id = 100 where id = 6")
        held.free.set()
        assert run.wait(timeout="20s")["rows"] == 12
    assert field.job(run).attempt == 1


def test_rows_that_fail_by_themselves_are_set_aside(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-084: the parts of a failing page are computed out there too, one by one; the pass goes on ahead behind it."""
    field.orders(20)
    run = over(threads, heavy.odd, on_error="set-aside").launch()
    assert field.finish(run)["rows"] == 19
    assert run.rejected().select("key", "error").rows() == [("6", "OddError: row 6 is odd: six")]
    assert field.one("select count(*) from orders where total = qty * 2") == 19


def test_rejected_rows_are_tried_again_out_there(
    field: Field, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-086: over exactly these keys, which are read ahead as any others."""
    monkeypatch.setattr("rowsweep.sweeps.poison.work.BETWEEN_TRIES_SECONDS", 0.0)
    field.orders(60)
    field.sql("update orders set qty = 13 where id % 9 = 0")
    run = over(threads, heavy.unlucky, on_error="set-aside", ahead=2).launch()
    assert field.finish(run)["rejected"] == 6
    field.sql("update orders set qty = 1 where id % 9 = 0 and id < 50")
    again = run.retry_rejected()
    assert field.finish(again)["rows"] == 5
    assert run.rejected()["key"].to_list() == ["54"]
    assert field.one("select count(*) from orders where total = qty * 2") == 59


def test_a_frame_that_does_not_fit_fails_its_own_batch(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-064: found where it is written back, and, of Python objects, where it cannot travel."""
    field.orders(20)
    row = failed(field, over(threads, heavy.wrong))
    assert (row.last_error_code, row.rows) == ("X_SWEEP_FRAME_INVALID", 4)
    assert "'totl'" in row.last_error
    row = failed(field, over(threads, heavy.objects, name="objects"))
    assert (row.last_error_code, row.rows) == ("X_SWEEP_FRAME_INVALID", 0)
    assert "Python objects" in row.last_error


def test_a_page_that_cannot_be_read_fails_when_its_turn_comes(field: Field, threads: ThreadPoolExecutor) -> None:
    """N-083: reading ahead fails no page before it."""
    field.orders(16, more=", at timestamp default now()")
    field.sql("update orders set at = 'infinity' where id = 11")
    rows = rs.Rows("orders", columns=["id", "qty", "at"])
    row = failed(field, over(threads, rows=rows, ahead=4))
    assert (row.last_error_code, row.rows) == ("X_SWEEP_FRAME_INVALID", 8)


@pytest.mark.parametrize(("handler", "name"), [(heavy.executing, "batch.connection"), (heavy.stepping, "batch.ctx")])
def test_what_stays_behind_is_refused_by_name(
    field: Field, threads: ThreadPoolExecutor, handler: Any, name: str
) -> None:
    """N-060: the transaction is another process's; trying again changes nothing."""
    field.orders(4)
    sweep = over(threads, handler)
    row = failed(field, sweep)
    assert row.last_error_code == "X_JOB_DECLARATION_INVALID"
    assert f"{name} does not reach into an executor" in row.last_error


def test_an_executor_that_was_shut_down_is_no_rows_fault(field: Field) -> None:
    """N-084: the attempt fails, to be made again, and nothing is set aside."""
    field.orders(4)
    given = ThreadPoolExecutor(1)
    given.shutdown()
    run = over(given, on_error="set-aside", retry=NOW).launch()
    with pytest.raises(SweepFailed):
        field.finish(run)
    assert run.rejected().height == 0
    assert "after shutdown" in (field.row(run).last_error or "")
    assert field.job(run).attempt == 3


def test_a_handler_that_cannot_be_imported_out_there_is_no_rows_fault(
    field: Field, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-084: it lacks before any page is sent; nothing is set aside."""

    def missing(order: bytes) -> Any:
        raise ModuleNotFoundError("No module named 'scoring'")

    field.orders(8)
    monkeypatch.setattr(far, "_handler", missing)
    run = over(threads, on_error="set-aside", retry=NOW).launch()
    with pytest.raises(SweepFailed, match="No module named 'scoring'"):
        field.finish(run)
    assert run.rejected().height == 0
    assert field.job(run).attempt == 3


class Wrong(Executor):
    """Answer from the third call on, which is the first of a page, as `answer` makes it of what the calls came to."""

    def __init__(self, answer: Callable[[list[Any]], Any]) -> None:
        self._answer = answer
        self._max_workers = 2
        self._came: list[Any] = []

    def submit(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        """Call it at once."""
        self._came.append(function(*given, **named))
        future: Future[Any] = Future()
        future.set_result(self._answer(self._came) if len(self._came) > 2 else self._came[-1])
        return future


@pytest.mark.parametrize("on_error", ["stop", "set-aside"])
@pytest.mark.parametrize(
    ("answer", "says"),
    [(lambda came: came[0], "what another call came to"), (lambda _: "garbage", "'garbage'")],
    ids=["another", "garbage"],
)
def test_an_answer_that_is_no_answer_to_the_call_is_not_taken_for_one(
    field: Field, answer: Any, says: str, on_error: Any
) -> None:
    """N-064, N-084: what an executor remembers of another page would pass for a handler that changes nothing."""
    field.orders(8)
    run = over(lambda: Wrong(answer), on_error=on_error).launch()
    with pytest.raises(SweepFailed, match=says):
        field.finish(run)
    row = field.row(run)
    assert (row.last_error_code, row.rows, run.rejected().height) == ("X_INVARIANT", 0, 0)
