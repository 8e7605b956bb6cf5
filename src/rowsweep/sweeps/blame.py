"""Find the application's own lines in a traceback: where a bug is that rowsweep only passed on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

_OURS: Final = f"{Path(__file__).parent.parent}/"


def own_lines(error: BaseException) -> TracebackType | None:
    """Answer the traceback from the first line on that lies outside this package, None where all lie in it."""
    return next((trace for trace in _walk(error.__traceback__) if not _is_ours(trace)), None)


def place_of(error: BaseException) -> str | None:
    """Answer the application's last line in the traceback, before any of a library's: `file:line in function`."""
    others = [trace for trace in _walk(error.__traceback__) if not _is_ours(trace)]
    lines = [trace for trace in others if "site-packages" not in trace.tb_frame.f_code.co_filename] or others
    if not lines:
        return None
    code = lines[-1].tb_frame.f_code
    return f"{code.co_filename}:{lines[-1].tb_lineno} in {code.co_name}"


def _walk(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _is_ours(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith(_OURS)
