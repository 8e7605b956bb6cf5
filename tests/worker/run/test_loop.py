"""The one loop thread for coroutine bodies."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from rowsweep.errors import Aborted, Interrupted
from rowsweep.signals import RunSignal
from rowsweep.worker.run.loop import LoopThread

marker: contextvars.ContextVar[str] = contextvars.ContextVar("marker", default="none")


@pytest.fixture
def loop() -> LoopThread:
    return LoopThread()


def test_it_answers_what_the_coroutine_does_in_the_callers_context(loop: LoopThread) -> None:
    """N-008, N-015: context variables of the run reach the body."""

    async def body() -> str:
        await asyncio.sleep(0)
        return marker.get()

    marker.set("mine")
    assert loop.run(body(), RunSignal()) == "mine"
    loop.close()


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(2), KeyboardInterrupt(), asyncio.CancelledError()])
def test_whatever_it_raises_is_raised_in_the_callers_thread_and_the_loop_goes_on(
    loop: LoopThread, error: BaseException
) -> None:
    """N-020."""

    async def body() -> None:
        raise error

    async def fine() -> int:
        return 1

    with pytest.raises(type(error)):
        loop.run(body(), RunSignal())
    assert loop.run(fine(), RunSignal()) == 1
    loop.close()


@pytest.mark.parametrize("how", ["stop", "exit", "interrupt"])
def test_no_body_ends_the_loop_of_the_others(loop: LoopThread, how: str) -> None:
    """N-008, N-020: neither by `loop.stop()`, nor by what a task that it started and left raises."""
    waits, answers = threading.Event(), []
    gates: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def other() -> str:
        gates.append((asyncio.get_running_loop(), asyncio.Event()))
        waits.set()
        await gates[0][1].wait()
        return "whole"

    async def leaves() -> None:
        raise SystemExit(2) if how == "exit" else KeyboardInterrupt

    async def body() -> int:
        if how == "stop":
            asyncio.get_running_loop().stop()
        else:
            asyncio.get_running_loop().create_task(leaves())
        await asyncio.sleep(0.01)
        return 1

    beside = threading.Thread(target=lambda: answers.append(loop.run(other(), RunSignal())), daemon=True)
    beside.start()
    assert waits.wait(60)
    assert loop.run(body(), RunSignal()) == 1
    assert loop.run(body(), RunSignal()) == 1
    gates[0][0].call_soon_threadsafe(gates[0][1].set)
    beside.join(60)
    assert answers == ["whole"]
    loop.close()


def test_an_aborted_coroutine_is_cancelled_after_a_moment(loop: LoopThread) -> None:
    """N-008: the signal first, then the task."""
    signal, seen, started = RunSignal(), [], threading.Event()

    async def body() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append(signal.aborted)
            raise

    def abort() -> None:
        assert started.wait(60)
        signal.abort(Aborted("stop", fix="none"))

    threading.Thread(target=abort, name="rowsweep-abort", daemon=True).start()
    with pytest.raises(Interrupted):
        loop.run(body(), signal)
    assert seen == [True]
    loop.close()


def test_a_coroutine_that_ends_within_its_grace_is_what_it_answers(loop: LoopThread) -> None:
    """S-299."""
    signal = RunSignal()

    async def body() -> str:
        signal.abort(Aborted("stop", fix="none"))
        return "finished"

    assert loop.run(body(), signal) == "finished"
    loop.close()


def test_a_body_that_blocks_the_loop_does_not_keep_the_next_one(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-008: left behind with its loop; a body that only ignores its cancel leaves the loop to the others."""
    monkeypatch.setattr("rowsweep.worker.run.loop.GRACE_SECONDS", 0.2)
    release = threading.Event()

    async def blocking() -> None:
        signal.abort(Aborted("stop", fix="none"))
        release.wait(30)

    async def ignoring() -> None:
        signal.abort(Aborted("stop", fix="none"))
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    async def which() -> int:
        return id(asyncio.get_running_loop())

    first = loop.run(which(), RunSignal())
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "rowsweep-loop"]
    for body, is_kept in ((ignoring, True), (blocking, False)):
        signal = RunSignal()
        with pytest.raises(Interrupted):
            loop.run(body(), signal)
        assert (loop.run(which(), RunSignal()) == first) is is_kept
        assert thread.is_alive()
    release.set()
    thread.join(10)
    assert not thread.is_alive(), "it ends with the last body on it"
    loop.close()
