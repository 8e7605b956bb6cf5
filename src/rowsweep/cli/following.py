"""Follow a run while it lasts: live in a terminal, one line every few seconds in a pipe."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

from rowsweep.clock import real_monotonic
from rowsweep.show.plain import snapshot_line

if TYPE_CHECKING:
    from rich.live import Live

    from rowsweep.cli.output import Output
    from rowsweep.sweeps.snapshot import Snapshot

SECONDS_BETWEEN_LOOKS: Final = 0.25
SECONDS_BETWEEN_LINES: Final = 3.0
_DRAWN_PER_SECOND: Final = 8
_NUMBERS: Final = re.compile(r"\d+")


class Display(Protocol):
    """Show one snapshot after another; used in a `with` block."""

    def __enter__(self) -> Self:
        """Take the terminal."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back, the last snapshot left standing."""

    def show(self, snapshot: Snapshot, note: str | None = None) -> None:
        """Show this snapshot, and a remark of the command's own."""


class LiveDisplay:
    """Redraw the same lines of a terminal."""

    def __init__(self, output: Output) -> None:
        from rich.live import Live

        self._live: Live = Live(console=output.console, refresh_per_second=_DRAWN_PER_SECOND, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, snapshot: Snapshot, note: str | None = None) -> None:
        """Draw the snapshot in place of the one before."""
        from rowsweep.show.terminal import SweepView

        self._live.update(SweepView(snapshot, note=note), refresh=not snapshot.is_open)


class LineDisplay:
    """Write a line when the state or the remark changes, and every few seconds in between."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._said: tuple[str, str] | None = None
        self._next_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def show(self, snapshot: Snapshot, note: str | None = None) -> None:
        """Write the snapshot's line where one is due."""
        said = (snapshot.words, _NUMBERS.sub("", note or ""))
        if self._said == said and real_monotonic() < self._next_at:
            return
        self._said = said
        self._next_at = real_monotonic() + SECONDS_BETWEEN_LINES
        self._write(snapshot_line(snapshot) + (f"  [{note}]" if note else ""))


def display_for(output: Output) -> Display:
    """Answer the display that suits where the output goes; with JSON the lines go to stderr."""
    if output.is_terminal:
        return LiveDisplay(output)
    return LineDisplay(output.note if output.is_json else output.say)
