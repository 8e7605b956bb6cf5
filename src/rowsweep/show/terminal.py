"""Show a snapshot in a terminal, at whatever width it has; it needs no colour to be understood."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table as Grid
from rich.text import Text

from rowsweep.show.plain import details
from rowsweep.show.words import facts
from rowsweep.show.words.clean import clean, cut

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from rowsweep.sweeps.snapshot import Snapshot

STYLES: Final[dict[facts.Tone, str]] = {
    "good": "green",
    "bad": "bold red",
    "warn": "yellow",
    "busy": "cyan",
    "dim": "bright_black",
    "plain": "",
}
_WIDEST_BAR: Final = 100
_NARROWEST_BAR: Final = 10
_BETWEEN: Final = "   "
_MOST_SHARDS: Final = 16
_WIDEST_SHARD: Final = 40
_BESIDE_A_SHARD: Final = 8


class SweepView:
    """Draw one snapshot: its name and state, a bar that pulses while the total is unknown, and its figures.

    `note` is a last line of the command's own, such as how to stop.
    """

    def __init__(self, snapshot: Snapshot, *, note: str | None = None) -> None:
        self._snapshot = snapshot
        self._note = note

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        yield from console.render(self._title(width), options)
        yield from self._bar(console, options)
        yield from self._shards(console, options)
        for line in _wrapped(facts.facts(self._snapshot), width):
            yield from console.render(Text(cut(line, width), no_wrap=True), options)
        trouble = facts.trouble(self._snapshot)
        if trouble:
            style = STYLES["bad" if self._snapshot.status == "failed" else "warn"]
            yield from console.render(Text(trouble, style, overflow="fold"), options)
        if self._note:
            yield from console.render(Text(clean(self._note), STYLES["dim"]), options)

    def _shards(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw a short bar for each shard, as many as do not push the rest off a screen."""
        shown = self._snapshot.shards[:_MOST_SHARDS]
        lines = [facts.shard_line(shard) for shard in shown]
        width = min(options.max_width - max(map(cell_len, lines), default=0) - _BESIDE_A_SHARD, _WIDEST_SHARD)
        for shard, line in zip(shown, lines, strict=True):
            number = f"{shard.number:>4}  "
            if width < _NARROWEST_BAR or shard.percent is None:
                yield from console.render(Text(cut(number + line, options.max_width), no_wrap=True), options)
                continue
            done = round(width * min(shard.percent, 100.0) / 100)
            bar = ("━" * done, STYLES[facts.tone(shard.status)] or "cyan")
            rest = ("─" * (width - done), STYLES["dim"])
            yield from console.render(Text.assemble(number, bar, rest, f"  {line}", no_wrap=True), options)
        if (more := len(self._snapshot.shards) - len(shown)) > 0:
            yield from console.render(Text(f"      and {more} more shards", STYLES["dim"]), options)

    def _title(self, width: int) -> Text:
        words = cut(facts.state_words(self._snapshot), max(width - _NARROWEST_BAR, _NARROWEST_BAR))
        name = cut(clean(self._snapshot.name), max(width - cell_len(words) - len(_BETWEEN), 1))
        return Text.assemble(
            (name, "bold"), _BETWEEN, (words, STYLES[facts.tone(words)]), no_wrap=True, overflow="crop"
        )

    def _bar(self, console: Console, options: ConsoleOptions) -> RenderResult:
        share, percent = facts.shown_share(self._snapshot), facts.percent_words(self._snapshot)
        is_known = share is not None or not self._snapshot.is_open
        width = min(options.max_width - (len(percent) + 2 if percent else 0), _WIDEST_BAR)
        if width < _NARROWEST_BAR:
            yield from console.render(Text(percent), options)
            return
        tone = facts.tone(self._snapshot.words)
        style = STYLES[tone] if tone in ("good", "bad", "warn") else "cyan"
        bar = ProgressBar(
            total=1.0 if is_known else None,
            completed=share or 0.0,
            width=width,
            pulse=not is_known,
            complete_style=style,
            finished_style=style,
        )
        yield from (segment for segment in console.render(bar, options.update(width=width)) if segment.text != "\n")
        yield Segment(f"  {percent}" if percent else "")
        yield Segment.line()


def snapshot_details(snapshot: Snapshot) -> Grid:
    """Answer everything worth saying of a run as two columns."""
    grid = Grid.grid(padding=(0, 3, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in details(snapshot):
        style = STYLES[facts.tone(snapshot.words)] if name == "state" else ""
        grid.add_row(Text(name, STYLES["dim"]), Text(value, style))
    return grid


def _wrapped(parts: list[str], width: int) -> list[str]:
    """Answer the parts in as few lines as they fit into, none broken in two."""
    lines: list[str] = []
    for part in parts:
        longer = f"{lines[-1]}{_BETWEEN}{part}" if lines else part
        if lines and cell_len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines
