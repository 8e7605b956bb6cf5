"""What a declaration says of its executor, screened."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final

from rowsweep.options import count
from rowsweep.sweeps.refusals import refused

if TYPE_CHECKING:
    from rowsweep.sweeps.spec import SweepSpec

MOST_AHEAD: Final = 256
_SPAWNED: Final = 'ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn"))'


def check_executor(spec: SweepSpec) -> None:
    """Refuse an executor, or a number of pages ahead, that such a sweep cannot have."""
    given: Any = spec.executor
    if spec.ahead is not None:
        count(spec.ahead, option="ahead", minimum=1, maximum=MOST_AHEAD)
        if given is None:
            raise refused("ahead", "given with executor=, whose pages it counts", spec.ahead, "executor=…, or no ahead")
    if given is None:
        return
    if not isinstance(given, Executor) and not callable(given):
        raise refused(
            "executor",
            "a concurrent.futures.Executor or a function that makes one",
            given,
            f"executor=lambda: {_SPAWNED}",
        )
    if spec.assignments is not None:
        raise refused("executor", "left out with set=: the database does all the work", given, "remove executor=")
    if not spec.atomic:
        raise refused("executor", "left out with atomic=False, whose handler acts by itself", given, "atomic=True")
    if spec.source is not None:
        raise refused(
            "executor", "left out with source=, whose pages are planned one by one", given, "remove one of them"
        )
    if isinstance(given, Executor):
        check_start(given)


def shown_executor(declared: Executor | Callable[[], Executor] | None) -> str | None:
    """Name an executor, or the function that makes it."""
    if declared is None:
        return None
    return str(getattr(declared, "__qualname__", type(declared).__name__))


def check_start(executor: Executor) -> None:
    """Refuse a pool whose processes would be forked: a fork of a process with threads may hang at any lock."""
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise refused(
            "executor", "a pool whose processes are spawned, not forked: this process has threads", "fork", _SPAWNED
        )
